"""The questions that a trace asks about sizes, and their answers.

A function is traced at symbolic sizes. Its Python code, or JAX's own, may have to know whether two sizes are equal,
which is larger, or which number a size is. JAX answers an equality that it cannot prove with False, assumes that every
size is at least 1, and refuses the rest. While `answering`, `Answers` decide instead. An answer that holds for every
size of a call is given as it is. Otherwise the answer is that of this call, and a condition that selects the program.

Only this file and `size_numbers.py` touch JAX's symbolic sizes. The replaced functions first ask a variable of the
thread, so that everything outside of our traces is as in JAX.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeGuard, TypeVar

import jax
from jax._src import core
from jax._src import util as jax_util
from jax._src.export import shape_poly
from jax._src.interpreters import mlir
from jax._src.lax import convolution, lax
from jax._src.lax.control_flow import loops
from jax._src.numpy import einsum, fft, lax_numpy, util, vectorize

from hlo_disc.dynamic_hlo.ir.graph import RELATIONS, Guard
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Atom, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.frozen import frozen
from hlo_disc.import_.jax_edge import size_numbers
from hlo_disc.import_.jax_edge.frames import asked_by_user, asking_frame, callee, is_dropped, is_lookup, user_line
from hlo_disc.import_.jax_edge.size_numbers import dim_of, scope_of

if TYPE_CHECKING:
    from jax._src.export.shape_poly import _DimExpr as SymbolicSize
    from jax.export import SymbolicScope

    from hlo_disc.import_.jax_edge.size_numbers import Size


_JITTED = type(jax.jit(len))
_thread = threading.local()
_Size = shape_poly._DimExpr
# The hash that JAX keeps with a size, past the look-up that is replaced; None before it is asked for.
_hash_of: Callable[[SymbolicSize], int | None] = _Size._hash.__get__
T = TypeVar("T")


class Again(BaseException):
    """Raised to trace again, because an equality holds at this call. It is no Exception, so that user code cannot catch
    it."""


@frozen
class Asked:
    """A condition on sizes that holds at the traced call, and the user's line that asked about it."""

    lhs: Dim
    relation: str
    rhs: Dim
    line: str

    def __str__(self) -> str:
        return f"{self.lhs} {self.relation} {self.rhs}"

    def guard(self) -> Guard:
        text = f"this program is for {self}, which {self.line or 'the function'} asked for"
        return Guard(self.lhs, self.relation, self.rhs, text.replace("{", "{{").replace("}", "}}"))


