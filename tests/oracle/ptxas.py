"""The PTX that programs are compiled to, and what NVIDIA's assembler says of it."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from hlo_disc.targets import gpu


def _assembler() -> str | None:
    package = importlib.util.find_spec("nvidia")
    for directory in package.submodule_search_locations or () if package else ():
        if (found := Path(directory) / "cuda_nvcc" / "bin" / "ptxas").exists():
            return str(found)
    return shutil.which("ptxas")


PTXAS = _assembler()
needs_ptxas = pytest.mark.skipif(PTXAS is None, reason="needs ptxas")


@dataclass(frozen=True)
class Kernel:
    """registers: of a thread. stack, spilled: bytes of it that are local memory, and what is stored and loaded there
    for want of registers.
    """

    registers: int
    stack: int
    spilled: int


@contextmanager
def images() -> Iterator[list[str]]:
    """The PTX of the programs that are compiled meanwhile."""
    made: list[str] = []

    def kept(vendor: gpu.Vendor, text: str, level: str, dump=None) -> bytes:
        code = whole(vendor, text, level, dump)
        made.append(code.decode())
        return code

    whole = gpu.machine_code
    gpu.machine_code = kept
    try:
        yield made
    finally:
        gpu.machine_code = whole


def kernels(image: str) -> dict[str, str]:
    """The PTX of each kernel."""
    return dict(re.findall(r"^\.visible \.entry (\w+)\((.*?)^\}", image, re.S | re.M))


def global_accesses(kernel: str) -> list[str]:
    """The instructions that read or write the GPU's memory."""
    return re.findall(r"(?:ld|st)\.global\S*", kernel)


def assembled(image: str, tmp_path: Path, level: str = "sm_80") -> dict[str, Kernel]:
    """What the assembler says of each kernel."""
    source = tmp_path / "image.ptx"
    source.write_text(image)
    command = [PTXAS, f"-arch={level}", "-v", source, "-o", tmp_path / "image.cubin"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr + image
    pattern = (
        r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
        r".*?Used (\d+) registers"
    )
    found = {
        name: Kernel(int(registers), int(stack), int(stores) + int(loads))
        for name, stack, stores, loads, registers in re.findall(pattern, run.stderr, re.S)
    }
    assert found.keys() == kernels(image).keys()
    return found
