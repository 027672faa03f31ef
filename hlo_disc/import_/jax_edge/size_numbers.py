"""Numbers that follow from sizes, as Python has them: integers of any length, and floats of 64 bits.

JAX makes an i32 of a symbolic size that meets anything but a size, so `n * (n - 1) / 2` would be arithmetic of 32 bits.
Here each such number is an operation without operands that says how to compute it from the sizes. To JAX it is a weakly
typed scalar, like a Python number. Its meaning is recorded. So arithmetic with a further number is one operation again,
computed in 64 bits, and a conversion to another type rounds once. If a type does not hold the number and JAX would
raise an OverflowError, the program has a guard.
"""

from __future__ import annotations

import functools
import operator
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import numpy as np
from jax._src import core, dtypes
from jax._src.array import ArrayImpl
from jax._src.export import shape_poly
from jax._src.interpreters import mlir
from jax._src.lax import lax
from jax._src.numpy import array_constructors, index_tricks, indexing, lax_numpy, ufuncs, util

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.shapes import is_long
from hlo_disc.frozen import frozen
from hlo_disc.import_.handlers.calls import SIZE
from hlo_disc.mlir import MlirValue, elements, ir, stablehlo

if TYPE_CHECKING:
    from jax._src.export.shape_poly import _DimExpr as SymbolicSize
    from jax.export import SymbolicScope
    from jax.typing import ArrayLike, DTypeLike


# Where JAX keeps it differs from version to version.
prng: Any = sys.modules[jax.random.split.__module__].prng
_Size = shape_poly._DimExpr
# The scope of a size, past what `size_questions` puts in the place of all other look-ups.
scope_of: Callable[[SymbolicSize], SymbolicScope] = _Size._scope.__get__
_thread = threading.local()


@frozen
class Number:
    """A float: the result of a Python operator on numbers and on sizes, which are JAX's, or Dims in a program."""

    name: str
    args: tuple[Exact | Dim, ...]


Size: TypeAlias = "int | SymbolicSize"
Exact: TypeAlias = "int | float | np.float64 | Number | SymbolicSize"


class _Noted:
    """The numbers that a trace's scalars stand for. scope: that of JAX's sizes. known: by identity, with the scalar
    itself.

    dims: JAX's sizes as Dims, by identity too, since the same few are needed again and again.
    """

    def __init__(self, scope: SymbolicScope | None):
        self.scope = scope
        self.known: dict[int, tuple[jax.Array, Exact]] = {}
        self.dims: dict[int, tuple[SymbolicSize, Dim]] = {}


@contextmanager
def exact(scope: SymbolicScope | None) -> Iterator[None]:
    """Let this thread compute exactly with the sizes of one of JAX's scopes."""
    install()
    before = getattr(_thread, "noted", None)
    _thread.noted = _Noted(scope)
    try:
        yield
    finally:
        _thread.noted = before


def is_traced(size: object) -> bool:
    """Whether it is a symbolic size of the trace of this thread."""
    noted = getattr(_thread, "noted", None)
    return noted is not None and isinstance(size, _Size) and scope_of(size) is noted.scope


def exact_of(thing: object) -> Exact | None:
    """Return the number that a size or a traced scalar stands for; None if it depends on more than sizes."""
    if isinstance(thing, core.Tracer):
        noted = getattr(_thread, "noted", None)
        found = noted.known.get(id(thing)) if noted is not None else None
        return None if found is None else found[1]
    return thing if is_traced(thing) else None


def scalar(number: Exact, dtype: DTypeLike, weak_type: bool = False, fits: str = "made") -> jax.Array:
    """Return the number as a traced scalar.

    fits: where calls fail at which an integer type does not hold it: it is "made", or it is "used" by an operation; ""
        where it wraps.
    """
    return number_p.bind(number=_of_dims(number), dtype=np.dtype(dtype), weak_type=weak_type, fits=fits)


def size_op(ctx: mlir.LoweringRuleContext, size: Dim, type_: ir.Type, **attributes: ir.Attribute) -> MlirValue:
    """Return a size in a program: an argument, or one op that names it. JAX recomputes the sizes of each shape."""
    text, names = str(size), ctx.module_context.shape_poly_state.dim_vars
    if text in names and not attributes and (given := ctx.dim_var_values[names.index(text)]).type == type_:
        return given
    named = {"dims": ir.StringAttr.get(", ".join(names)), "size": ir.StringAttr.get(text), **attributes}
    call = mlir.custom_call(SIZE, result_types=[type_], operands=ctx.dim_var_values, extra_attributes=named)
    return call.results[0]


