"""Straight-line vector code as Python expressions: `x * x + 1.0` appends LLVM instructions and returns their result.

The same expression gives a scalar or any number of lanes. Kinds are i1, i32, i64, f32 and f64; Python numbers become
splat constants of the other operand's kind. Comparisons are ordered: false when an operand is NaN.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlo_disc.targets.machine import Machine
from hlo_disc.targets.translate.types import F32, F64, I1, I32, I64, Type, float_constant, int_constant, splat

_KINDS = {"i1": I1, "i32": I32, "i64": I64, "f32": F32, "f64": F64}
_PLAIN = Machine(triple="", layout="")  # that has nothing of its own
_EXPONENT = {"f32": ("i32", 23, 127), "f64": ("i64", 52, 1023)}


class Code:
    """The instructions of one function over vectors of `lanes` elements (0: scalars)."""

    def __init__(self, lanes: int, machine: Machine = _PLAIN):
        self.lanes = lanes
        self.machine = machine
        self.lines: list[str] = ["entry:"]
        self.declarations: dict[str, str] = {}
        self._block = "entry"
        self._count = 0

    def type(self, kind: str) -> Type:
        scalar = _KINDS[kind]
        return scalar.vector(self.lanes) if self.lanes else scalar

    def argument(self, name: str, kind: str) -> X:
        return X(self, kind, f"%{name}")

    def op(self, kind: str, text: str) -> X:
        self._count += 1
        self.lines.append(f"  %t{self._count} = {text}")
        return X(self, kind, f"%t{self._count}")

    def constant(self, value: float, kind: str) -> X:
        scalar = _KINDS[kind]
        text = float_constant(value, scalar) if scalar.is_float else int_constant(int(value), scalar)
        return X(self, kind, splat(self.type(kind), text))

    def lift(self, value: X | float, kind: str) -> X:
        return value if isinstance(value, X) else self.constant(value, kind)

    def call(self, kind: str, name: str, arguments: Sequence[tuple[str, str]]) -> X:
        """Call a function or intrinsic, declaring it; arguments are (type, value) texts."""
        result = self.type(kind).text
        self.declarations[name] = f"declare {result} @{name}({', '.join(t for t, _ in arguments)})"
        return self.op(kind, f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in arguments)})")

    def intrinsic(self, name: str, *operands: X) -> X:
        type_ = self.type(operands[0].kind)
        return self.call(operands[0].kind, f"llvm.{name}.{type_.suffix}", [(type_.text, x.text) for x in operands])

    def each(self, name: str, x: X) -> X:
        """Apply a function of one number, such as the machine's own, to each lane."""
        element, vector = _KINDS[x.kind].text, x.type.text
        self.declarations[name] = f"declare {element} @{name}({element})"
        if not self.lanes:
            return self.op(x.kind, f"call {element} @{name}({element} {x.text})")
        whole = "poison"
        for lane in range(self.lanes):
            one = self.op(x.kind, f"extractelement {vector} {x.text}, i32 {lane}")
            y = self.op(x.kind, f"call {element} @{name}({element} {one.text})")
            whole = self.op(x.kind, f"insertelement {vector} {whole}, {element} {y.text}, i32 {lane}").text
        return X(self, x.kind, whole)

    def rare(self, condition: X, usual: Sequence[X], otherwise: Callable[[], Sequence[X]]) -> list[X]:
        """Return `usual` where `condition` is false. Code of `otherwise` runs only if some lane needs it."""
        some = self._any(condition)
        self._count += 1
        slow, join, before = f"slow{self._count}", f"join{self._count}", self._block
        self.lines += [f"  br i1 {some.text}, label %{slow}, label %{join}", f"{slow}:"]
        self._block = slow
        changed = [condition.select(x, y) for x, y in zip(otherwise(), usual, strict=True)]
        self.lines += [f"  br label %{join}", f"{join}:"]
        after, self._block = self._block, join
        return [
            self.op(y.kind, f"phi {y.type.text} [ {y.text}, %{before} ], [ {x.text}, %{after} ]")
            for x, y in zip(changed, usual, strict=True)
        ]

    def repeat(
        self, state: Sequence[X], going: Callable[[Sequence[X]], X], step: Callable[[Sequence[X]], Sequence[X]]
    ) -> list[X]:
        """Take steps from `state` in each lane for as long as it is `going`."""
        self._count += 1
        loop, body, done = (f"{name}{self._count}" for name in ("loop", "body", "done"))
        before = self._block
        self.lines += [f"  br label %{loop}", f"{loop}:"]
        self._block = loop
        start = len(self.lines)
        now = [self.op(x.kind, "") for x in state]
        condition = going(now)
        self.lines += [f"  br i1 {self._any(condition).text}, label %{body}, label %{done}", f"{body}:"]
        self._block = body
        after = [condition.select(new, old) for new, old in zip(step(now), now, strict=True)]
        for k, (first, old, new) in enumerate(zip(state, now, after, strict=True)):
            sources = f"[ {first.text}, %{before} ], [ {new.text}, %{self._block} ]"
            self.lines[start + k] = f"  {old.text} = phi {old.type.text} {sources}"
        self.lines += [f"  br label %{loop}", f"{done}:"]
        self._block = done
        return now

    def _any(self, condition: X) -> X:
        """Whether a condition, of type i1, holds in some lane."""
        if not self.lanes:
            return condition
        if self.machine.threads:  # has no vectors of conditions
            lanes = range(self.lanes)
            each = [self.op("i1", f"extractelement {condition.type.text} {condition.text}, i32 {k}") for k in lanes]
            return functools.reduce(lambda a, b: self.op("i1", f"or i1 {a.text}, {b.text}"), each)
        name = f"llvm.vector.reduce.or.v{self.lanes}i1"
        self.declarations[name] = f"declare i1 @{name}({condition.type.text})"
        return self.op("i1", f"call i1 @{name}({condition.type.text} {condition.text})")


