"""Makes the kit: programs for a GPU, what they must compute, and all that runs them on a machine without this compiler.

    python tools/gpu_kit/build.py DIRECTORY [--target cuda] [--cases map,softmax]

The host code of a program is linked here into a shared library, whose calls of the runtime go through a table, so that
no linker and no LLVM is needed there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "benchmarks")]

import cases  # noqa: E402
import jax  # noqa: E402

import hlo_disc  # noqa: E402
from hlo_disc import ral  # noqa: E402
from hlo_disc.program import Program  # noqa: E402
from hlo_disc.saved import save  # noqa: E402
from hlo_disc.targets import registry  # noqa: E402

MOST_BYTES = 48 << 20
# A function that jumps to wherever its word in the table says.
_STUB = """.hidden {0}
.globl {0}
{0}: jmp *.L{0}(%rip)
.data
.globl {0}__to
{0}__to:
.L{0}: .quad 0
.text
"""


def linked(object_: bytes) -> bytes:
    """Object code as a shared library; `name__to` is where it wants the address of the runtime's function."""
    with tempfile.TemporaryDirectory() as directory:
        where = Path(directory)
        (where / "program.o").write_bytes(object_)
        stubs = "".join(_STUB.format(name) for name in ral.symbols())
        (where / "stubs.s").write_text(f'.text\n{stubs}.section .note.GNU-stack,"",@progbits\n')
        command = ["cc", "-shared", "-o", "program.so", "program.o", "stubs.s"]
        subprocess.run(command, cwd=where, check=True)
        return (where / "program.so").read_bytes()


def compiled(name: str, target: str) -> Program:
    """f32 is computed in f32, not in what a GPU may multiply instead."""
    case = cases.CASES[name]
    with jax.default_matmul_precision("highest"):
        return hlo_disc.compile(case.function, *case.specs(), target=target).program


def expected(name: str, program: Program, sizes: cases.Sizes) -> list[np.ndarray]:
    """What JAX computes on this machine's CPU."""
    args = cases.nested(program.inputs, cases.inputs(program.inputs, sizes))
    with jax.default_matmul_precision("highest"):
        results = jax.tree.leaves(jax.jit(cases.CASES[name].function)(*args))
    return [np.asarray(x.astype(np.float32) if x.dtype == "bfloat16" else x) for x in results]


def _sources(directory: Path) -> None:
    """The runtime and the Python that loads programs, with the headers of the XLA FFI, which come with jaxlib."""
    names = subprocess.run(["git", "ls-files", "hlo_disc"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in (*names.stdout.split(), "CMakeLists.txt", "LICENSE"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, directory / name)
    (jaxlib,) = find_spec("jaxlib").submodule_search_locations  # type: ignore[union-attr, misc]
    headers = Path(jaxlib) / "include" / "xla" / "ffi" / "api"
    shutil.copytree(headers, directory / "include" / "xla" / "ffi" / "api")


def build(directory: Path, target: str, names: Sequence[str]) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    _sources(directory / "src")
    for path in (*(x for x in HERE.glob("*.py") if x.name != "build.py"), ROOT / "benchmarks" / "models.py"):
        shutil.copy(path, directory / path.name)
    (directory / "programs").mkdir()
    (directory / "cpu").mkdir()
    on_cpu = [name for name in names if cases.CASES[name].on_cpu]
    for name in names:
        program = compiled(name, target)
        results = {
            f"{cases.key(sizes)}:{i}": result
            for sizes in cases.CASES[name].checked
            for i, result in enumerate(expected(name, program, sizes))
        }
        np.savez_compressed(directory / "programs" / f"{name}.npz", **results)
        _keep(program, directory / "programs" / f"{name}.disc")
        if name in on_cpu:
            _keep(compiled(name, "cpu:avx2"), directory / "cpu" / f"{name}.disc")
    kind, _ = registry.split(target)
    kernels = [name for name in names if not cases.CASES[name].is_model]
    about = {"target": kind, "driver": registry.find(kind).driver, "cases": names, "cpu": on_cpu, "kernels": kernels}
    (directory / "manifest.json").write_text(json.dumps(about, indent=1))


def _keep(program: Program, path: Path) -> None:
    """Without what only people read, which would be half of it."""
    save(program._replace(object=linked(program.object), account=""), path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--cases", default=",".join(cases.CASES))
    options = parser.parse_args()
    build(options.directory, options.target, options.cases.split(","))
    archive = Path(shutil.make_archive(str(options.directory), "zip", options.directory.parent, options.directory.name))
    size = archive.stat().st_size
    if size > MOST_BYTES:
        raise SystemExit(f"{archive}: {size} bytes are more than {MOST_BYTES}")
    print(f"{archive}: {size} bytes")


if __name__ == "__main__":
    main()