def dim_of(size: Size) -> Dim:
    """Return JAX's size as a Dim."""
    if not isinstance(size, _Size):
        return Dim.const(operator.index(size))
    noted = getattr(_thread, "noted", None)
    found = noted.dims.get(id(size)) if noted is not None else None
    if found is None:
        found = size, Dim.parse(str(size))  # written alike
        if noted is not None:
            noted.dims[id(size)] = found
    return found[1]


def _of_dims(number: Exact) -> Exact:
    if isinstance(number, _Size):
        return dim_of(number)
    return Number(number.name, tuple(map(_of_dims, number.args))) if isinstance(number, Number) else number


def _noted(number: Exact, fits: str = "used") -> Exact | jax.Array:
    """Return the number as JAX's form of a Python number, and note what it stands for."""
    if not isinstance(number, _Size | Number):
        return number
    dtype = core.dim_value_dtype() if isinstance(number, _Size) else dtypes.default_float_dtype()
    made = scalar(number, dtype, not _is_numpys(number), fits)
    _thread.noted.known[id(made)] = made, number
    return made


def _is_numpys(number: Exact) -> bool:
    """Whether a part of it is numpy's, so that JAX sees a type."""
    return isinstance(number, np.float64) or (isinstance(number, Number) and any(map(_is_numpys, number.args)))


# Arithmetic

_TYPES = (int, bool, float, np.float64)
_WIDE = ("int32", "uint32", "int64", "uint64")  # what shapes are computed with: they leave sizes sizes
_INTEGERS = ("add", "sub", "mul", "floordiv", "mod")
_FLOATS = (*_INTEGERS, "truediv", "pow")


def _computed(name: str, *args: object) -> Exact | jax.Array | None:
    """Apply Python's operator to numbers of which one is exact; None if the result is no exact number."""
    numbers = [x if type(x) in _TYPES else exact_of(x) for x in args]
    if None in map(_kind, numbers):
        return None
    if all(_kind(x) is int for x in numbers):
        exponent = numbers[-1] if name == "pow" else 0
        if not isinstance(exponent, int):
            return None
        if name != "truediv" and exponent >= 0:
            scalars = any(isinstance(x, core.Tracer) for x in args)
            return _noted(getattr(operator, name)(*numbers)) if scalars else None  # of sizes JAX makes a size
    return _noted(Number(name, tuple(numbers)))


def _typed(name: str, *args: object) -> jax.Array | Exact | None:
    """Apply numpy's operator to a number and an array or scalar, or Python's to a number and a complex one.

    The result is None for other operands. The number takes numpy's type, which has to hold it: where JAX has that type
    with fewer bits, it wraps.
    """
    number, other = (exact_of(args[0]), args[1]) if exact_of(args[0]) is not None else (exact_of(args[1]), args[0])
    kind = _kind(number)
    if kind is None or not isinstance(other, complex | np.ndarray | np.generic):
        return None
    theirs = np.asarray(other).dtype
    if theirs.kind not in "iufc":
        return None
    wanted = np.result_type(other, kind(0))
    if name == "truediv" and wanted.kind in "iu":
        wanted = np.dtype(np.float64)
    if np.ndim(other) == 0 and wanted == np.float64:
        return _computed(name, *(np.asarray(x, np.float64)[()] if x is other else x for x in args))
    if np.ndim(other) == 0 and theirs in _WIDE:
        return None
    dtype = dtypes.canonicalize_dtype(wanted)
    typed = scalar(number, dtype, isinstance(other, complex), "made" if dtype == wanted else "")
    return getattr(operator, name)(*(x if x is other else typed for x in args))


def _kind(number: object) -> type | None:
    if isinstance(number, _Size):
        return int
    return float if isinstance(number, Number | float) else int if isinstance(number, int) else None


def _of_numbers(name: str, operation: Callable[..., object], reflected: bool = False) -> Callable[..., object]:
    def arithmetic(self: object, *others: object) -> object:
        made = None
        if exact_of(self) is not None:
            args = (*others, self) if reflected else (self, *others)
            made = _computed(name, *args)
            if made is None and len(args) == 2:
                made = _typed(name, *args)
        return operation(self, *others) if made is None else made

    return arithmetic


# The operation

number_p = core.Primitive("size_number")


def _lowered(
    ctx: mlir.LoweringRuleContext, *, number: Dim | Exact, dtype: np.dtype, weak_type: bool, fits: str
) -> list[MlirValue]:
    type_ = mlir.aval_to_ir_type(ctx.module_context, ctx.avals_out[0])
    if isinstance(number, Dim) and fits and dtype.kind in "iu":
        return [size_op(ctx, number, type_, fits=ir.StringAttr.get(fits))]
    lowering = _Lowering(ctx)
    if isinstance(number, Dim) and not (dtype.kind not in "iub" and is_long(number)):
        return [stablehlo.convert(type_, lowering.integer(number))]
    return [stablehlo.convert(type_, lowering.real(number))]