class Answers:
    """Answers the questions of one trace, and notes the answers that hold only for this call.

    sizes: of the call, by symbol. known: what holds for all calls. equalities: those that earlier traces found. scope:
    JAX's, of the sizes that are asked about. equal: the equality that makes the trace start again, None when there is
    none. number: the size that was last asked for as a number where JAX may do without.
    """

    def __init__(self, sizes: Mapping[str, int], known: ShapeFacts, equalities: Sequence[Asked] = ()):
        self.sizes, self.known, self.equalities = sizes, known.copy(), tuple(equalities)
        for asked in equalities:
            self.known.add_equal(asked.lhs, asked.rhs)
        self.facts = self.known.copy()
        self.scope: Any = None
        self.equal: Asked | None = None
        self.number: Asked | None = None
        self._asked: dict[tuple[Dim, str, Dim], Asked] = {}
        self._numbers: dict[Dim, Asked] = {}

    def asked(self) -> tuple[Asked, ...]:
        """List the conditions that were needed and hold at this call, in the order of the questions."""
        return (*self.equalities, *self._asked.values())

    def tell(self, scope: SymbolicScope, constraints: Sequence[str]) -> None:
        """Answer about the sizes of a scope of JAX's, and tell it the constraints, so that it can simplify by them.

        This happens only while answering: JAX assumes that every size is at least 1, so `max(n, 1) == 1` would imply
        that n is 1.
        """
        self.scope = scope
        for text in constraints:
            with suppress(ValueError, NotImplementedError):  # simplified, it is nothing that JAX can say
                scope._parse_and_process_explicit_constraint(text)

    def are_equal(self, a: Dim, b: Dim) -> bool:
        found = self.facts.equal(a, b)
        if found is not Truth.UNKNOWN:
            return found is Truth.YES
        if self._holds(a, "==", b):
            x, y = self._settled(a), self._settled(b)
            if (x, y) != (a, b):
                return self.are_equal(x, y)
            if any({known.lhs, known.rhs} == {a, b} for known in self.equalities):
                return True  # that is no rule to simplify by
            self._again(a, b)
        self._note(a, "!=", b)
        return False

    def is_at_least(self, a: Dim, b: Dim) -> bool:
        found = self.facts.at_most(b, a)
        if found is not Truth.UNKNOWN:
            return found is Truth.YES
        holds = self._holds(a, ">=", b)
        if holds:
            self._note(a, ">=", b)
            self.facts.add_at_least(a, b)
        else:
            self._note(a, "<", b)
            self.facts.add_at_least(b, a + 1)
        return holds

    def as_number(self, d: Dim) -> int:
        """Return the number that a size has; if only this call says so, tracing starts again with it."""
        known = self.facts.canonical(self._settled(self.facts.canonical(d)))
        if known.is_const:
            return known.value
        self._again(d, Dim.const(d.evaluate(self.sizes)))
        raise AssertionError("a trace that starts again does not come here")

    def may_be_number(self, d: Dim) -> None:
        """Note that JAX asked whether the size is a number, which it is not: a failing trace may be due to this."""
        found = self._numbers.get(d)  # it is asked often, where nothing comes of it
        if found is None:
            found = self._numbers[d] = Asked(d, "==", Dim.const(d.evaluate(self.sizes)), user_line())
        self.number = found

    def _settled(self, d: Dim) -> Dim:
        """Replace minima and maxima by their value at this call: that takes an inequality, and no number."""

        def atom(a: Atom) -> Dim:
            if a.kind not in ("min", "max"):
                return a.dim
            args = list(map(self._settled, a.args))
            found = (min if a.kind == "min" else max)(args, key=lambda arg: arg.evaluate(self.sizes))
            for arg in args:
                self.is_at_least(*((arg, found) if a.kind == "min" else (found, arg)))
            return found

        return d.map_atoms(atom)

    def _holds(self, a: Dim, relation: str, b: Dim) -> bool:
        return RELATIONS[relation](a.evaluate(self.sizes), b.evaluate(self.sizes))

    def _note(self, a: Dim, relation: str, b: Dim) -> None:
        if (a, relation, b) not in self._asked:
            self._asked[a, relation, b] = Asked(a, relation, b, user_line())

    def _again(self, a: Dim, b: Dim) -> None:
        if self.equal is None:
            self.equal = Asked(a, "==", b, user_line())
        raise Again


@contextmanager
def answering(answers: Answers) -> Iterator[None]:
    """Answer the questions about sizes that traces of this thread ask."""
    _install()
    before = getattr(_thread, "answers", None)
    _thread.answers = answers
    try:
        yield
    finally:
        _thread.answers = before


def is_size(thing: object) -> TypeGuard[SymbolicSize]:
    """Whether it is a symbolic size of JAX's."""
    return isinstance(thing, _Size)


def is_answered(thing: object) -> bool:
    """Whether it is a symbolic size that this thread traces for a call."""
    return is_size(thing) and _ours(thing) is not None


def are_known_equal(a: object, b: object) -> bool:
    """Whether two of JAX's sizes, one of them answered, are equal at all calls. This asks no question."""
    if not (is_answered(a) or is_answered(b)) or not _compares(*((a, b) if is_size(a) else (b, a))):
        return False
    return _thread.answers.facts.equal(dim_of(a), dim_of(b)) is Truth.YES


