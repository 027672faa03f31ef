"""Elementwise ops: one row each, with a formula over arrays. Ops that compute shapes also have a formula for sizes."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hlo_disc import mlir
from hlo_disc.dynamic_hlo.ir.dtypes import computed, dtype_class, element_type
from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Value
from hlo_disc.dynamic_hlo.ops.expr import where
from hlo_disc.dynamic_hlo.ops.table import DIRECTIONS
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim, dim_product
from hlo_disc.import_.formulas.arithmetic import floor_quotient, floor_remainder
from hlo_disc.import_.handlers.arrays import Array, array, filled, together
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.elements import ARITHMETIC, Element, Elements, of_numbers
from hlo_disc.import_.sizes.shapes import Bundle, Operand, Token
from hlo_disc.import_.tensorflow.folding import Fold, by_element, folding
from hlo_disc.import_.tensorflow.shapes import result_dtype
from hlo_disc.mlir import ir

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node

Formula = Callable[..., Array]


def formula(function: Formula) -> Handler:
    """Make a handler of an op that is a formula over its operands."""

    def handler(r: Reader, op: Node, operands: list[Operand]) -> Result:
        return function(*(array(r, x) for x in operands)).value

    return handler


def plain(name: str) -> Formula:
    return lambda *xs: xs[0].op(name, *xs[1:])


def compared(direction: str) -> Formula:
    return lambda x, y: x.op("compare", y, direction=direction)


def widely(function: Formula) -> Formula:
    """Compute a formula of small floats in f32."""

    def apply(*xs: Array) -> Array:
        xs = tuple(together(xs))
        return function(*(x.cast(computed(x.dtype)) for x in xs)).cast(xs[0].dtype)

    return apply


def chlo(name: str) -> Formula:
    """Apply an op that CHLO decomposes into a function of scalars to every element."""
    return widely(functools.partial(_applied, name))


@functools.lru_cache(64)
def _scalar_graph(name: str, element: str, count: int) -> Graph:
    """Return the DHLO graph of a CHLO op on scalars."""
    from hlo_disc.import_.stablehlo.module import read_module

    scalars = ", ".join([f"tensor<{element}>"] * count)
    arguments = ", ".join(f"%{i}: tensor<{element}>" for i in range(count))
    operands = ", ".join(f"%{i}" for i in range(count))
    body = f'%r = "chlo.{name}"({operands}) : ({scalars}) -> tensor<{element}> return %r : tensor<{element}>'
    text = f"func.func @main({arguments}) -> tensor<{element}> {{ {body} }}"
    return read_module(ir.Module.parse(text, context=mlir.context()))


def _applied(name: str, *xs: Array) -> Array:
    graph = _scalar_graph(name, element_type(xs[0].dtype), len(xs))
    r, shape = xs[0].r, xs[0].shape
    made: dict[Value, Value] = dict(zip(graph.inputs, (x.value for x in xs), strict=True))

    def whole(op: Op) -> Value:
        operands = [made[x] for x in op.operands]
        if op.name in ("reshape", "broadcast"):
            return operands[0]
        found = r.emit(op.name, operands, **op.attrs)
        return found if found.rank or not shape else r.emit("broadcast", (found,), shape=shape, dims=())

    for op in graph.ops:
        made[op.result] = whole(op)
    return Array(r, made[graph.outputs[0]])


# ----------------------------------------------------------------------------------------------------------- formulas


def _floor_quotient(x: Array, y: Array) -> Array:
    return (x / y).op("floor") if dtype_class(x.dtype) == "float" else floor_quotient(x, y)


def no_nan(function: Formula) -> Formula:
    """Apply a division, with 0 where the second operand is 0."""

    def apply(x: Array, y: Array) -> Array:
        x, y = together([x, y])
        zero = y == 0
        return where(zero, 0 * y.like(0), function(x, where(zero, 1, y)))

    return apply


def xlog(function: Formula) -> Formula:
    """Multiply x by a function of y; 0 where x is 0."""

    def apply(x: Array, y: Array) -> Array:
        x, y = together([x, y])
        return where(x == 0, 0, x * function(y))

    return apply


SELU_SCALE = 1.0507009873554805
SELU_LEAST = SELU_SCALE * 1.6732632423543772


def on_cuts(name: str, part: str, reflected: Callable[[Array], Array]) -> Formula:
    """Wrap an inverse function: on the cuts of complex numbers the sign of a part that is 0 selects the side.

    CHLO takes -0 for 0 there. reflected: of the value beyond the cut that on this side.
    """

    def apply(x: Array) -> Array:
        made = chlo(name)(x)
        if x.dtype.kind != "c":
            return made
        side = x.emit(part)
        bits = np.dtype(f"i{side.dtype.itemsize}")
        is_negative = side.emit("bitcast_convert", dtype=bits) == np.iinfo(bits).min
        return where(is_negative, reflected(made), made)

    return apply


def _leaky(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Scale numbers, or their gradients, where the last operand is not positive."""
    xs = [array(r, o) for o in operands]
    return where(xs[-1] > 0, xs[0], xs[0] * op.attributes.get("alpha", 0.2)).value


