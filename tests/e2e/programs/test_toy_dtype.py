"""An element type is three rows: a name in `dynamic_hlo/ir/dtypes.py`, codes in `ral/core/dtype.h`, and a number in
`ral/c_api/hlo_disc.h`. Which frameworks have it, and how it is rounded, follows from the name.

StableHLO has no type that is not supported. So the type that is added here is one of its own: a copy of the package
knows nothing of it at first, and then gets the three rows.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm
import pytest

import hlo_disc
from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, COMPLEX_PARTS, FLOATS, INTEGERS
from hlo_disc.ral import _ral
from hlo_disc.targets.translate.minifloats import format_of, narrow, widen
from hlo_disc.targets.translate.types import MINI_FLOATS, Type

PACKAGE = Path(hlo_disc.__file__).parent
NAME, CODES, NUMBER = "dynamic_hlo/ir/dtypes.py", "ral/core/dtype.h", "ral/c_api/hlo_disc.h"
ROWS = {
    NAME: '"float8_e3m4",',
    CODES: '    {"float8_e3m4", 1, Kind::kFloat, 7, "", 29, 0},\n',
    NUMBER: "  HLO_DISC_FLOAT8_E3M4 = 22,\n",
}

PROGRAM = """
import ml_dtypes, numpy as np
import hlo_disc

program = hlo_disc.compile('''
func.func public @main(%x: tensor<?xf8E3M4>, %y: tensor<?xf32>) -> (tensor<?xf8E3M4>, tensor<f8E3M4>) {
  %z = stablehlo.convert %y : (tensor<?xf32>) -> tensor<?xf8E3M4>
  %sum = stablehlo.add %x, %z : tensor<?xf8E3M4>
  %less = stablehlo.compare LT, %x, %z, FLOAT : (tensor<?xf8E3M4>, tensor<?xf8E3M4>) -> tensor<?xi1>
  %some = stablehlo.select %less, %sum, %x : tensor<?xi1>, tensor<?xf8E3M4>
  %zero = stablehlo.constant dense<0.0> : tensor<f8E3M4>
  %all = stablehlo.reduce(%some init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<?xf8E3M4>, tensor<f8E3M4>) -> tensor<f8E3M4>
  return %some, %all : tensor<?xf8E3M4>, tensor<f8E3M4>
}''', dims=["(n)", "(n)"], cache="")

toy = np.dtype(ml_dtypes.float8_e3m4)
for n in (0, 1, 33):
    x, y = np.random.default_rng(0).standard_normal((2, n)).astype(np.float32)
    x, z = x.astype(toy), y.astype(toy)
    some = np.where(x < z, x + z, x)
    all = some.astype(np.float32).sum().astype(toy)
    for ours, expected in zip(program(x, y), (some, all), strict=True):
        assert ours.dtype == toy
        np.testing.assert_array_equal(ours.astype(np.float32), expected.astype(np.float32))
