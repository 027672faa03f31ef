"""An element type is three rows: a name in `dynamic_hlo/ir/dtypes.py`, codes in `ral/core/dtype.h`, and a number in
`ral/c_api/hlo_disc.h`. Which frameworks have it, and how it is rounded, follows from the name.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

import hlo_disc
from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, COMPLEX_PARTS, FLOATS, INTEGERS
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.import_.stablehlo import decode
from hlo_disc.targets.translate.minifloats import format_of, narrow, widen
from hlo_disc.targets.translate.types import MINI_FLOATS, Type

PACKAGE = Path(hlo_disc.__file__).parent
ROWS = {"dynamic_hlo/ir/dtypes.py", "ral/c_api/hlo_disc.h", "ral/core/dtype.h"}

PROGRAM = """
func.func public @main(%x: tensor<?xf8E3M4>, %y: tensor<?xf8E3M4>) -> tensor<?xf8E3M4> {
  %0 = stablehlo.multiply %x, %y : tensor<?xf8E3M4>
  %1 = stablehlo.add %0, %x : tensor<?xf8E3M4>
  return %1 : tensor<?xf8E3M4>
}
"""


@pytest.mark.parametrize("format_", ["e3m4", "e4m3b11fnuz", "e4m3fnuz", "e5m2fnuz", "e2m3fn", "e3m2fn", "e2m1fn"])
def test_a_type_is_named_in_three_files(format_: str) -> None:
    sources = (path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".pyi", ".h", ".cc"))
    found = [path for path in sources if re.search(f"{format_}(?![a-z0-9])", path.read_text().lower())]
    assert {str(path.relative_to(PACKAGE)) for path in found} == ROWS


def test_the_rows_are_of_the_same_types() -> None:
    codes = re.findall(r'^    \{"(\w+)"', (PACKAGE / "ral/core/dtype.h").read_text(), re.M)
    numbers = re.findall(r"^  HLO_DISC_(\w+) = (\d+),?$", (PACKAGE / "ral/c_api/hlo_disc.h").read_text(), re.M)
    of_types = [(name.lower(), int(number)) for name, number in numbers]
    assert [pair for pair in of_types if pair[0] in codes] == [(name, k) for k, name in enumerate(codes)]
    assert set(codes) == {dtype.name for dtype in (BOOL, *INTEGERS, *FLOATS, *COMPLEX_PARTS)}


def test_a_program_computes_with_it() -> None:
    compiled = hlo_disc.compile(PROGRAM, dims=["(n)", "(n)"])
    for n in (0, 1, 33):
        x, y = np.random.default_rng(0).standard_normal((2, n)).astype(ml_dtypes.float8_e3m4)
        np.testing.assert_array_equal(compiled(x, y).view(np.uint8), (x * y + x).view(np.uint8))


def test_without_the_row_there_is_no_such_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(decode._DTYPES, "f8E3M4")
    with pytest.raises(UnsupportedOpError, match="f8E3M4"):
        hlo_disc.compile(PROGRAM, dims=["(n)", "(n)"])


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