def settle(size: SymbolicSize) -> None:
    """Replace a size by its number at this call. Raises UnsupportedOpError if there is none."""
    ours = _ours(size)
    if ours is None:
        raise UnsupportedOpError(f"a function that is called back reads the size {size}: pass it as an argument to it")
    ours.as_number(dim_of(size))


def _is_idle_in_einsum(frame: FrameType, size: SymbolicSize) -> bool:
    """Whether einsum asks if a size is 1 and does the same either way.

    It drops an axis of 1 if the other operand's is not 1. It also asks about an axis that is as long as the other's, or
    that the other operand does not have.
    """
    if frame.f_code.co_name == "<listcomp>" and frame.f_back is not None:
        frame = frame.f_back
    if frame.f_code.co_name != "filter_singleton_dims" or frame.f_code.co_filename != einsum.__file__:
        return False
    seen, asked = frame.f_locals, dim_of(size)
    axes = zip(seen["operand"].shape, map(seen["other_names"].find, seen["names"]), strict=True)
    others = [seen["other_shape"][j] for n, j in axes if j >= 0 and dim_of(n) == asked]
    return all(dim_of(other) in (ONE, asked) for other in others)


def _ours(size: SymbolicSize) -> Answers | None:
    """Return the `Answers` for a size of JAX's; None if the size is not traced now."""
    answers = getattr(_thread, "answers", None)
    return answers if answers is not None and scope_of(size) is answers.scope else None


def _compares(size: SymbolicSize, other: object) -> bool:
    """Whether the other operand is a size of the same trace, or a number."""
    if isinstance(other, _Size):
        return scope_of(size) is scope_of(other)
    return isinstance(other, int) or (hasattr(other, "__index__") and not hasattr(other, "aval"))


# What stands in the place of JAX's functions, which come first

_equal, _hash, _int, _text, _repr = _Size.__eq__, _Size.__hash__, _Size.__int__, _Size.__str__, _Size.__repr__
_at_least, _bounds, _concrete = shape_poly._geq_decision, shape_poly._bounds_decision, core.concrete_or_error
_squeeze, _infer_length = lax_numpy._squeeze, loops._infer_scan_length
# They ask whether something does nothing, to leave it out. So does vectorize: an axis of one may be mapped over.
_ASKING = lax.broadcast_in_dim, lax.reshape, mlir.multi_broadcast_in_dim, util._where
_IDLE = {inspect.unwrap(function).__code__ for function in _ASKING}
_KIND = inspect.unwrap(lax_numpy.iscomplexobj).__code__  # which makes an array of what is none of Python's numbers


def _eq(self: SymbolicSize, other: object) -> bool:
    if _equal(self, other):
        return True
    ours = _ours(self)
    if ours is None or not _compares(self, other) or is_lookup(sys._getframe(1)):
        return False
    frame = asking_frame(sys._getframe(1))
    if frame.f_code in _IDLE or frame.f_code.co_filename == vectorize.__file__ or _is_idle_in_einsum(frame, self):
        return ours.facts.equal(dim_of(self), dim_of(other)) is Truth.YES
    return ours.are_equal(dim_of(self), dim_of(other))


def _geq_decision(e1: Size, e2: Size, describe: Callable[[], str]) -> bool:
    ours = _ours(e1 if isinstance(e1, _Size) else e2)
    return _at_least(e1, e2, describe) if ours is None else ours.is_at_least(dim_of(e1), dim_of(e2))


def _bounds_decision(e: Size, precision: shape_poly.BoundsPrecision) -> tuple[float, float]:
    ours = _ours(e) if isinstance(e, _Size) else None
    if ours is None:
        return _bounds(e, precision)
    low, high = ours.known.bounds(dim_of(e))  # what JAX simplifies may come to serve calls that answer otherwise
    return -math.inf if low is None else low, math.inf if high is None else high