print("as numpy")
"""


def naming(folder: Path, format_: str) -> set[str]:
    """Return the files of a package in which the name of a format stands."""
    name = re.compile(rf"{format_}(?![a-z0-9])".encode())
    paths = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(folder)) for path in paths if name.search(path.read_bytes().lower())}


@pytest.mark.parametrize("format_", ["e4m3b11fnuz", "e4m3fnuz", "e5m2fnuz", "e2m3fn", "e3m2fn", "e2m1fn"])
def test_a_type_is_named_in_three_files(format_: str) -> None:
    assert naming(PACKAGE, format_) == ROWS.keys()


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "UnsupportedTypeError: .*f8E3M4> is not supported"),
        ([NAME], "dtype float8_e3m4 of .* is not supported by the runtime"),
        ([NAME, CODES, NUMBER], "as numpy"),
    ],
    ids=["no rows", "its name", "all rows"],
)
def test_a_type_is_added_by_its_rows(tmp_path: Path, rows: list[str], says: str) -> None:
    copy, built = tmp_path / "hlo_disc", Path(_ral.__file__)
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ROWS.keys() - rows:
        text = (copy / name).read_text()
        assert text.count(ROWS[name]) == 1
        (copy / name).write_text(text.replace(ROWS[name], ""))
    content, runtime = built.read_bytes(), f"ral/{built.name}"
    assert content.count(b"\0float8_e3m4\0") == 1
    if CODES not in rows:  # as if built from the file: the row is that of a type that nobody has
        content = content.replace(b"\0float8_e3m4\0", b"\0float8_none\0")
    (copy / runtime).write_bytes(content)
    assert naming(copy, "e3m4") == {*rows, *([runtime] if CODES in rows else [])}
    paths = os.pathsep.join([str(tmp_path), *site.getsitepackages()])
    command = [sys.executable, "-S", "-c", PROGRAM]  # without the finder of the installed package
    env = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert re.search(says, (done.stdout + done.stderr).strip().splitlines()[-1])


def test_the_rows_are_of_the_same_types() -> None:
    codes = re.findall(r'^    \{"(\w+)"', (PACKAGE / CODES).read_text(), re.M)
    numbers = re.findall(r"^  HLO_DISC_(\w+) = (\d+),?$", (PACKAGE / NUMBER).read_text(), re.M)
    of_types = [(name.lower(), int(number)) for name, number in numbers]
    assert [pair for pair in of_types if pair[0] in codes] == [(name, k) for k, name in enumerate(codes)]
    assert set(codes) == {dtype.name for dtype in (BOOL, *INTEGERS, *FLOATS, *COMPLEX_PARTS)}


def compiled(name: str) -> tuple[Callable[[int], float], Callable[[float], int], llvm.ExecutionEngine]:
    """Return the functions of machine code that widen and round a type."""
    kind = Type("i8", "i8", size=1, is_float=True, name=name)

    def function(head: str, make: Callable[[Callable[[str], str]], str], result: str) -> str:
        lines: list[str] = []

        def append(text: str) -> str:
            lines.append(f"  %t{len(lines)} = {text}")
            return f"%t{len(lines) - 1}"

        made = make(append)
        return "\n".join([f"define {head} {{", *lines, f"  ret {result} {made}", "}"])

    text = function("float @widen(i8 %c)", lambda append: widen(append, "%c", kind), "float")
    text += "\n" + function("i8 @narrow(float %x)", lambda append: narrow(append, "%x", kind), "i8")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    widened = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_uint8)(engine.get_function_address("widen"))
    narrowed = ctypes.CFUNCTYPE(ctypes.c_uint8, ctypes.c_float)(engine.get_function_address("narrow"))
    return widened, narrowed, engine


def value(code: int, exponent: int, mantissa: int, bias: int) -> float:
    """Compute what a code without its sign means, where it is a number."""
    power, rest = code >> mantissa, code & (1 << mantissa) - 1
    if power == 0:
        return rest * 2.0 ** (1 - bias - mantissa)
    return (1 + rest * 2.0**-mantissa) * 2.0 ** (power - bias)


@pytest.mark.parametrize(
    ("name", "exponent", "mantissa", "bias", "numbers"),
    [
        ("f8E2M5", 2, 5, 1, 96),
        ("f8E2M5FN", 2, 5, 1, 127),
        ("f8E3M4FNUZ", 3, 4, 4, 128),
        ("f7E3M3FN", 3, 3, 3, 64),
        ("f8E3M4B6FNUZ", 3, 4, 6, 128),
    ],
)
def test_a_format_that_nobody_has_follows_from_its_name(
    name: str, exponent: int, mantissa: int, bias: int, numbers: int
) -> None:
    assert name not in MINI_FLOATS
    widened, narrowed, _engine = compiled(name)
    wanted = [value(code, exponent, mantissa, bias) for code in range(numbers)]
    assert [widened(code) for code in range(numbers)] == wanted
    assert [narrowed(x) for x in wanted] == [*range(numbers)]
    between = [(low + high) / 2 for low, high in zip(wanted, wanted[1:], strict=False)]
    assert [narrowed(x) for x in between] == [k + k % 2 for k in range(numbers - 1)]
    assert format_of(name).largest == numbers - 1
