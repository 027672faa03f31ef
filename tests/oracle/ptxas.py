"""The PTX that programs are compiled to, and what NVIDIA's assembler says of it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import depth
import pytest

from hlo_disc.mlir import ir
from hlo_disc.targets.gpu import assembler
from hlo_disc.targets.gpu import vendor as gpu

needs_ptxas = pytest.mark.skipif(not assembler.found(), reason="needs ptxas")


@dataclass(frozen=True)
class Kernel:
    """The registers and memory of a kernel.

    registers: of a thread. stack: bytes of local memory that it has. spilled: bytes that it stores and loads there for
    want of registers.
    """

    registers: int
    stack: int
    spilled: int


@contextmanager
def images() -> Iterator[list[str]]:
    """Yield the PTX of the programs that are compiled meanwhile, as LLVM writes it, with zeros between its modules.

    No machine code is made of it: whoever wants to know about that asks `assembled`.
    """
    made: list[str] = []

    def kept(compilation: gpu.GpuCompilation, *host: ir.Module) -> bytes:
        code = finish(compilation, *host)
        made.append("\0".join(text.decode() for text, _ in compilation.workers.results()))
        return code

    finish = gpu.GpuCompilation.finish
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu.GpuCompilation, "finish", kept)
        patch.setattr(assembler, "assemble", lambda ptx, level: b"")
        yield made


def kernels(image: str) -> dict[str, str]:
    """The PTX of each kernel."""
    return dict(re.findall(r"^\.visible \.entry (\w+)\((.*?)^\}", image, re.S | re.M))


def global_accesses(kernel: str) -> list[str]:
    """The instructions that read or write the GPU's memory."""
    return re.findall(r"(?:ld|st)\.global\S*", kernel)


def assembled(image: str, tmp_path: Path, level: str = "sm_80") -> dict[str, Kernel]:
    """Return what an assembler says of each kernel. Of several assemblers, in the deep sweeps, the worst counts."""
    made: dict[str, Kernel] = {}
    for k, text in enumerate(image.split("\0")):
        source = tmp_path / f"{k}.ptx"
        source.write_text(text)
        for command in depth.some(assembler.found(), 0):
            for name, found in _said(command, source, level).items():
                had = made.get(name, found)
                made[name] = Kernel(*(max(getattr(x, f.name) for x in (had, found)) for f in fields(Kernel)))
    assert made.keys() == kernels(image).keys()
    return made


def _said(command: str, source: Path, level: str) -> dict[str, Kernel]:
    words = [command, f"-arch={level}", "-v", source, "-o", source.with_suffix(".cubin")]
    run = subprocess.run(words, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr + source.read_text()
    pattern = (
        r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
        r".*?Used (\d+) registers"
    )
    return {
        name: Kernel(int(registers), int(stack), int(stores) + int(loads))
        for name, stack, stores, loads, registers in re.findall(pattern, run.stderr, re.S)
    }