def _concrete_or_error(force: Callable[..., object] | None, val: object, context: str = "") -> object:
    """Accept a size where JAX wants a number before it traces: mostly it becomes part of a shape."""
    if force in (int, operator.index) and isinstance(val, _Size) and _ours(val) is not None:
        _note(val)
        return val
    if force is float and isinstance(val, core.Tracer) and size_numbers.exact_of(val) is not None:
        return val  # as of a tolerance
    return _concrete(force, val, context)


def _as_index(value: SupportsIndex) -> Size:
    """Accept a size as a padding, length or index: JAX checks that it is an int, and compiles a size as well."""
    return value if isinstance(value, _Size) and _ours(value) is not None else operator.index(value)


def _scan_length(xs: Sequence[jax.Array], avals: Sequence[jax.core.ShapedArray], length: Size | None) -> Size:
    """Return the given length as a size. JAX makes it a number, and hashes those of the arrays, to compare them."""
    sizes = [n for x in avals for n in getattr(x, "shape", ())[:1]]
    n = next(filter(is_answered, sizes), None) if length is None else length
    if is_answered(n) and len(sizes) == len(avals) and all(n == other for other in sizes):
        return n
    return _infer_length(xs, avals, length)


def _squeezed(array: jax.Array, axes: int | Sequence[int] | None) -> jax.Array:
    """Squeeze without named axes: JAX refuses, because the rank would depend on sizes."""
    if axes is None and any(map(is_answered, array.shape)):
        axes = tuple(axis for axis, n in enumerate(array.shape) if n == 1)
    return _squeeze(array, axes)


def _for_users(convert: Callable[..., T], of_jax: Callable[..., T]) -> Callable[..., T]:
    """Return `convert` of the number if user code asks, else JAX's own result."""

    def operation(self: SymbolicSize, *others: object) -> T:
        ours = _ours(self)
        if ours is not None and asked_by_user():
            return convert(ours.as_number(dim_of(self)), *others)
        return of_jax(self, *others)

    return operation


def _key(self: SymbolicSize) -> int:
    """Return the key of static arguments, which JAX hashes while its caller's line runs."""
    ours = _ours(self)
    if ours is None or not asked_by_user() or isinstance(callee(sys._getframe(1)), _JITTED):
        known = _hash_of(self)
        return _hash(self) if known is None else known
    return hash(ours.as_number(dim_of(self)))


def _note(size: SymbolicSize) -> None:
    ours = _ours(size)
    if ours is not None:
        ours.may_be_number(dim_of(size))


def _number(self: SymbolicSize) -> int:
    ours = _ours(self)
    if ours is not None and is_dropped(sys._getframe(2)):
        return dim_of(self).evaluate(ours.sizes)
    _note(self)
    return _int(self)


def _index(self: SymbolicSize) -> int:
    _note(self)
    raise TypeError(f"'{_Size.__name__}' object cannot be interpreted as an integer")


def _attribute(self: SymbolicSize, name: str) -> object:
    """Return the class to `isinstance(n, int)`, which asks for it last. For JAX's own code it is JAX's class."""
    if name == "__class__" and (asked_by_user() or sys._getframe(1).f_code is _KIND) and _ours(self) is not None:
        return int
    if name == "astype" and not asked_by_user() and _ours(self) is not None:
        return functools.partial(lax.convert_element_type, core.dimension_as_value(self))
    return object.__getattribute__(self, name)


def _rounded(name: str, of_sizes: Callable[[SymbolicSize, int], Size]) -> Callable[[core.Tracer], Size]:
    """Make a method that rounds numbers: a rounded quotient of sizes, as in `math.ceil(n / 2)`, is a size again."""

    def operation(self: SymbolicSize) -> Size:
        match size_numbers.exact_of(self):
            case size_numbers.Number("truediv", (_Size() as n, int() as k)):
                return of_sizes(n, k)
        return getattr(float(self), name)()

    return operation


def _as_number(name: str) -> Callable[..., object]:
    def operation(self: SymbolicSize, *others: object) -> object:
        ours = _ours(self)
        return NotImplemented if ours is None else getattr(ours.as_number(dim_of(self)), name)(*others)

    return operation


