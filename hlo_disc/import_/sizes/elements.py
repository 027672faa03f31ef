"""Elements of integer tensors as symbols: a `Dim` for a number, a bool or a condition for a truth value.

Frameworks compute shapes with ordinary integer ops, whose division truncates and whose `select` decides. Here every op
gets an exact meaning as a Dim, simplified by `ShapeFacts`; the patterns by which JAX writes floor division and modulo
become `floordiv` and `mod`. Overflow is checked elsewhere (`Symbolic.wraps`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hlo_disc.dynamic_hlo.ir.graph import NEGATED
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.frozen import frozen


@frozen
class Compare:
    """A comparison `lhs relation rhs` that the facts do not decide."""

    relation: str
    lhs: Dim
    rhs: Dim


@frozen
class Junction:
    """A conjunction or disjunction of the parts."""

    conjunction: bool
    parts: frozenset[Compare | Junction]


Condition = Compare | Junction
Element = Dim | bool | Compare | Junction


class Elements:
    """Scalar operations under given facts."""

    def __init__(self, facts: ShapeFacts):
        self.facts = facts
        self._quotients: dict[Dim, list[tuple[Dim, Dim]]] = {}
        self._remainders: dict[Dim, list[tuple[Dim, Dim]]] = {}
        self.defined: dict[Dim, Dim] = {}  # symbols that were made here, and what they stand for
        self._broadcasts: dict[tuple[Dim, Dim], Dim] = {}
        self._parts: dict[Dim, frozenset[Dim]] = {}

    # Numbers

    def nonnegative(self, a: Dim) -> bool:
        return self.facts.at_most(ZERO, a) is Truth.YES

    def minimum(self, a: Dim, b: Dim) -> Dim:
        return self.facts.canonical(Dim.min(a, b))

    def maximum(self, a: Dim, b: Dim) -> Dim:
        return self.facts.canonical(Dim.max(a, b))

    def sign(self, a: Dim) -> Dim:
        if self.facts.at_most(ONE, a) is Truth.YES:
            return ONE
        at_most_one = self.minimum(a, ONE)
        return at_most_one if self.nonnegative(a) else self.maximum(at_most_one, -ONE)

    def absolute(self, a: Dim) -> Dim:
        return a if self.nonnegative(a) else self.maximum(a, -a)

    def divide(self, a: Dim, b: Dim) -> Dim | None:
        """Divide toward zero; None if the divisor's sign is unknown."""
        divisor = self._divisor(b)
        if divisor is None:
            return None
        if divisor is ONE or self.nonnegative(a):
            quotient = a // divisor
        else:
            quotient = Dim.max(a, ZERO) // divisor - Dim.max(-a, ZERO) // divisor
        if b.is_const and divisor is not b:
            quotient = -quotient
        self._quotients.setdefault(quotient, []).append((a, b))
        return quotient

    def remainder(self, a: Dim, b: Dim) -> Dim | None:
        """Return the remainder of `divide`, which has the dividend's sign."""
        divisor = self._divisor(b)
        if divisor is None:
            return None
        if divisor is ONE or self.nonnegative(a):
            remainder = a % divisor
        else:
            remainder = Dim.max(a, ZERO) % divisor - Dim.max(-a, ZERO) % divisor
        self._remainders.setdefault(remainder, []).append((a, b))
        return remainder

    def _divisor(self, b: Dim) -> Dim | None:
        # A size may be 0 where the result is not used; nothing may trap then.
        if b.is_const:
            return Dim.const(abs(b.value)) if b.value else None
        if not self.nonnegative(b):
            return None
        return self.maximum(b, ONE)

    # Truth values

    def compare(self, relation: str, a: Element, b: Element) -> Element:
        if isinstance(a, Dim) and isinstance(b, Dim):
            return self._compare_numbers(relation, a, b)
        a, b = (self._as_condition(x) for x in (a, b))
        if relation == "!=":
            return self.any((self.all((a, self.negate(b))), self.all((self.negate(a), b))))
        if relation == "==":
            return self.negate(self.compare("!=", a, b))
        return self._compare_numbers(relation, self.number(a), self.number(b))

    def _compare_numbers(self, relation: str, a: Dim, b: Dim) -> Element:
        truth = self.facts.holds(a, relation, b)
        return Compare(relation, a, b) if truth is Truth.UNKNOWN else truth is Truth.YES

    def negate(self, a: Element) -> Element:
        if isinstance(a, bool):
            return not a
        if isinstance(a, Compare):
            return Compare(NEGATED[a.relation], a.lhs, a.rhs)
        assert isinstance(a, Junction)
        return self._join(not a.conjunction, [self.negate(part) for part in a.parts])

    def all(self, parts: Iterable[Element]) -> Element:
        return self._join(True, parts)

    def any(self, parts: Iterable[Element]) -> Element:
        return self._join(False, parts)

    def _join(self, conjunction: bool, parts: Iterable[Element]) -> Element:
        kept: set[Condition] = set()
        for part in parts:
            if isinstance(part, bool):
                if part is not conjunction:
                    return part
            elif isinstance(part, Junction) and part.conjunction is conjunction:
                kept |= part.parts
            else:
                kept.add(part)  # type: ignore[arg-type]
        if len(kept) == 1:
            return kept.pop()
        return Junction(conjunction, frozenset(kept)) if kept else conjunction

    def _as_condition(self, a: Element) -> Element:
        return self._compare_numbers("!=", a, ZERO) if isinstance(a, Dim) else a

    def number(self, a: Element) -> Dim:
        """Return a truth value as 0 or 1."""
        if isinstance(a, Dim):
            return a
        if isinstance(a, bool):
            return Dim.const(int(a))
        if isinstance(a, Junction):
            product = ONE
            for part in a.parts:
                one = self.number(part)
                product = product * (one if a.conjunction else 1 - one)
            return product if a.conjunction else 1 - product
        if a.relation in ("==", "!="):
            differ = self.minimum(ONE, self.maximum(a.lhs - a.rhs, a.rhs - a.lhs))
            return differ if a.relation == "!=" else 1 - differ
        gap = a.rhs - a.lhs if a.relation in ("<", "<=") else a.lhs - a.rhs
        return self.minimum(ONE, self.maximum(ZERO, gap + len(a.relation) - 1))  # one more for "or equal"

    def select(self, condition: Element, yes: Element, no: Element) -> Element:
        condition = self._as_condition(condition)
        if isinstance(condition, bool):
            return yes if condition else no
        if yes == no:
            return yes
        if not (isinstance(yes, Dim) and isinstance(no, Dim)):
            return self.any((self.all((condition, yes)), self.all((self.negate(condition), no))))
        rounded = self._floor_division(condition, yes, no)
        if rounded is not None:
            return rounded
        if condition == Compare("==", no, ONE):
            return self.broadcast(no, yes)
        if isinstance(condition, Compare) and {condition.lhs, condition.rhs} == {yes, no}:
            smaller = (condition.relation in ("<", "<=")) == (condition.lhs is yes)
            if condition.relation not in ("==", "!="):
                return self.minimum(yes, no) if smaller else self.maximum(yes, no)
        return self.facts.canonical(self.number(condition) * (yes - no) + no)

    def broadcast(self, a: Dim, b: Dim) -> Dim:
        """Return the size to which two broadcast, `b if a == 1 else a`, as TensorFlow writes it, as a symbol of its
        own.

        Either one of them is 1, or they are equal; the op that broadcasts requires that. So a result of 1 implies that
        all parts are 1, and broadcasting the result with one of its parts changes nothing.
        """
        if b is ONE or b in self._parts.get(a, ()):
            return a
        if a in self._parts.get(b, ()):
            return b
        found = self._broadcasts.get((a, b))
        if found is None:
            found = self._broadcasts[a, b] = Dim.symbol(f"_{len(self.defined)}")
            self.defined[found] = self.number(Compare("==", a, ONE)) * (b - a) + a
            self._parts[found] = frozenset((a, b)).union(self._parts.get(a, ()), self._parts.get(b, ()))
        return found

    def _floor_division(self, condition: Element, yes: Dim, no: Dim) -> Dim | None:
        """Recognise floor division and modulo: `select(signs differ and remainder != 0, q - 1, q)` and `select(… , r +
        b, r)`."""
        for a, b in self._quotients.get(no, ()) if yes is no - 1 else ():
            remainder = self.remainder(a, b)
            assert remainder is not None  # there is a quotient by b
            inexact = self.compare("!=", remainder, ZERO)
            if condition == self.all((self.compare("!=", self.sign(a), self.sign(b)), inexact)):
                return a // self._floor_divisor(b)
        for a, b in self._remainders.get(no, ()):
            if yes is no + b:
                signs = self.compare("!=", self.compare("<", no, ZERO), self.compare("<", b, ZERO))
                if condition == self.all((signs, self.compare("!=", no, ZERO))):
                    return a % self._floor_divisor(b)
        return None

    def _floor_divisor(self, b: Dim) -> Dim:
        return b if b.is_const else self.maximum(b, ONE)


