"""Each attribute has one type by its name, which is checked when an op is built. No attribute changes afterwards."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.graph import Region
from hlo_disc.dynamic_hlo.ops.table import ATTRIBUTES, OPS
from hlo_disc.dynamic_hlo.sizes.dim import Dim

ROOT = Path(__file__).parents[3] / "hlo_disc"
TWO, F32, REGION = Dim.const(2), np.dtype(np.float32), Region((), (), ())
# An attribute of each type: what it is in words, a value, and what is not one.
TYPES: dict[str, tuple[str, Any, list[Any]]] = {
    "value": ("an array", np.zeros(2), [1.0, (0.0, 0.0)]),
    "dtype": ("a numpy.dtype", F32, [np.float32, "float32"]),
    "dtypes": ("a tuple of dtypes", (F32, np.dtype(bool)), [[F32], (F32, np.float32), F32]),
    "count": ("an int", 2, [TWO, 2.0, np.int64(2)]),
    "dims": ("a tuple of ints", (0, 1), [[0], 0, (0, TWO), (True,), (np.int64(0),)]),
    "first": ("a Dim", TWO, [2]),
    "shape": ("a tuple of Dims", (TWO, Dim.symbol("n")), [[TWO], TWO, (TWO, 2)]),
    "body": ("a Region", REGION, [None, (REGION,)]),
    "branches": ("a tuple of Regions", (REGION,), [[REGION], REGION, (None,)]),
    "effect": ("a bool", True, [1, None]),
    "symbol": ("a str", "n", [Dim.symbol("n"), b"n"]),
    "aliases": ("a tuple of tuples", ((0, 1),), [((0, 1), 2), [(0, 1)], (0, 1)]),
    "direction": ("one of EQ, NE, GE, GT, LE, LT", "LT", ["<", "", None]),
    "kind": ("one of add, mul, max, min, and, or, xor", "add", ["sum", None]),
    "transform": ("one of FFT, IFFT, RFFT, IRFFT", "RFFT", ["fft", None]),
}


@pytest.mark.parametrize("name", TYPES)
def test_a_value_of_another_type_is_refused(name: str) -> None:
    words, right, wrong = TYPES[name]
    text, fits = ATTRIBUTES[name]
    assert text == words and fits(right) and not any(map(fits, wrong))


def test_all_types_are_tested_here() -> None:
    assert {text for text, _ in ATTRIBUTES.values()} == {words for words, *_ in TYPES.values()}


def test_the_types_are_those_of_the_ops() -> None:
    assert Attributes.__annotations__.keys() == {name for row in OPS.values() for name in row.attrs}


def changes(function: ast.FunctionDef) -> Iterator[int]:
    """Yield the lines that change what is `attrs` of something, or a variable that is set to it."""

    def is_attrs(x: ast.expr) -> bool:
        return (isinstance(x, ast.Attribute) and x.attr == "attrs") or (isinstance(x, ast.Name) and x.id in names)

    names: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            (target, value) = node.targets[0], node.value
            tuples = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            pairs = zip(target.elts, value.elts, strict=False) if tuples else [(target, value)]
            names |= {x.id for x, y in pairs if isinstance(x, ast.Name) and is_attrs(y)}
    for node in ast.walk(function):
        match node:
            case (
                ast.Subscript(value=base, ctx=ast.Store() | ast.Del())
                | ast.AugAssign(target=base)
                | ast.Call(func=ast.Attribute(value=base, attr="pop" | "update" | "setdefault"))
            ) if is_attrs(base):
                yield node.lineno


def test_an_ops_attributes_do_not_change() -> None:
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if ".attrs" in text else ():
            assert not isinstance(node, ast.FunctionDef) or not [*changes(node)], path