# What numbers can do and JAX's sizes cannot.
_NUMBERS_ONLY = (
    *("__and__", "__rand__", "__or__", "__ror__", "__xor__", "__rxor__", "__lshift__", "__rlshift__", "__rshift__"),
    *("__rrshift__", "__invert__", "__float__", "__complex__", "__round__", "__trunc__", "__floor__", "__ceil__"),
    "bit_length",
)

_REPLACEMENTS: tuple[tuple[object, str, object], ...] = (
    (_Size, "__eq__", _eq),
    (_Size, "__bool__", lambda self: _ours(self) is None or self != 0),
    (_Size, "__hash__", _key),
    (_Size, "__int__", _for_users(int, _number)),
    (_Size, "__index__", _for_users(int, _index)),
    (_Size, "__str__", _for_users(str, _text)),
    (_Size, "__repr__", _for_users(repr, _repr)),
    (_Size, "__format__", _for_users(format, lambda self, spec: format(_text(self), spec))),
    (_Size, "__getattribute__", _attribute),
    *((_Size, x, _as_number(x)) for x in _NUMBERS_ONLY if all(x not in vars(base) for base in _Size.__mro__)),
    (core.Tracer, "__ceil__", _rounded("__ceil__", lambda n, k: (n + k - 1) // k)),
    (core.Tracer, "__floor__", _rounded("__floor__", operator.floordiv)),
    (shape_poly, "_geq_decision", _geq_decision),
    (shape_poly, "_bounds_decision", _bounds_decision),
    (core, "concrete_or_error", _concrete_or_error),
    (lax_numpy, "_squeeze", _squeezed),
    (loops, "_infer_scan_length", _scan_length),
    *(
        (module, "operator", types.SimpleNamespace(**{**vars(operator), "index": _as_index}))
        for module in (convolution, fft, jax_util)
    ),
)


# Arithmetic, around that of `size_numbers`


def _checking(operation: Callable[[Size, Size], T], divisor: int) -> Callable[[Size, Size], T]:
    """Check that a division is not by 0. divisor: its place among the two operands."""

    def checked(*operands: Size) -> T:
        if _ours(operands[0]) is not None and operands[divisor] == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        return operation(*operands)

    return checked


def _raised(power: Callable[..., object]) -> Callable[..., object]:
    def raised(self: SymbolicSize, exponent: object, *modulo: object) -> object:
        ours = _ours(self)
        if ours is None or modulo or not isinstance(exponent, (int, float, _Size)):
            return power(self, exponent, *modulo)
        if isinstance(exponent, _Size):
            return raised(self, ours.as_number(dim_of(exponent)))
        if exponent < 0 and self == 0:
            raise ZeroDivisionError("0.0 cannot be raised to a negative power")
        if exponent != int(exponent) and not self >= 0:  # a complex number
            return ours.as_number(dim_of(self)) ** exponent
        return power(self, exponent)

    return raised


def _exponent(power_of: Callable[..., object]) -> Callable[..., object]:
    def exponent(self: SymbolicSize, base: object, *modulo: object) -> object:
        ours = _ours(self)
        if ours is not None and type(base) is int:
            return base ** ours.as_number(dim_of(self))
        return power_of(self, base, *modulo)

    return exponent


@functools.cache
def _install() -> None:
    """Let JAX's sizes ask, once a process."""
    size_numbers.install()
    for owner, name, replacement in _REPLACEMENTS:
        setattr(owner, name, replacement)
    _Size.__pow__, _Size.__rpow__ = _raised(_Size.__pow__), _exponent(_Size.__rpow__)
    for name in ("floordiv", "mod", "divmod", "truediv"):
        for method, divisor in ((f"__{name}__", 1), (f"__r{name}__", 0)):
            setattr(_Size, method, _checking(getattr(_Size, method), divisor))