def sign(x: Array) -> Array:
    return where(x > 0, 1, where(x == 0, x, 0)) if x.dtype.kind == "u" else x.op("sign")


def approximately(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, y = (array(r, o) for o in operands)
    tolerance: float = op.attributes.get("tolerance", 1e-5)
    return (abs(x - y) < tolerance).value


def _cast(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, dtype = array(r, operands[0]), result_dtype(op)
    if dtype == np.bool_ and x.dtype != np.bool_:
        return (x != 0).value
    return x.cast(dtype).value


def _cast_element(r: Reader, op: Node, x: np.ndarray) -> np.ndarray | None:
    truth = op.results[0].type.dtype == np.bool_

    def one(s: Elements, a: Element) -> Element:
        if isinstance(a, Dim):
            return s.compare("!=", a, ZERO) if truth else a
        return a if truth else s.number(a)

    return by_element(one)(r, op, x)


def _select(r: Reader, op: Node, operands: list[Operand]) -> Result:
    condition, yes, no = (array(r, x) for x in operands)
    if op.name == "tf.Select":  # which stretches no size
        r.same_shape([yes.value, no.value])
        if condition.rank == 1 and yes.rank > 1:  # it says which rows
            r.equal(condition.shape[0], yes.shape[0], "the conditions and the rows")
            condition = condition.broadcast(yes.shape, (0,))
        elif condition.rank:
            r.same_shape([condition.value, yes.value])
    return where(condition, yes, no).value


def _select_elements(r: Reader, op: Node, condition: np.ndarray, *sides: np.ndarray) -> np.ndarray | None:
    """Select between sizes; if the condition selects rows, they are not sizes."""
    shapes = {x.shape for x in sides}
    alike = len(shapes) == 1 and (not condition.ndim or condition.shape in shapes)
    return by_element(Elements.select)(r, op, condition, *sides) if alike else None


def _bitcast(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, dtype = r.data(operands[0]), result_dtype(op)
    if x.dtype.itemsize != dtype.itemsize:
        r.unsupported("only between types of the same size")
    return r.emit("bitcast_convert", (x,), dtype=dtype)


def _truth_of(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Test whether a scalar is not 0, or whether a tensor has any elements."""
    x = array(r, operands[0])
    if not x.rank:
        return (x if x.dtype == np.bool_ else x != 0).value
    return (filled(r, dim_product(x.shape), np.int64) != 0).value


def _like(number: int) -> Handler:
    def handler(r: Reader, op: Node, operands: list[Operand]) -> Result:
        if isinstance(operands[0], Bundle):
            return operands[0]
        if isinstance(operands[0], Token):  # an optional of a branch
            r.unsupported("second derivatives of branches that keep tensors for the first")
        x = r.data(operands[0])
        return filled(r, number, x.dtype, x.shape).value

    return handler


def _all_of(name: str) -> Handler:
    """Sum any number of operands. A list into which nothing was put is zeros."""

    def handler(r: Reader, op: Node, operands: list[Operand]) -> Result:
        known = [x for x in operands if not isinstance(x, Bundle)]
        if not known:
            return operands[0]
        first, *rest = (array(r, x) for x in known)
        r.same_shape([x.value for x in (first, *rest)])
        for x in rest:
            first = first.op(name, x)
        return first.value

    return handler


# Names of ops, and what they are of DHLO's.
_PLAIN = {
    "Abs": "abs", "AddV2": "add", "Atan2": "atan2", "BitwiseAnd": "and", "BitwiseOr": "or", "BitwiseXor": "xor",
    "Ceil": "ceil", "Complex": "complex", "Cos": "cosine", "Erf": "erf", "Erfc": "erfc", "Exp": "exponential",
    "Expm1": "exponential_minus_one", "Floor": "floor", "Imag": "imag", "IsFinite": "is_finite",
    "LeftShift": "shift_left", "Log": "log", "Log1p": "log_plus_one", "LogicalAnd": "and", "LogicalNot": "not",
    "LogicalOr": "or", "Maximum": "maximum", "Minimum": "minimum", "Mod": "remainder", "Mul": "multiply",
    "Neg": "negate", "NextAfter": "next_after", "Pow": "power", "Real": "real", "RealDiv": "divide",
    "Rint": "round_nearest_even", "Round": "round_nearest_even", "Rsqrt": "rsqrt", "Sigmoid": "logistic",
    "Sin": "sine", "Sqrt": "sqrt", "Sub": "subtract", "Tan": "tan", "Tanh": "tanh", "TruncateDiv": "divide",
    "TruncateMod": "remainder", "Div": "divide", "Add": "add", "ComplexAbs": "abs",
}  # fmt: skip
_COMPARED = {
    "Equal": "EQ", "NotEqual": "NE", "Less": "LT", "LessEqual": "LE", "Greater": "GT", "GreaterEqual": "GE",
}  # fmt: skip
_CHLO = {
    "Atan": "atan", "Atanh": "atanh", "BesselI1e": "bessel_i1e", "Cosh": "cosh", "Digamma": "digamma",
    "Erfinv": "erf_inv", "Lgamma": "lgamma", "Polygamma": "polygamma", "Sinh": "sinh", "Zeta": "zeta",
}  # fmt: skip
_FORMULAS: dict[str, Formula] = {
    **{name: plain(op) for name, op in _PLAIN.items()},
    **{name: compared(direction) for name, direction in _COMPARED.items()},
    **{name: chlo(op) for name, op in _CHLO.items()},
    "Acos": on_cuts("acos", "imag", Array.conj),
    "Acosh": on_cuts("acosh", "imag", Array.conj),
    "Angle": lambda x: x.emit("imag").op("atan2", x.emit("real")),
    "Asin": on_cuts("asin", "imag", Array.conj),
    "Asinh": on_cuts("asinh", "real", lambda x: -x.conj()),
    "ClipByValue": lambda x, low, high: x.minimum(high).maximum(low),
    "Conj": Array.conj,
    "DivNoNan": no_nan(lambda x, y: x / y),
    "Elu": lambda x: where(x > 0, x, x.minimum(0).op("exponential_minus_one")),
    "EluGrad": lambda dy, y: where(y < 0, dy * (y + 1), dy),
    "FloorDiv": _floor_quotient,
    "FloorMod": floor_remainder,
    "Inv": lambda x: 1 / x,
    "InvGrad": lambda y, dy: -dy * y * y,
    "Invert": operator.invert,
    "IsInf": lambda x: abs(x) == np.inf,
    "IsNan": lambda x: x != x,
    "L2Loss": lambda x: (x * x).sum(range(x.rank)) / 2,
    "MulNoNan": lambda x, y: where(y == 0, 0, x * y),
    "Ndtri": lambda x: chlo("erf_inv")(2 * x - 1) * math.sqrt(2),
    "PopulationCount": lambda x: x.op("popcnt").cast(np.uint8),
    "Reciprocal": lambda x: 1 / x,
    "ReciprocalGrad": lambda y, dy: -dy * y * y,
    "Relu": lambda x: x.maximum(0),
    "Relu6": lambda x: x.maximum(0).minimum(6),
    "Relu6Grad": lambda dy, x: where((x > 0) & (x < 6), dy, 0),
    "ReluGrad": lambda dy, x: where(x > 0, dy, 0),
    "RightShift": operator.rshift,
    "RsqrtGrad": lambda y, dy: dy * y * y * y * -0.5,
    "Selu": lambda x: where(x > 0, x * SELU_SCALE, x.minimum(0).op("exponential_minus_one") * SELU_LEAST),
    "SeluGrad": lambda dy, y: where(y < 0, dy * (y + SELU_LEAST), dy * SELU_SCALE),
    "SigmoidGrad": lambda y, dy: dy * y * (1 - y),
    "Sign": sign,
    "Softplus": lambda x: x.maximum(0) + (-abs(x)).exp().op("log_plus_one"),
    "SoftplusGrad": lambda dy, x: dy * x.op("logistic"),
    "Softsign": lambda x: x / (abs(x) + 1),
    "SoftsignGrad": lambda dy, x: dy / ((abs(x) + 1) * (abs(x) + 1)),
    "SqrtGrad": lambda y, dy: dy * 0.5 / y,
    "Square": lambda x: x * x,
    "SquaredDifference": lambda x, y: (x - y) * (x - y).conj(),
    "TanhGrad": lambda y, dy: dy * (1 - y * y),
    "Xdivy": xlog(lambda y: 1 / y),
    "Xlog1py": xlog(lambda y: y.op("log_plus_one")),
    "Xlogy": xlog(lambda y: y.log()),
}


def _divided(operation: Callable[[Dim, Dim], Dim]) -> Fold:
    """Divide sizes, or take the remainder; None if the divisor may be 0."""

    def apply(s: Elements, a: Dim, b: Dim) -> Element | None:
        if b.is_const:
            return operation(a, b) if b.value else None
        return operation(a, s.maximum(b, Dim.const(1))) if s.nonnegative(b) else None

    return by_element(of_numbers(apply))


_ARITHMETIC = ("Abs", "Add", "AddV2", "Maximum", "Minimum", "Mul", "Neg", "Sub", "TruncateDiv", "TruncateMod")
_FOLDS = {
    **{name: by_element(of_numbers(ARITHMETIC[_PLAIN[name]])) for name in _ARITHMETIC},
    "Sign": by_element(of_numbers(Elements.sign)),
    "Square": by_element(of_numbers(lambda s, a: a * a)),
    "FloorDiv": _divided(operator.floordiv),
    "FloorMod": _divided(operator.mod),
    "LogicalAnd": by_element(lambda s, a, b: s.all((a, b))),
    "LogicalOr": by_element(lambda s, a, b: s.any((a, b))),
    "LogicalNot": by_element(Elements.negate),
    **{
        name: by_element(functools.partial(lambda relation, s, a, b: s.compare(relation, a, b), DIRECTIONS[d]))
        for name, d in _COMPARED.items()
    },
}

HANDLERS: dict[str, Handler] = {
    **{name: formula(function) for name, function in _FORMULAS.items()},
    **{name: folding(fold, formula(_FORMULAS[name])) for name, fold in _FOLDS.items()},
    "AccumulateNV2": _all_of("add"),
    "AddN": _all_of("add"),
    "ApproximateEqual": approximately,
    "Bitcast": _bitcast,
    "Cast": folding(_cast_element, _cast),
    "LeakyRelu": _leaky,
    "LeakyReluGrad": _leaky,
    "OnesLike": folding(lambda r, op, x: np.full(x.shape, Dim.const(1), object), _like(1)),
    "Select": folding(_select_elements, _select),
    "SelectV2": folding(by_element(Elements.select), _select),
    "ToBool": _truth_of,
    "ZerosLike": folding(lambda r, op, x: np.full(x.shape, Dim.const(0), object), _like(0)),
}
