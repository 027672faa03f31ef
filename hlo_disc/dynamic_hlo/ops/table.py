"""The op table: one row an op, with its kind, attributes, shape inference and numpy reference; a file for each family.

Kinds, which `row.py` lists, drive fusion and emission. A new elementwise op is one row in `elementwise.py` and one in
each emitter's table. A view has one operand, and its row says where its elements come from (`axes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, get_args, get_origin

import numpy as np

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.graph import RELATIONS, Op
from hlo_disc.dynamic_hlo.ops.axes import ELEMENTWISE, AxisRule, Link, Part
from hlo_disc.dynamic_hlo.ops.families import (
    control,
    conversions,
    elementwise,
    indexing,
    library,
    private,
    products,
    reductions,
    views,
)
from hlo_disc.dynamic_hlo.ops.families.library import TRANSFORMS
from hlo_disc.dynamic_hlo.ops.inference import Types, broken, describe
from hlo_disc.dynamic_hlo.ops.row import OpDef
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import CompileError

# A comparison's direction, and the relation that it is.
DIRECTIONS = {"EQ": "==", "NE": "!=", "GE": ">=", "GT": ">", "LE": "<=", "LT": "<"}
# A reduction's kind, and the op that combines two values.
REDUCERS = {
    "add": "add", "mul": "multiply", "max": "maximum", "min": "minimum", "and": "and", "or": "or", "xor": "xor",
}  # fmt: skip


# What an attribute may be: in words, and as a condition.
AttributeType = tuple[str, Callable[[Any], bool]]
_WORDS = {int: "an int", np.ndarray: "an array", np.dtype: "a numpy.dtype"}


def _type_of(annotation: type) -> AttributeType:
    """Return what an annotation of `Attributes` allows; of a tuple's elements it checks only the outermost type."""
    if get_origin(annotation) is not tuple:
        words = _WORDS.get(annotation, f"a {annotation.__name__}")
        return words, lambda value: isinstance(value, annotation)
    of = get_args(annotation)[0]
    kind = get_origin(of) or of
    if kind is np.dtype:  # each has a class of its own
        return "a tuple of dtypes", lambda value: type(value) is tuple and all(isinstance(x, kind) for x in value)
    return f"a tuple of {kind.__name__}s", lambda value: type(value) is tuple and {*map(type, value)} <= {kind}


def _word_of(table: Collection[str]) -> AttributeType:
    return f"one of {', '.join(table)}", table.__contains__


ATTRIBUTES = {
    **{name: _type_of(annotation) for name, annotation in Attributes.__annotations__.items()},
    **{"direction": _word_of(DIRECTIONS), "kind": _word_of(REDUCERS), "transform": _word_of(TRANSFORMS)},
}
OPS: dict[str, OpDef] = {}


def register(rows: Iterable[OpDef]) -> None:
    """Add ops to the table. Raises CompileError for a name that is taken, and for an attribute that has no type."""
    for row in rows:
        if row.name in OPS:
            raise CompileError(f"there is an op {row.name} already")
        for name in row.attrs:
            if name not in ATTRIBUTES:
                raise CompileError(f"op {row.name}: nothing says what its attribute {name} is; add it to Attributes")
        OPS[row.name] = row


for _family in (views, elementwise, conversions, indexing, reductions, products, control, library, private):
    register(_family.ROWS)

# Tables that say something of the same things have the same keys; a failure names those that only one of them has.
assert elementwise.COMPARE.keys() == DIRECTIONS.keys(), elementwise.COMPARE.keys() ^ DIRECTIONS.keys()
assert set(DIRECTIONS.values()) == RELATIONS.keys(), set(DIRECTIONS.values()) ^ RELATIONS.keys()
assert reductions.UFUNCS.keys() == REDUCERS.keys(), reductions.UFUNCS.keys() ^ REDUCERS.keys()


def definition(op: Op) -> OpDef:
    """Return the op's row. Raises CompileError if there is none, or if the operands or attributes do not fit it."""
    row = OPS.get(op.name)
    if row is None:
        raise CompileError(f"{describe(op)}: there is no such op")
    if row.operands is not None and len(op.operands) != row.operands:
        broken(op, f"{len(op.operands)} operands, expected {row.operands}")
    if op.attrs.keys() != {*row.attrs}:
        broken(op, f"attributes {sorted(op.attrs)}, expected {sorted(row.attrs)}")
    for name, value in op.attrs.items():
        text, fits = ATTRIBUTES[name]
        if not fits(value):
            broken(op, f"attribute {name} = {value!r} is not {text}")
    return row


def infer(op: Op, facts: ShapeFacts) -> Types:
    """Infer the op's result types. Raises ShapeError if sizes can never agree, CompileError if the op is malformed."""
    return definition(op).infer(op, facts)


def kind(op: Op) -> str:
    """Return the kind in the op's row; "alias" for a bitcast that only gives memory another type."""
    if op.name == "bitcast_convert" and op.operands[0].rank != op.result.rank:
        return "alias"
    return OPS[op.name].kind


def axis_rule(op: Op) -> AxisRule | None:
    """Return the rule in the op's row, or that of all elementwise ops; None if nothing is known of its axes."""
    row = OPS[op.name]
    return ELEMENTWISE if row.kind == "elementwise" and kind(op) != "alias" else row.axes


def links(op: Op, facts: ShapeFacts) -> tuple[Link, ...]:
    """Return the relations of the op's axes; none if nothing is known of them."""
    rule = axis_rule(op)
    relation = rule.relation(op, facts) if rule else None
    return relation.links if relation else ()


def parts_of(op: Op) -> list[Part]:
    """Return the blocks from which an op assembles its result, in the order in which they are written; none for other
    ops."""
    rule = OPS[op.name].axes
    return rule.parts(op) if rule and rule.parts else []