@dataclass(frozen=True, slots=True, eq=False)
class X:
    """One value: its code, kind and LLVM text."""

    code: Code
    kind: str
    text: str

    @property
    def type(self) -> Type:
        return self.code.type(self.kind)

    def _binary(self, other: X | float, integer: str, real: str, swap: bool = False) -> X:
        right = self.code.lift(other, self.kind)
        left, right = (right, self) if swap else (self, right)
        opcode = real if self.kind[0] == "f" else integer
        return self.code.op(self.kind, f"{opcode} {self.type.text} {left.text}, {right.text}")

    def __add__(self, other: X | float) -> X:
        return self._binary(other, "add", "fadd")

    def __sub__(self, other: X | float) -> X:
        return self._binary(other, "sub", "fsub")

    def __rsub__(self, other: float) -> X:
        return self._binary(other, "sub", "fsub", swap=True)

    def __mul__(self, other: X | float) -> X:
        return self._binary(other, "mul", "fmul")

    def __truediv__(self, other: X | float) -> X:
        return self._binary(other, "sdiv", "fdiv")

    def __rtruediv__(self, other: float) -> X:
        return self._binary(other, "sdiv", "fdiv", swap=True)

    def __and__(self, other: X | int) -> X:
        return self._binary(other, "and", "")

    def __or__(self, other: X | int) -> X:
        return self._binary(other, "or", "")

    def __xor__(self, other: X | int) -> X:
        return self._binary(other, "xor", "")

    def __lshift__(self, other: X | int) -> X:
        return self._binary(other, "shl", "")

    def __rshift__(self, other: int) -> X:
        return self._binary(other, "ashr", "")

    def __neg__(self) -> X:
        return self.code.op(self.kind, f"fneg {self.type.text} {self.text}")

    def __invert__(self) -> X:
        return self ^ 1 if self.kind == "i1" else self ^ -1

    def _compare(self, other: X | float, predicate: str) -> X:
        opcode = f"fcmp o{predicate}" if self.kind[0] == "f" else f"icmp {'' if predicate == 'eq' else 's'}{predicate}"
        right = self.code.lift(other, self.kind)
        return self.code.op("i1", f"{opcode} {self.type.text} {self.text}, {right.text}")

    def __lt__(self, other: X | float) -> X:
        return self._compare(other, "lt")

    def __le__(self, other: X | float) -> X:
        return self._compare(other, "le")

    def __gt__(self, other: X | float) -> X:
        return self._compare(other, "gt")

    def __ge__(self, other: X | float) -> X:
        return self._compare(other, "ge")

    def equals(self, other: X | float) -> X:
        return self._compare(other, "eq")

    def is_nan(self) -> X:
        return self.code.op("i1", f"fcmp uno {self.type.text} {self.text}, {self.text}")

    def select(self, true: X | float, false: X | float) -> X:
        """Select self ? true : false, one of them an X."""
        kind = true.kind if isinstance(true, X) else false.kind  # type: ignore[union-attr]
        a, b = self.code.lift(true, kind), self.code.lift(false, kind)
        chosen = f"{a.type.text} {a.text}, {b.type.text} {b.text}"
        return self.code.op(kind, f"select {self.type.text} {self.text}, {chosen}")

    def at_most(self, bound: float) -> X:
        """Return min(self, bound), one instruction; NaN stays NaN."""
        limit = self.code.lift(bound, self.kind)
        if self.code.machine.minimum:
            return self.code.intrinsic("minimum", self, limit)
        return (limit < self).select(limit, self)

    def at_least(self, bound: float) -> X:
        """Return max(self, bound), one instruction; NaN stays NaN."""
        limit = self.code.lift(bound, self.kind)
        if self.code.machine.minimum:
            return self.code.intrinsic("maximum", self, limit)
        return (limit > self).select(limit, self)

    def fma(self, factor: X | float, addend: X | float) -> X:
        """Return self * factor + addend, rounded once."""
        code = self.code
        return code.intrinsic("fma", self, code.lift(factor, self.kind), code.lift(addend, self.kind))

    def over(self, divisor: X) -> X:
        """Return self / divisor, within 2 ulp: for a divisor of no extreme size."""
        reciprocal = self.code.machine.reciprocal
        return self * self.code.each(reciprocal, divisor) if reciprocal else self / divisor

    def horner(self, coefficients: Sequence[float]) -> X:
        """Return c0 + c1 x + c2 x^2 + …"""
        *rest, last = coefficients
        value: X | float = last
        for c in reversed(rest):
            value = self.fma(value, c)
        assert isinstance(value, X)
        return value

    def abs(self) -> X:
        return self.code.intrinsic("fabs", self)

    def round(self) -> X:
        """Return the nearest integer, ties to even."""
        return self.code.intrinsic("roundeven", self)

    def floor(self) -> X:
        return self.code.intrinsic("floor", self)

    def with_sign_of(self, other: X) -> X:
        return self.code.intrinsic("copysign", self, other)

    def bits(self, kind: str) -> X:
        """Reinterpret the bits as another kind of the same width."""
        return self.code.op(kind, f"bitcast {self.type.text} {self.text} to {self.code.type(kind).text}")

    def to(self, kind: str) -> X:
        """Convert: floats to integers towards zero (it must fit), integers as signed."""
        if kind == self.kind:
            return self
        source, target = _KINDS[self.kind], _KINDS[kind]
        if source.is_float and target.is_float:
            opcode = "fpext" if target.size > source.size else "fptrunc"
        elif source.is_float or target.is_float:
            opcode = "fptosi" if source.is_float else "sitofp"
        else:
            opcode = "sext" if target.size > source.size else "trunc"
        return self.code.op(kind, f"{opcode} {self.type.text} {self.text} to {self.code.type(kind).text}")

    def power_of_two(self) -> X:
        """Return 2^self for an integral float within the exponents of normal numbers."""
        integer, mantissa, bias = _EXPONENT[self.kind]
        return ((self.to("i32").to(integer) + bias) << mantissa).bits(self.kind)

    def scale(self, n: X) -> X:
        """Return self * 2^n, rounded once, with gradual underflow and overflow to infinity.

        |self| is in [2^-20, 4) or NaN, n an integral f32 in [-160, 130].
        """
        code = self.code
        if code.machine.scale is not None and (scaled := code.machine.scale(self, n)) is not None:
            return scaled
        # 2^n = 2^h * 2^(n - h): the first factor keeps the product normal, so that only the second rounds
        # (adding 1.5 * 2^23 leaves n in the low bits)
        whole = (n + 12582912.0).bits("i32") << 22
        half = whole & ~0x7FFFFF
        rest = (whole << 1) - half
        return self * (half + 0x3F800000).bits("f32") * (rest + 0x3F800000).bits("f32")
