"""Attributes and ops of ours in kernels: what is misspelt or has the wrong type raises where it is written."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hlo_disc import kernel_ops, mlir
from hlo_disc.kernel_ops import Attribute, Known, Mma, PairDot, Parts, TileDot, TileLoad, TileZero, extension
from hlo_disc.mlir import arith, ir
from hlo_disc.targets.translate.module import EXTENSIONS

ATTRIBUTES = {name: made for name, made in vars(kernel_ops).items() if isinstance(made, Attribute)}
VALUES = {bool: True, int: 64, Known: Known.CLEAN}


@pytest.fixture
def building():
    """An open block, in which ops are built."""
    with mlir.context(), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            yield module


def value(text: str) -> ir.Value:
    """A value of a type."""
    cast = ir.Operation.create("builtin.unrealized_conversion_cast", [ir.Type.parse(text)], [])
    return cast.results[0]


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_is_read_as_it_is_set(name, building):
    attribute, op = ATTRIBUTES[name], value("f32").owner
    assert attribute.of(op) is attribute.default
    attribute.set(op, attribute.default)
    assert not op.attributes and not attribute.entry(attribute.default)
    set_to = VALUES[type(attribute.default)]
    attribute.set(op, set_to)
    of_argument = ir.DictAttr.get(attribute.entry(set_to))
    for found in (attribute.of(op), attribute.among(of_argument)):
        assert found == set_to and type(found) is type(attribute.default)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_a_value_of_another_type_raises(name, building):
    attribute = ATTRIBUTES[name]
    for wrong in ("exact", None, 1 if attribute.default is False else True):
        with pytest.raises(TypeError, match=attribute.name):
            attribute.set(value("f32").owner, wrong)


def test_ops_are_read_as_they_are_built(building):
    pointer, i64, vector = value("!llvm.ptr"), value("i64"), value("vector<4xf32>")
    for op, operands in (
        (Parts(True), (pointer, i64)),
        (Parts(False), (pointer, i64)),
        (Mma("m8n8k4"), (vector, vector, vector)),
        (TileLoad(3), (pointer, i64, i64)),
        (TileDot(0, 4, 6), ()),
    ):
        assert extension(op.build(*operands)) == op


@pytest.mark.parametrize(
    "op, operands",
    [
        (PairDot(), ("vector<8xf32>", "vector<16xbf16>", "vector<8xbf16>")),
        (PairDot(), ("vector<8xf32>", "vector<16xf16>", "vector<16xf16>")),
        (PairDot(), ("vector<8xf32>", "vector<16xbf16>")),
        (kernel_ops.Tf32(), ("f32",)),
        (kernel_ops.Compress(), ("vector<8xf32>", "vector<4xi1>")),
        (Parts(True), ("!llvm.ptr", "index")),
        (TileLoad(0), ("!llvm.ptr", "i64")),
        (TileZero(0), ("i64",)),
    ],
    ids=str,
)
def test_operands_that_an_op_does_not_take_raise(op, operands, building):
    with pytest.raises(TypeError):
        op.build(*map(value, operands))


@pytest.mark.parametrize("make", [lambda: TileZero("0"), lambda: TileZero(True), lambda: Parts(1), lambda: Mma(3)])
def test_parameters_of_another_type_raise(make):
    with pytest.raises(TypeError, match="is a"):
        make()


def test_an_intrinsic_that_is_none_of_ours_raises(building):
    op = TileZero(0).build()
    op.attributes["intrin"] = ir.StringAttr.get("llvm.hlo_disc.tile.nil")
    with pytest.raises(TypeError, match="tile.nil"):
        extension(op)


def test_the_translator_has_all_ops():
    assert set(EXTENSIONS) == set(kernel_ops.EXTENSIONS.values())


def test_all_attributes_are_set_and_read():
    """Those that schedules set are those that the translator reads."""
    package = Path(kernel_ops.__file__).parent
    for room, methods in (("stitch", ("set", "entry")), ("targets", ("of", "among"))):
        calls = [n for p in (package / room).rglob("*.py") for n in ast.walk(ast.parse(p.read_text()))]
        used = {
            n.value.id
            for n in calls
            if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.attr in methods
        }
        assert used & set(ATTRIBUTES) == set(ATTRIBUTES)


def test_what_is_built_verifies(building):
    x = arith.ConstantOp(
        ir.VectorType.get([8], ir.F32Type.get()),
        ir.DenseElementsAttr.get_splat(ir.VectorType.get([8], ir.F32Type.get()), ir.FloatAttr.get_f32(1.0)),
    ).result
    kernel_ops.Tf32().build(x)
    assert building.operation.verify()
