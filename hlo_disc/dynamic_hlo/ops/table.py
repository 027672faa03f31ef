"""The op table: one row an op, with its kind, attributes, shape inference and numpy reference.

Kinds drive fusion and emission: source, elementwise, view, gather, assemble, reduce, dot, control. A new elementwise
op is one row here and one in each emitter's table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Op, Region
from hlo_disc.dynamic_hlo.ops import inference as rule
from hlo_disc.dynamic_hlo.ops import inference_control as rule_control
from hlo_disc.dynamic_hlo.ops import inference_convolution as rule_conv
from hlo_disc.dynamic_hlo.ops import inference_indexing as rule_index
from hlo_disc.dynamic_hlo.ops import inference_library as rule_library
from hlo_disc.dynamic_hlo.ops import inference_reduce as rule_reduce
from hlo_disc.dynamic_hlo.ops import semantics as sem
from hlo_disc.dynamic_hlo.ops import semantics_control as sem_control
from hlo_disc.dynamic_hlo.ops import semantics_convolution as sem_conv
from hlo_disc.dynamic_hlo.ops import semantics_elementwise as element
from hlo_disc.dynamic_hlo.ops import semantics_indexing as sem_index
from hlo_disc.dynamic_hlo.ops import semantics_library as sem_library
from hlo_disc.dynamic_hlo.ops import semantics_reduce as sem_reduce
from hlo_disc.dynamic_hlo.ops.inference_library import TRANSFORMS
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import CompileError

DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")
REDUCERS = ("add", "mul", "max", "min", "and", "or", "xor")


@dataclass(frozen=True)
class OpDef:
    """One op.

    operands: their number, None for any.
    infer: result types of an op under given facts; see inference.py for what it raises.
    reference: `reference(*arrays, **attrs)`, every Dim in the attributes evaluated, every Region a function
        `(*arrays) -> list of arrays`; one array, or a tuple of one a result.
    attrs: the names that an op's attributes have, exactly.
    dialect: where StableHLO's tools find the op, for those that read printed graphs; "" for ops that have no text form.
    expensive: it costs about ten additions or more, and is worth keeping rather than computing twice.
    """

    name: str
    kind: str
    operands: int | None
    infer: rule.Rule
    reference: Callable[..., Any]
    attrs: tuple[str, ...] = ()
    dialect: str = "stablehlo"
    expensive: bool = False


def _tuple_of(kind: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is tuple and {*map(type, value)} <= {kind}


def _is_int(value: Any) -> bool:
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
    **dict.fromkeys(("relation", "message", "target"), TEXT),
    "args": DIMS,
    "dtype": ("a numpy.dtype", lambda value: isinstance(value, np.dtype)),
    "dim": ("an int", _is_int),
    **dict.fromkeys(("index_vector_dim", "exponent_bits", "mantissa_bits"), ("an int", _is_int)),
    "direction": (f"one of {', '.join(DIRECTIONS)}", DIRECTIONS.__contains__),
    "kind": (f"one of {', '.join(REDUCERS)}", REDUCERS.__contains__),
    **dict.fromkeys(("shape", "start", "limit", "sizes", "slice_sizes", "low", "high", "window"), DIMS),
    **dict.fromkeys(("dims", "perm", "stride", "interior", "offset_dims", "collapsed_slice_dims"), INTS),
    **dict.fromkeys(("operand_batching_dims", "start_indices_batching_dims", "start_index_map"), INTS),
    **dict.fromkeys(("lhs_batch", "rhs_batch", "lhs_contract", "rhs_contract"), INTS),
    **dict.fromkeys(("lhs_spec", "rhs_spec", "out_spec", "reversal"), INTS),
    **dict.fromkeys(("strides", "base_dilations", "window_dilations"), INTS),
    **dict.fromkeys(("feature_groups", "batch_groups", "count"), ("an int", _is_int)),
    **dict.fromkeys(("unique", "stable", "reverse"), ("a bool", lambda value: isinstance(value, bool))),
    "transform": (f"one of {', '.join(TRANSFORMS)}", TRANSFORMS.__contains__),
    "length": DIMS,
    "ranks": INTS,
    **dict.fromkeys(("config", "operand_orders", "result_orders", "aliases"), ("a tuple of tuples", _tuple_of(tuple))),
    "dtypes": ("a tuple of dtypes", lambda value: all(isinstance(x, np.dtype) for x in value)),
    "effect": ("a bool", lambda value: isinstance(value, bool)),
}

_PRECISION = ("exponent_bits", "mantissa_bits")
_NUMBERS = (
    "offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map",
    "index_vector_dim",
)  # fmt: skip
_WINDOW = ("window", "strides", "base_dilations", "window_dilations", "low", "high")
_DOT = ("lhs_batch", "rhs_batch", "lhs_contract", "rhs_contract", "dtype")
_CONVOLUTION = (
    "lhs_spec", "rhs_spec", "out_spec", "strides", "low", "high", "base_dilations", "window_dilations", "reversal",
    "feature_groups", "batch_groups", "dtype",
)  # fmt: skip
_CUSTOM_CALL = (
    "target", "config", "sizes", "ranks", "dtypes", "operand_orders", "result_orders", "aliases", "effect",
)  # fmt: skip

_FLOAT = rule.elementwise("float")
_ANALYTIC = rule.elementwise("float", "complex")
_INT = rule.elementwise("int", "uint")
_SIGNS = rule.elementwise("int", "float", "complex")
_NUMBER = rule.elementwise("int", "uint", "float", "complex")
_REAL = rule.elementwise("int", "uint", "float")
_LOGICAL = rule.elementwise("bool", "int", "uint")
# On booleans, add and maximum are "or", multiply and minimum are "and".
_ANY = rule.elementwise("bool", "int", "uint", "float", "complex")
_ORDERED = rule.elementwise("bool", "int", "uint", "float")


def _elementwise(name: str, operands: int, infer: rule.Rule, function: Callable[..., Any], **facts: Any) -> OpDef:
    return OpDef(name, "elementwise", operands, infer, element.rounded(function), **facts)


def _function(name: str, operands: int, infer: rule.Rule, function: Callable[..., Any], **facts: Any) -> OpDef:
    """A transcendental function, or what else takes its time."""
    return _elementwise(name, operands, infer, function, expensive=True, **facts)


def _bitwise(name: str, operands: int, function: Callable[..., Any]) -> OpDef:
    return OpDef(name, "elementwise", operands, _INT, element.bitwise(function))


_ROWS = (
    OpDef("constant", "source", 0, rule.constant, sem.constant, ("value",)),
    OpDef("iota", "source", 0, rule.iota, sem.iota, ("shape", "dim", "dtype")),
    OpDef("dim", "source", 0, rule.dim, sem.dim, ("expr", "dtype")),
    OpDef("abs", "elementwise", 1, rule.magnitude, element.magnitude),
    _elementwise("negate", 1, _NUMBER, np.negative),
    _elementwise("sign", 1, _SIGNS, element.sign),
    _function("exponential", 1, _ANALYTIC, np.exp),
    _function("exponential_minus_one", 1, _ANALYTIC, np.expm1),
    _function("log", 1, _ANALYTIC, np.log),
    _function("log_plus_one", 1, _ANALYTIC, element.log_plus_one),
    _function("logistic", 1, _ANALYTIC, element.logistic),
    _function("tanh", 1, _ANALYTIC, np.tanh),
    _elementwise("sqrt", 1, _ANALYTIC, np.sqrt),
    _elementwise("rsqrt", 1, _ANALYTIC, element.rsqrt),
    _function("cbrt", 1, _ANALYTIC, element.cbrt),
    _function("sine", 1, _ANALYTIC, np.sin),
    _function("cosine", 1, _ANALYTIC, np.cos),
    _function("tan", 1, _ANALYTIC, np.tan),
    _elementwise("floor", 1, _FLOAT, np.floor),
    _elementwise("ceil", 1, _FLOAT, np.ceil),
    _elementwise("round_nearest_afz", 1, _FLOAT, element.round_nearest_afz),
    _elementwise("round_nearest_even", 1, _FLOAT, np.rint),
    _elementwise("not", 1, _LOGICAL, element.logical_not),
    OpDef("is_finite", "elementwise", 1, rule.predicate("float"), element.is_finite),
    _function("erf", 1, _FLOAT, element.erf, dialect="chlo"),
    _function("erfc", 1, _FLOAT, element.erfc, dialect="chlo"),
    OpDef("reduce_precision", "elementwise", 1, rule.reduce_precision, element.reduce_precision, _PRECISION),
    OpDef("real", "elementwise", 1, rule.real_part, np.real),
    OpDef("imag", "elementwise", 1, rule.real_part, np.imag),
    OpDef("complex", "elementwise", 2, rule.complex_, element.complex_),
    _bitwise("popcnt", 1, element.popcnt),
    _bitwise("count_leading_zeros", 1, element.count_leading_zeros),
    OpDef("convert", "elementwise", 1, rule.convert, element.convert, ("dtype",)),
    OpDef("bitcast_convert", "elementwise", 1, rule.bitcast_convert, element.bitcast_convert, ("dtype",)),
    _elementwise("add", 2, _ANY, np.add),
    _elementwise("subtract", 2, _NUMBER, np.subtract),
    _elementwise("multiply", 2, _ANY, np.multiply),
    _elementwise("divide", 2, _NUMBER, element.divide),
    _elementwise("remainder", 2, _REAL, element.remainder),
    _elementwise("maximum", 2, _ANY, element.maximum),
    _elementwise("minimum", 2, _ANY, element.minimum),
    _function("power", 2, _NUMBER, element.power),
    _function("atan2", 2, _ANALYTIC, element.atan2),
    OpDef("next_after", "elementwise", 2, _FLOAT, np.nextafter, dialect="chlo"),
    _elementwise("and", 2, _LOGICAL, np.bitwise_and),
    _elementwise("or", 2, _LOGICAL, np.bitwise_or),
    _elementwise("xor", 2, _LOGICAL, np.bitwise_xor),
    _bitwise("shift_left", 2, element.shift_left),
    _bitwise("shift_right_logical", 2, element.shift_right_logical),
    _bitwise("shift_right_arithmetic", 2, element.shift_right_arithmetic),
    OpDef("compare", "elementwise", 2, rule.compare, element.compare, ("direction",)),
    OpDef("select", "elementwise", 3, rule.select, element.select),
    _elementwise("clamp", 3, _ORDERED, element.clamp),
    OpDef("broadcast", "view", 1, rule.broadcast, sem.broadcast, ("shape", "dims")),
    OpDef("reshape", "view", 1, rule.reshape, sem.reshape, ("shape",)),
    OpDef("transpose", "view", 1, rule.transpose, sem.transpose, ("perm",)),
    OpDef("slice", "view", 1, rule.slice_, sem.slice_, ("start", "limit", "stride")),
    OpDef("reverse", "view", 1, rule.reverse, sem.reverse, ("dims",)),
    OpDef("gather", "gather", 2, rule_index.gather, sem_index.gather, (*_NUMBERS, "slice_sizes")),
    OpDef("dynamic_slice", "gather", None, rule_index.dynamic_slice, sem_index.dynamic_slice, ("sizes",)),
    OpDef("scatter", "scatter", None, rule_index.scatter, sem_index.scatter, (*_NUMBERS, "unique", "count", "body")),
    OpDef("sort", "sort", None, rule_index.sort, sem_index.sort, ("dim", "stable", "count", "body")),
    OpDef("concatenate", "assemble", None, rule.concatenate, sem.concatenate, ("dim",)),
    OpDef("pad", "assemble", 2, rule.pad, sem.pad, ("low", "high", "interior")),
    OpDef("dynamic_update_slice", "assemble", None, rule_index.dynamic_update_slice, sem_index.dynamic_update_slice),
    OpDef("reduce", "reduce", 2, rule.reduce, sem.reduce, ("dims", "kind")),
    OpDef("reduce_with", "reduce", None, rule_reduce.reduce_with, sem_reduce.reduce_with, ("dims", "body")),
    OpDef(
        "cumulative",
        "cumulative",
        None,
        rule_reduce.cumulative,
        sem_reduce.cumulative,
        ("dim", "reverse", "body"),
        expensive=True,
    ),
    OpDef(
        "reduce_window",
        "window",
        None,
        rule_reduce.reduce_window,
        sem_reduce.reduce_window,
        (*_WINDOW, "body"),
        expensive=True,
    ),
    OpDef(
        "select_and_scatter",
        "window",
        None,
        rule_reduce.select_and_scatter,
        sem_reduce.select_and_scatter,
        ("window", "strides", "low", "high", "select", "body"),
    ),
    OpDef("dot_general", "dot", 2, rule.dot_general, sem.dot_general, _DOT),
    OpDef("while", "control", None, rule_control.while_, sem_control.while_, ("cond", "body", "carried")),
    OpDef("case", "control", None, rule_control.case, sem_control.case, ("branches",)),
    OpDef("check", "control", 0, rule_control.check, sem_control.check, ("lhs", "relation", "rhs", "message", "args")),
    OpDef("convolution", "dot", 2, rule_conv.convolution, sem_conv.convolution, _CONVOLUTION),
    OpDef("custom_call", "call", None, rule_library.custom_call, sem_library.custom_call, _CUSTOM_CALL),
    OpDef("fft", "call", 1, rule_library.fft, sem_library.fft, ("transform", "length")),
)

OPS: dict[str, OpDef] = {}


def register(rows: Iterable[OpDef], attributes: Mapping[str, AttributeType] | None = None) -> None:
    """Add ops to the table. attributes: the types of those that no op had before, by their names.

    Raises CompileError for a name that is taken, and for an attribute that has no type or two.
    """
    for name, type_ in (attributes or {}).items():
        if ATTRIBUTES.setdefault(name, type_) is not type_:
            raise CompileError(f"the attribute {name} is {ATTRIBUTES[name][0]} already, and cannot be {type_[0]}")
    for row in rows:
        if row.name in OPS:
            raise CompileError(f"there is an op {row.name} already")
        for name in row.attrs:
            if name not in ATTRIBUTES:
                raise CompileError(f"op {row.name}: nothing says what its attribute {name} is")
        OPS[row.name] = row


register(_ROWS)


def definition(op: Op) -> OpDef:
    """The op's row. Raises CompileError when there is none, or when operands or attributes are not what it says."""
    row = OPS.get(op.name)
    if row is None:
        raise CompileError(f"{rule.describe(op)}: there is no such op")
    if row.operands is not None and len(op.operands) != row.operands:
        rule.broken(op, f"{len(op.operands)} operands, expected {row.operands}")
    if len(op.attrs) != len(row.attrs) or any(name not in op.attrs for name in row.attrs):
        rule.broken(op, f"attributes {sorted(op.attrs)}, expected {sorted(row.attrs)}")
    for name in row.attrs:
        text, fits = ATTRIBUTES[name]
        if not fits(op.attrs[name]):
            rule.broken(op, f"attribute {name} = {op.attrs[name]!r} is not {text}")
    return row


def infer(op: Op, facts: ShapeFacts) -> rule.Types:
    """The op's result types. Raises ShapeError when sizes can never agree, CompileError when the op is malformed."""
    return definition(op).infer(op, facts)


def kind(op: Op) -> str:
    """The kind in the op's row; "alias" of a bitcast that only says that memory has another type."""
    if op.name == "bitcast_convert" and op.operands[0].rank != op.result.rank:
        return "alias"
    return OPS[op.name].kind