class _Lowering:
    """Lowers numbers to ops of 64 bits."""

    def __init__(self, ctx: mlir.LoweringRuleContext):
        self.ctx = ctx
        self.f64 = ir.RankedTensorType.get((), ir.F64Type.get())
        self.i64 = ir.RankedTensorType.get((), ir.IntegerType.get_signless(64))

    def integer(self, size: Dim) -> MlirValue:
        within = any(atom.kind != "symbol" for monomial, _ in size.terms for atom in monomial)
        return size_op(self.ctx, size, self.i64, **({"fits": ir.StringAttr.get("used")} if within else {}))

    def constant(self, value: float) -> MlirValue:
        return stablehlo.constant(elements(np.array(value, np.float64), self.f64.element_type))

    def real(self, number: Dim | Exact) -> MlirValue:
        if isinstance(number, Number):
            return self._apply(number.name, *map(self.real, number.args))
        if not isinstance(number, Dim):
            return self.constant(float(number))
        if not is_long(number):
            return stablehlo.convert(self.f64, self.integer(number))
        total = self.constant(0.0)
        for monomial, coefficient in number.terms:
            term = self.constant(float(coefficient))
            for atom in monomial:
                term = stablehlo.multiply(term, self.real(atom.dim))
            total = stablehlo.add(total, term)
        return total

    def _apply(self, name: str, *args: MlirValue) -> MlirValue:
        if name not in ("floordiv", "mod"):
            return _OPS[name](*args)
        x, y = args
        zero = self.constant(0.0)
        rest = stablehlo.remainder(x, y)
        other_sign = _compare("LT", stablehlo.multiply(stablehlo.sign(rest), stablehlo.sign(y)), zero)
        rest = stablehlo.select(other_sign, stablehlo.add(rest, y), rest)
        if name == "mod":
            return stablehlo.select(_compare("NE", rest, zero), rest, stablehlo.multiply(zero, y))
        return stablehlo.round_nearest_even(stablehlo.divide(stablehlo.subtract(x, rest), y))


def _compare(direction: str, x: MlirValue, y: MlirValue) -> MlirValue:
    return stablehlo.compare(x, y, stablehlo.ComparisonDirectionAttr.get(direction))


_OPS: dict[str, Callable[..., MlirValue]] = {
    "add": lambda x, y: stablehlo.add(x, y),
    "sub": lambda x, y: stablehlo.subtract(x, y),
    "mul": lambda x, y: stablehlo.multiply(x, y),
    "truediv": lambda x, y: stablehlo.divide(x, y),
    "pow": lambda x, y: stablehlo.power(x, y),
    "neg": lambda x: stablehlo.negate(x),
}


# What stands in the place of functions of JAX's that take Python's numbers


class _Known(ModuleType):
    """A proxy of JAX's `core` for one module, in which a size that is a number is treated differently."""

    is_constant_dim = staticmethod(lambda d: is_traced(d) or core.is_constant_dim(d))

    def __getattr__(self, name: str) -> object:
        return getattr(core, name)


_convert, _of_type = lax._convert_element_type, lax._const
_make, _lift, _evaluate = array_constructors.array, lax.asarray, mlir.eval_dynamic_shape
_eye, _arange, _seed = lax_numpy._eye, lax_numpy._arange_dynamic, prng.random_seed


def _converted(
    operand: ArrayLike,
    new_dtype: DTypeLike | None = None,
    weak_type: bool = False,
    sharding: jax.sharding.Sharding | None = None,
    *rest: object,
    **options: object,
) -> jax.Array:
    number = exact_of(operand)
    if number is None or not isinstance(new_dtype, np.dtype) or new_dtype == dtypes.float0 or sharding is not None:
        return _convert(operand, new_dtype, weak_type, sharding, *rest, **options)
    return scalar(number, new_dtype, bool(weak_type), "")  # as of an int, which JAX lets wrap


def _const(example: ArrayLike, value: ArrayLike) -> ArrayLike:
    """Make a constant of the example's type. A size stays a size wherever integers stay Python's."""
    number = exact_of(value)
    if number is None:
        return _of_type(example, value)
    return value if type(example) is int else scalar(number, lax.dtype(example))


@functools.wraps(_make)
def _array(object: object, dtype: DTypeLike | None = None, *args: object, **options: object) -> jax.Array:
    number = exact_of(object)
    if number is not None:
        type_ = lax.dtype(object) if dtype is None else dtypes.canonicalize_dtype(dtype)
        object = scalar(number, type_, weak_type=dtype is None)
    return _make(object, dtype, *args, **options)


