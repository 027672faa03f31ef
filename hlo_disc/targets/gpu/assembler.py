"""NVIDIA's assembler, `ptxas`: where there is one it makes machine code of PTX ahead of the driver."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path

from hlo_disc.errors import CompileError

# The packages of Python that bring it, and where in them: NVIDIA's for CUDA 12 and 13, and Triton.
_PACKAGES = {
    "nvidia": ("cuda_nvcc/bin/ptxas", "cu13/bin/ptxas"),
    "triton": ("backends/nvidia/bin/ptxas",),
}


@functools.cache
def found() -> tuple[str, ...]:
    """Return the assemblers' paths: that of PATH, which is the one to use, and those of packages."""
    specs = {package: importlib.util.find_spec(package) for package in _PACKAGES}
    places = [
        f"{directory}/{place}"
        for package, spec in specs.items()
        for directory in (spec and spec.submodule_search_locations) or ()
        for place in _PACKAGES[package]
    ]
    return tuple(path for path in map(shutil.which, ["ptxas", *places]) if path)


@functools.cache
def version() -> str:
    """Return the version text of the assembler to use; "" if there is none."""
    return subprocess.run([found()[0], "--version"], capture_output=True, text=True).stdout if found() else ""


def assemble(ptx: bytes, level: str) -> bytes:
    """Return machine code for a level, as "sm_90", an ELF object (a cubin) that the driver loads as it is.

    Args:
        ptx: one module's text.
        level: the level of features that the text is for.

    Raises:
        CompileError: with what the assembler says, which may be too old for this PTX.
    """
    command = found()[0]
    with tempfile.TemporaryDirectory(prefix="hlo_disc-") as folder:
        source, made = Path(folder) / "kernels.ptx", Path(folder) / "kernels.cubin"
        source.write_bytes(ptx)
        run = subprocess.run([command, f"-arch={level}", str(source), "-o", str(made)], capture_output=True, text=True)
        if run.returncode:
            raise CompileError(
                f"{command} cannot assemble kernels for {level}; update it, take it out of PATH, or compile for the "
                f'target "cuda", which the driver assembles: {(run.stderr or run.stdout).strip()}'
            )
        return made.read_bytes()