# Arithmetic of numbers, by the names of DHLO's ops.
ARITHMETIC: dict[str, Callable[..., Element | None]] = {
    "abs": Elements.absolute, "add": lambda s, a, b: a + b, "divide": Elements.divide, "maximum": Elements.maximum,
    "minimum": Elements.minimum, "multiply": lambda s, a, b: a * b, "negate": lambda s, a: -a,
    "remainder": Elements.remainder, "sign": Elements.sign, "subtract": lambda s, a, b: a - b,
}  # fmt: skip


def of_numbers(
    number: Callable[..., Element | None], truth: Callable[[Elements, Iterable[Element]], Element] | None = None
) -> Callable[..., Element | None]:
    """Wrap a function of numbers. truth: the function of truth values, by default None for these."""

    def function(s: Elements, *args: Element) -> Element | None:
        if all(isinstance(a, Dim) for a in args):
            return number(s, *args)
        return truth(s, args) if truth else None

    return function


def constant_value(element: Element) -> int | None:
    """Return an element's number, if it is known."""
    if isinstance(element, bool):
        return int(element)
    return element.value if isinstance(element, Dim) and element.is_const else None


def conjuncts(condition: Element) -> Iterable[Element]:
    """Split a condition into those that must all hold."""
    return condition.parts if isinstance(condition, Junction) and condition.conjunction else (condition,)


def is_not_empty(condition: Element) -> bool:
    """Recognise `symbol >= 1`, which frameworks assert of every dimension variable."""
    if not isinstance(condition, Compare) or (condition.relation, condition.rhs) != (">=", ONE):
        return False
    names = condition.lhs.symbols
    return len(names) == 1 and condition.lhs is Dim.symbol(next(iter(names)))
