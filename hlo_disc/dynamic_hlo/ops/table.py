"""The op table: one row an op, with its kind, attributes, shape inference and numpy reference; a file for each family.

Kinds, which `row.py` lists, drive fusion and emission. A new elementwise op is one row in `elementwise.py` and one in
each emitter's table. A view has one operand, and its row says where its elements come from (`axes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import RELATIONS, Op, Region
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
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import CompileError

# A comparison's direction, and the relation that it is.
DIRECTIONS = {"EQ": "==", "NE": "!=", "GE": ">=", "GT": ">", "LE": "<=", "LT": "<"}
# A reduction's kind, and the op that combines two values.
REDUCERS = {
    "add": "add", "mul": "multiply", "max": "maximum", "min": "minimum", "and": "and", "or": "or", "xor": "xor",
}  # fmt: skip


def _tuple_of(kind: type) -> Callable[[object], bool]:
    return lambda value: type(value) is tuple and {*map(type, value)} <= {kind}


def _is_int(value: object) -> bool:
    return isinstance(value, int)


# What an attribute may be: in words, and as a condition.
AttributeType = tuple[str, Callable[[Any], bool]]
DIM: AttributeType = ("a Dim", lambda value: isinstance(value, Dim))
DIMS: AttributeType = ("a tuple of Dims", _tuple_of(Dim))
INTS: AttributeType = ("a tuple of ints", _tuple_of(int))
TEXT: AttributeType = ("a str", lambda value: isinstance(value, str))

# An attribute means the same wherever it occurs, so its type is a matter of its name.
ATTRIBUTES: dict[str, AttributeType] = {
    "value": ("an array", lambda value: isinstance(value, np.ndarray)),
    **dict.fromkeys(("body", "cond", "select"), ("a Region", lambda value: isinstance(value, Region))),
    "branches": ("a tuple of Regions", _tuple_of(Region)),
    "carried": ("an int", _is_int),
    **dict.fromkeys(("lhs", "rhs", "expr"), DIM),
    **dict.fromkeys(("relation", "message", "target", "symbol"), TEXT),
    "args": DIMS,
    "dtype": ("a numpy.dtype", lambda value: isinstance(value, np.dtype)),
    "dim": ("an int", _is_int),
    **dict.fromkeys(("index_vector_dim", "exponent_bits", "mantissa_bits"), ("an int", _is_int)),
    "direction": (f"one of {', '.join(DIRECTIONS)}", DIRECTIONS.__contains__),
    "kind": (f"one of {', '.join(REDUCERS)}", REDUCERS.__contains__),
    **dict.fromkeys(("shape", "start", "limit", "sizes", "slice_sizes", "low", "high", "interior", "window"), DIMS),
    **dict.fromkeys(("starts", "steps"), DIMS),
    "first": DIM,
    **dict.fromkeys(("dims", "perm", "stride", "offset_dims", "collapsed_slice_dims"), INTS),
    **dict.fromkeys(("operand_batching_dims", "start_indices_batching_dims", "start_index_map"), INTS),
    **dict.fromkeys(("lhs_batch", "rhs_batch", "lhs_contract", "rhs_contract"), INTS),
    **dict.fromkeys(("lhs_spec", "rhs_spec", "out_spec", "reversal"), INTS),
    **dict.fromkeys(("strides", "dilations", "base_dilations", "window_dilations"), INTS),
    **dict.fromkeys(("feature_groups", "batch_groups", "count"), ("an int", _is_int)),
    **dict.fromkeys(("unique", "stable", "reverse", "tf32"), ("a bool", lambda value: isinstance(value, bool))),
    "transform": (f"one of {', '.join(TRANSFORMS)}", TRANSFORMS.__contains__),
    "length": DIMS,
    "ranks": INTS,
    **dict.fromkeys(("config", "operand_orders", "result_orders", "aliases"), ("a tuple of tuples", _tuple_of(tuple))),
    "dtypes": ("a tuple of dtypes", lambda value: all(isinstance(x, np.dtype) for x in value)),
    "effect": ("a bool", lambda value: isinstance(value, bool)),
}


OPS: dict[str, OpDef] = {}


def register(rows: Iterable[OpDef]) -> None:
    """Add ops to the table. Raises CompileError for a name that is taken, and for an attribute that has no type."""
    for row in rows:
        if row.name in OPS:
            raise CompileError(f"there is an op {row.name} already")
        for name in row.attrs:
            if name not in ATTRIBUTES:
                raise CompileError(f"op {row.name}: nothing says what its attribute {name} is; add it to ATTRIBUTES")
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
    for name in row.attrs:
        text, fits = ATTRIBUTES[name]
        if not fits(op.attrs[name]):
            broken(op, f"attribute {name} = {op.attrs[name]!r} is not {text}")
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
