"""The types that a type checker sees: a decorated function keeps its signature."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlo_disc

PROGRAM = """\
import hlo_disc

class Array: ...

@hlo_disc.jit
def f(x: Array, scale: float = 1.0) -> Array:
    return x

@hlo_disc.jit(dims={"x": "(n)"}, constraints="n <= 4", target="cpu:avx2")
def g(x: Array) -> tuple[Array, int]:
    return x, 1

class Model:
    @hlo_disc.jit(static_argnums=0)
    def apply(self, x: Array, *, train: bool) -> Array:
        return x

reveal_type(f(Array(), scale=2.0))  # note: Revealed type is "program.Array"
reveal_type(g(Array()))  # note: Revealed type is "tuple[program.Array, int]"
reveal_type(Model().apply)  # note: Revealed type is "def (x: program.Array, *, train: bool) -> program.Array"
reveal_type(f.stats().calls)  # note: Revealed type is "int"
reveal_type(hlo_disc.jit(f)(Array()))  # note: Revealed type is "program.Array"
f("a")  # error: Argument 1 to "__call__" of "JitFunction" has incompatible type "str"; expected "Array"
g(Array(), 2)  # error: Too many arguments for "__call__" of "JitFunction"
Model().apply(Array())  # error: Missing named argument "train"
program = hlo_disc.compile(f, "f32[n]", constraints="n <= 4", target="cpu:avx2")
reveal_type(program)  # note: Revealed type is "hlo_disc.executable.Executable"
reveal_type(program.profile(Array()).as_dict())  # note: Revealed type is "dict[str, object]"
hlo_disc.load(4)  # error: Argument 1 to "load" has incompatible type "int"; expected "str | PathLike[str]"
hlo_disc.jit(dims="(n)")  # error: No overload variant of "jit" matches argument type "str"
"""


def test_a_decorated_function_keeps_its_signature(tmp_path, monkeypatch):
    api = pytest.importorskip("mypy.api")
    root = Path(__file__).parents[3]
    monkeypatch.chdir(root)
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    report, problems, _ = api.run(["--config-file", str(root / "pyproject.toml"), str(file)])
    assert not problems
    expected = {i: line.split("  # ")[1] for i, line in enumerate(PROGRAM.splitlines(), 1) if "  # " in line}
    said = [line.split(":", 2)[1:] for line in report.splitlines() if "program.py:" in line]
    found: dict[int, str] = {}
    for number, text in said:
        found.setdefault(int(number), text.strip())
    assert {i: text.rsplit("  [", 1)[0].replace("builtins.", "") for i, text in found.items()} == expected, report


def test_the_package_says_that_it_is_typed():
    assert (Path(hlo_disc.__file__).parent / "py.typed").exists()