def _lifted(x: ArrayLike) -> jax.Array:
    number = exact_of(x)
    return _lift(x if number is None else scalar(number, lax.dtype(x), weak_type=True))


def _evaluated(ctx: mlir.LoweringRuleContext, shape: Sequence[Size]) -> tuple[int | MlirValue, ...]:
    """Return the sizes of a shape, each by one op."""
    if not all(isinstance(n, int) or is_traced(n) for n in shape):
        return _evaluate(ctx, shape)
    type_ = mlir.aval_to_ir_type(ctx.module_context, core.dim_value_aval())
    symbolic = dict.fromkeys(dim_of(n) for n in shape if not isinstance(n, int))
    values = {size: size_op(ctx, size, type_) for size in symbolic}
    return tuple(n if isinstance(n, int) else values[dim_of(n)] for n in shape)


@functools.wraps(_eye)
def _diagonal(N: Size, M: Size | None = None, k: Size = 0, *args: object, **options: object) -> jax.Array:
    if is_traced(k):
        k = lax._clip_int_to_valid_range(k, np.int32, "argument `k` of jax.numpy.eye")
    return _eye(N, M, k, *args, **options)


def _ranged(start: Size, stop: Size, step: Size, dtype: DTypeLike) -> jax.Array:
    """Return a range that starts at or ends with a size, which wraps as an int does in JAX."""
    if not is_traced(start):
        return _arange(start, stop, step, dtype)
    return lax.add(lax.convert_element_type(start, dtype), _arange(0, stop - start, step, dtype))


@functools.wraps(_seed)
def _seeded(seeds: ArrayLike, *args: object, **options: object) -> jax.Array:
    """Seed with the lowest bits of a size, as JAX does with those of an int."""
    if is_traced(seeds):
        seeds = scalar(seeds, dtypes.canonicalize_dtype(np.int64), fits="")
    return _seed(seeds, *args, **options)


def _powered(before: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Raise to an integer power; JAX multiplies, so the exponent has no type."""

    @functools.wraps(before)
    def operation(x: ArrayLike, y: ArrayLike, /, *rest: object) -> jax.Array:
        exponent = exact_of(y)
        if rest or _kind(exponent) is not int or exact_of(x) is not None:
            return before(x, y, *rest)
        return lax.integer_pow(*util.promote_dtypes_numeric(x), exponent)

    return operation


def _as_scalar(
    before: Callable[[SymbolicSize], jax.Array], fits: str = "used"
) -> Callable[[SymbolicSize], Exact | jax.Array]:
    return lambda self: _noted(self, fits) if is_traced(self) else before(self)


_power = _powered(ufuncs.power)
_REPLACEMENTS: tuple[tuple[object, str, object], ...] = (
    (mlir, "eval_dynamic_shape", _evaluated),
    (lax, "_convert_element_type", _converted),
    (lax, "_const", _const),
    (lax, "asarray", _lifted),
    *((module, "array", _array) for module in (array_constructors, index_tricks, lax_numpy, jax.numpy)),
    (lax_numpy, "_eye", _diagonal),
    (lax_numpy, "_arange_dynamic", _ranged),
    (prng, "random_seed", _seeded),
    (ufuncs, "power", _power),
    (jax.numpy, "power", _power),
    (indexing, "core", _Known(core.__name__)),
    (_Size, "__jax_array__", _as_scalar(_Size.__jax_array__)),
    (core, "dimension_as_value", _as_scalar(core.dimension_as_value)),  # the function has an int stay one
    (_Size, "dimension_as_value", _as_scalar(_Size.dimension_as_value, "made")),  # of an argument of a jitted function
)


@functools.cache
def install() -> None:
    """Replace the functions, and register the operation, once a process, before `size_questions` does."""
    number_p.def_abstract_eval(lambda *, dtype, weak_type, **_: core.ShapedArray((), dtype, weak_type=weak_type))
    mlir.register_lowering(number_p, _lowered)
    for owner, name, replacement in _REPLACEMENTS:
        setattr(owner, name, replacement)
    for kind in (_Size, core.Tracer):
        for name in _FLOATS:
            for method, reflected in ((f"__{name}__", False), (f"__r{name}__", True)):
                setattr(kind, method, _of_numbers(name, getattr(kind, method), reflected))
    for kind in (core.Tracer, ArrayImpl):
        kind.__pow__ = _powered(kind.__pow__)
    core.Tracer.__neg__ = _of_numbers("neg", core.Tracer.__neg__)
