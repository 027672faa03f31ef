"""`ShapeFacts`: known conditions on a program's symbolic sizes, and three-valued answers from them.

YES and NO hold for every assignment of non-negative integers to the symbols that meets the facts; sizes 0 and 1 are no
exception. Everything else is UNKNOWN, which becomes a run-time guard or a variant. Facts are kept as they were given;
the rules and ranges that answer queries are derived from all of them whenever one is added.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from copy import copy
from enum import Enum
from functools import partial
from typing import TypeVar

from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Atom, Dim, Monomial, dim_product, make, polynomial, quotient
from hlo_disc.dynamic_hlo.sizes.equations import Equations, expand_divisions
from hlo_disc.dynamic_hlo.sizes.points import signs
from hlo_disc.dynamic_hlo.sizes.ranges import Ranges
from hlo_disc.errors import ShapeError

F = TypeVar("F")

_DEFAULT_SIZE = 64  # the guess for a symbol that nobody said anything about


class Truth(Enum):
    """The answer to a question about symbolic sizes. It has no truth value: compare with `is Truth.YES`."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        raise TypeError("a Truth has three values: compare it with 'is Truth.YES' or 'is Truth.NO'")


class ShapeFacts:
    """Facts about symbols. `add_*` raise ShapeError for a fact that contradicts what is known.

    at_points: decide what no rule does at finitely many sizes, if one symbol is in it. told: stands for them in keys.
    """

    _ranges: Ranges
    _nonzero: frozenset[Dim]
    _equal: dict[tuple[int | Dim, int | Dim], Truth]

    def __init__(self, at_points: bool = True, told: Hashable = ()) -> None:
        self._at_points, self.told = at_points, told
        self._equalities: list[Dim] = []  # each == 0
        self._inequalities: list[Dim] = []  # each >= 0
        self._differences: list[Dim] = []  # each != 0
        self._multiples: list[tuple[Dim, int]] = []
        self._derive()

    def copy(self) -> ShapeFacts:
        """Return an independent copy."""
        other = copy(self)  # what is derived is replaced by a change, never modified, so the copies may share it
        other._equalities = list(self._equalities)
        other._inequalities = list(self._inequalities)
        other._differences = list(self._differences)
        other._multiples = list(self._multiples)
        return other

    def stated(self) -> list[str]:
        """List all facts as text."""
        zero, least, other, multiples = self._equalities, self._inequalities, self._differences, self._multiples
        found = [f"{d} {what}" for what, ds in (("== 0", zero), (">= 0", least), ("!= 0", other)) for d in ds]
        return [*found, *(f"{d} % {k} == 0" for d, k in multiples), f"at points: {self._at_points}"]

    # Facts

    def add_equal(self, a: int | Dim, b: int | Dim) -> None:
        """`a == b` from now on."""
        zero = self.canonical(Dim.of(a) - Dim.of(b))
        known = self._is_zero(zero)
        if known is Truth.NO:
            raise ShapeError(f"the dimensions '{a}' and '{b}' cannot be equal{self._context(zero)}")
        if known is Truth.UNKNOWN:
            self._record(self._equalities, zero)
            self._add_zero_mod(zero)

    def add_unequal(self, a: int | Dim, b: int | Dim) -> None:
        """`a != b` from now on."""
        difference = self.canonical(Dim.of(a) - Dim.of(b))
        known = self._is_zero(difference)
        if known is Truth.YES:
            raise ShapeError(f"the dimensions '{a}' and '{b}' cannot be unequal{self._context(difference)}")
        if known is Truth.UNKNOWN:
            low, high = self._ranges.interval(difference)
            if 0 in (low, high):
                side = difference if low == 0 else -difference
                self._record(self._inequalities, side - 1)
                self._inequalities = [d for d in self._inequalities if d is not side]  # says less
            else:  # of such there may be hundreds
                self._differences.append(difference)
                self._nonzero = self._nonzero | {difference}
                self._equal = {}

    def add_at_least(self, d: int | Dim, low: int | Dim) -> None:
        """`d >= low` from now on."""
        difference = Dim.of(d) - Dim.of(low)
        known = self.at_most(low, d)
        if known is Truth.NO:
            raise ShapeError(f"the dimension '{d}' cannot be at least '{low}'{self._context(difference)}")
        if known is Truth.UNKNOWN:
            self._record(self._inequalities, difference)

    def add_at_most(self, d: int | Dim, high: int | Dim) -> None:
        """`d <= high` from now on."""
        self.add_at_least(high, d)

    def add_divisible(self, d: int | Dim, k: int) -> None:
        """`d` is a multiple of `k >= 1` from now on."""
        known = self.divisible(d, k)
        if known is Truth.NO:
            raise ShapeError(f"the dimension '{d}' cannot be a multiple of {k}{self._context(Dim.of(d))}")
        if known is Truth.UNKNOWN:
            self._record(self._multiples, (Dim.of(d), k))

    # Questions

    def equal(self, a: int | Dim, b: int | Dim) -> Truth:
        """Is `a == b`?"""
        if a is b:
            return Truth.YES
        found = self._equal.get((a, b))
        if found is None:
            d = self.canonical(Dim.of(a) - Dim.of(b))
            found = self._is_zero(d)
            if found is Truth.UNKNOWN and (known := self._signs(d)) is not None and (known == {0} or 0 not in known):
                found = _truth(0 in known)
            self._equal[a, b] = found
        return found

    def same_size(self, a: Iterable[int | Dim], b: Iterable[int | Dim]) -> Truth:
        """Do two shapes have equally many elements?"""
        sizes, others = [d for d in a if d is not ONE], [d for d in b if d is not ONE]
        if sizes == others:
            return Truth.YES
        left, right = (Counter(d for d in map(Dim.of, shape) if d is not ONE) for shape in (sizes, others))
        common = left & right
        # A common factor may be 0, so only YES carries over from the rest to the products.
        if self.equal(dim_product((left - common).elements()), dim_product((right - common).elements())) is Truth.YES:
            return Truth.YES
        return self.equal(dim_product(left.elements()), dim_product(right.elements()))

    def at_most(self, a: int | Dim, b: int | Dim) -> Truth:
        """Is `a <= b`?"""
        found = self._at_most.get((a, b))
        if found is None:
            d = self.canonical(Dim.of(b) - Dim.of(a))
            if self._ranges.nonnegative(d):
                found = Truth.YES
            else:
                found = Truth.NO if self._ranges.nonnegative(-d - 1) else Truth.UNKNOWN
            if found is Truth.UNKNOWN and (known := self._signs(d)) is not None and (known == {-1} or -1 not in known):
                found = _truth(-1 not in known)
            self._at_most[a, b] = found
        return found

    def less(self, a: int | Dim, b: int | Dim) -> Truth:
        """Is `a < b`?"""
        return self.at_most(Dim.of(a) + 1, b)

    def holds(self, a: int | Dim, relation: str, b: int | Dim) -> Truth:
        """Is `a relation b`, for one of == != >= > <= <?"""
        if relation in ("==", "!="):
            truth = self.equal(a, b)
        elif relation in ("<=", ">"):
            truth = self.at_most(a, b)
        else:
            truth = self.less(a, b)
        return truth if truth is Truth.UNKNOWN else _truth((truth is Truth.YES) == (relation in ("==", "<=", "<")))

    def divisible(self, d: int | Dim, k: int) -> Truth:
        """Is `d` a multiple of `k >= 1`?"""
        if k < 1:
            raise ValueError(f"divisible asks about a positive divisor, not {k}")
        d = self.canonical(Dim.of(d))
        if d.is_const:
            return _truth(d.value % k == 0)
        if self._divisor(d) % k == 0:
            return Truth.YES
        # d is a multiple of g plus a constant; only when g and k share a factor does the constant decide.
        g = math.gcd(k, *(self._term_divisor(m, c) for m, c in d.terms if m))
        if d.constant_term % g:
            return Truth.NO
        known = (m for m, n in self._known_multiples if n % k == 0 and (m - d).is_const)
        return next((_truth((d - m).value % k == 0) for m in known), Truth.UNKNOWN)

    def bounds(self, d: int | Dim) -> tuple[int | None, int | None]:
        """The smallest and the largest value that `d` can have, None where unbounded or unknown."""
        low, high = self._ranges.bounds(self.canonical(Dim.of(d)))
        return None if low == -math.inf else int(low), None if high == math.inf else int(high)

    def canonical(self, d: int | Dim) -> Dim:
        """Return one representative for Dims that are known to be equal, simplified by all facts."""
        if not isinstance(d, Dim):
            d = Dim.of(d)
        if d.is_const:
            return d
        found = self._canonical.get(d)
        if found is None:
            found = self._equations.rewrite(d)
            for _ in range(4):
                before = found
                simpler = _shift_extrema(self._cancel_divisions(before.map_atoms(self._simplify)))
                found = self._equations.rewrite(simpler)
                if found is before:
                    break
            self._canonical[d] = found
        return found

    def likely(self, d: int | Dim) -> int:
        """Return `d` at likely sizes: by the equalities, else by a guess within each symbol's bounds."""
        d = Dim.of(d)
        found = self._likely.get(d)
        if found is None:
            try:
                found = d.evaluate({name: self._guess(name) for name in d.symbols})
            except ZeroDivisionError:
                found = _DEFAULT_SIZE
            low, high = self.bounds(d)
            found = found if high is None else min(found, high)
            found = self._likely[d] = found if low is None else max(found, low)
        return found

    # From facts to rules and ranges

    def _record(self, facts: list[F], fact: F) -> None:
        facts.append(fact)
        try:
            self._derive()
        except ShapeError:  # together with the others it cannot hold
            facts.pop()
            self._derive()
            raise

    def _derive(self) -> None:
        self._canonical: dict[Dim, Dim] = {}
        self._equal = {}
        self._at_most: dict[tuple[int | Dim, int | Dim], Truth] = {}
        self._likely: dict[Dim, int] = {}
        self._guesses: dict[str, int] = {}
        self._equations = Equations()
        self._ranges = Ranges()
        self._nonzero = frozenset()
        self._known_multiples: list[tuple[Dim, int]] = []
        self._divisors: dict[Monomial, int] = {}
        for zero in self._equalities:
            self._equations.add(zero)
        # What equalities and inequalities say together may say more in turn.
        self._zeros, self._implied = list(self._equalities), list(self._inequalities)
        for _ in range(len(self._inequalities) + len(self._differences) + len(self._equalities) + 1):
            self._derive_ranges()
            if not (self._pin() | self._choose() | self._move_bounds()):
                break
        for d, k in self._multiples:
            self._derive_multiple(self._equations.rewrite(d), k)
        # With the facts in place, they may simplify each other once more.
        ranges = self._ranges
        simpler = [c for d in ranges.inequalities if (c := self.canonical(d)) is not d]
        for d, k in self._multiples:
            self._derive_multiple(self.canonical(d), k)
        if simpler:
            self._ranges = Ranges(ranges.inequalities + simpler)
        self._canonical = {}

    def _derive_ranges(self) -> None:
        # An eliminated symbol is still a size, and an eliminated floordiv or min still what it means.
        sizes = [d for d in self._equations.symbols.values() if any(c < 0 for _, c in d.terms)]
        atoms = dict.fromkeys(atom for zero in self._zeros for monomial, _ in zero.terms for atom in monomial)
        meanings = [known for atom in atoms for known in self._ranges.definition(atom)]
        self._ranges = Ranges(self._equations.rewrite(d) for d in [*self._implied, *sizes, *meanings])

    def _pin(self) -> bool:
        """Turn an interval of one value into an equality. Returns whether there was one."""
        pinned = False
        for monomial in self._ranges.limits:
            atom = polynomial({monomial: 1})
            low, high = self._ranges.interval(atom)
            if low == high:
                self._equations.add(atom - int(low))
                pinned = True
        return pinned

    def _choose(self) -> bool:
        """Derive `b == c` from `max(a, b) == c` and `a != c`. Returns whether anything was derived."""
        known = list(self._zeros)
        for zero in known:
            for monomial, c in zero.terms:
                if len(monomial) != 1 or abs(c) != 1 or monomial[0].kind not in ("min", "max"):
                    continue
                rest = [self._equations.rewrite(arg + c * zero - monomial[0].dim) for arg in monomial[0].args]
                left = [d for d in rest if self._is_zero(d) is not Truth.NO]
                if len(left) == 1 and left[0] is not ZERO:
                    self._equations.add(left[0])
                    self._zeros.append(left[0])
        return len(self._zeros) > len(known)

    def _move_bounds(self) -> bool:
        """Derive `d >= 1` from `d != 0` and `d >= 0`. Returns whether anything was derived."""
        self._nonzero = frozenset(map(self._equations.rewrite, self._differences))
        new = [side - 1 for d in self._nonzero for side in (d, -d) if self._ranges.interval(side)[0] == 0]
        self._implied += new
        return bool(new)

    def _derive_multiple(self, d: Dim, k: int) -> None:
        self._known_multiples.append((d, k))
        if len(d.terms) == 1 and d.terms[0][0]:
            monomial, c = d.terms[0]
            n = k // math.gcd(k, c)  # c*m is a multiple of k when m is one of k / gcd(k, c)
            self._divisors[monomial] = math.lcm(n, self._divisors.get(monomial, 1))

    def _add_zero_mod(self, zero: Dim) -> None:
        """Derive that x is a multiple of k from `mod(x, k) == 0`."""
        monomial, _ = zero.terms[0]
        if len(zero.terms) == 1 and len(monomial) == 1 and monomial[0].kind == "mod":
            x, k = monomial[0].args
            if k.is_const:
                self.add_divisible(x, k.value)

    def _context(self, d: Dim) -> str:
        facts = [f"{e} == 0" for e in self._equalities if e.symbols & d.symbols]
        facts += [f"{e} >= 0" for e in self._inequalities if e.symbols & d.symbols]
        facts += [f"{e} != 0" for e in self._differences if e.symbols & d.symbols]
        facts += [f"{e} is a multiple of {k}" for e, k in self._multiples if e.symbols & d.symbols]
        return f" when {', '.join(facts)}" if facts else " for any sizes"

    # Simplification by facts

    def _simplify(self, atom: Atom) -> Dim:
        if atom.kind == "symbol":
            return atom.dim
        args = [self.canonical(arg) for arg in atom.args]
        if atom.kind in ("min", "max"):
            return make(atom.kind, *self._extremal(args, atom.kind == "min"))
        a, b = args
        if self._ranges.interval(b)[0] < 1:
            return make(atom.kind, a, b)
        whole, rest = self._divide(a, b)
        if self._ranges.nonnegative(-rest - 1) and self._ranges.nonnegative(rest + b):
            whole, rest = whole - 1, rest + b
        if self._ranges.nonnegative(rest) and self._ranges.nonnegative(b - rest - 1):
            return whole if atom.kind == "floordiv" else rest
        if atom.kind == "mod":
            return make("mod", rest, b)
        return whole + make("floordiv", rest, b)

    def _extremal(self, args: list[Dim], smallest: bool) -> list[Dim]:
        """Drop the arguments that another argument is known to undercut (for a max: to exceed)."""
        kept: list[Dim] = []
        for i, d in enumerate(args):
            others = kept + args[i + 1 :]
            if not any(self._ranges.nonnegative(d - other if smallest else other - d) for other in others):
                kept.append(d)
        return kept

    def _divide(self, a: Dim, b: Dim) -> tuple[Dim, Dim]:
        """Split `a == whole * b + rest` with an integer `whole`, for `b >= 1`."""
        if b.is_const:
            k = b.value
            parts = {m: c for m, c in a.terms if m and self._term_divisor(m, c) % k == 0}
            exact = polynomial(parts)
            whole = ZERO
            for m, c in exact.terms:
                whole = whole + make("floordiv", polynomial({m: c}), b)
            return whole, a - exact
        lead, k = b.terms[0]
        whole, rest = ZERO, a
        for m, c in a.terms:
            part = quotient(m, lead)
            if part is not None and c % k == 0:
                factor = polynomial({part: c // k})
                whole, rest = whole + factor, rest - factor * b
        # Keep a division that shortens the dividend; others would trade one expression for another.
        return (whole, rest) if len(rest.terms) < len(a.terms) else (ZERO, a)

    def _cancel_divisions(self, d: Dim) -> Dim:
        """Replace `k * floordiv(x, k)` by x if x is a multiple of k."""
        for monomial, c in d.terms:
            for atom in monomial:
                if atom.kind != "floordiv" or not atom.args[1].is_const:
                    continue
                x, k = atom.args[0], atom.args[1].value
                if c % k == 0 and self._divisor(x) % k == 0:
                    rest = quotient(monomial, (atom,)) or ()
                    return self._cancel_divisions(d - polynomial({monomial: c}) + polynomial({rest: c // k}) * x)
        return d

    # Divisibility

    def _divisor(self, d: Dim) -> int:
        """Return a number that always divides `d`; 0 for the constant 0, which everything divides."""
        divisor = math.gcd(*(self._term_divisor(m, c) for m, c in d.terms))
        for known, k in self._known_multiples:
            if known is d:
                divisor = math.lcm(divisor, k)
        return divisor

    def _term_divisor(self, monomial: Monomial, c: int) -> int:
        divisor = 1
        for atom in monomial:
            divisor *= self._atom_divisor(atom)
        for known, k in self._divisors.items():
            if len(known) > 1 and quotient(monomial, known) is not None:
                divisor = math.lcm(divisor, k)
        return abs(c) * divisor

    def _atom_divisor(self, atom: Atom) -> int:
        divisor = self._divisors.get((atom,), 1)
        if atom.kind in ("min", "max", "mod"):
            return math.lcm(divisor, math.gcd(*map(self._divisor, atom.args)) or 1)
        if atom.kind == "floordiv" and atom.args[1].is_const:
            inner, k = self._divisor(atom.args[0]), atom.args[1].value
            return math.lcm(divisor, inner // k) if inner and inner % k == 0 else divisor
        return divisor

    # Equality

    def _signs(self, d: Dim) -> set[int] | None:
        """Return the signs that the canonical `d` may have, if it has one symbol and is more than a sum."""
        if len(d.symbols) != 1 or not self._at_points:
            return None
        known: list[tuple[Dim, Callable[[int], bool]]] = [(e, partial(operator.eq, 0)) for e in self._equalities]
        known += [(e, partial(operator.le, 0)) for e in self._inequalities]
        known += [(e, operator.truth) for e in self._differences]
        known += [(e, partial(_divides, k)) for e, k in self._multiples]
        known = [(e, holds) for e, holds in known if e.symbols == d.symbols]
        return signs(d, known) if any(map(_is_bent, [d, *(e for e, _ in known)])) else None

    def _is_zero(self, d: Dim) -> Truth:
        """Is the canonical `d` 0?"""
        if d.is_const:
            return _truth(d.value == 0)
        ranges = self._ranges
        if ranges.nonnegative(d - 1) or ranges.nonnegative(-d - 1) or d in self._nonzero or -d in self._nonzero:
            return Truth.NO
        g = math.gcd(*(self._term_divisor(m, c) for m, c in d.terms if m))
        if g and d.constant_term % g:
            return Truth.NO
        common = _common_factor(d)
        if common and ranges.nonnegative(polynomial({common: 1}) - 1):
            return self._is_zero(polynomial({quotient(m, common) or (): c for m, c in d.terms}))
        expanded = expand_divisions(d)
        if expanded is not d and self.canonical(expanded) is ZERO:
            return Truth.YES
        return Truth.YES if ranges.nonnegative(d) and ranges.nonnegative(-d) else Truth.UNKNOWN

    def _guess(self, name: str) -> int:
        found = self._guesses.get(name)
        if found is None:
            known = self._equations.symbols.get(name)
            if known is not None:
                found = known.evaluate({other: self._guess(other) for other in known.symbols})
            else:
                low, high = self.bounds(Dim.symbol(name))
                k = max(1, self._divisor(self.canonical(Dim.symbol(name))))
                found = (_DEFAULT_SIZE if high is None else min(_DEFAULT_SIZE, high)) // k * k or k
                found = found if low is None or found >= low else -(-low // k) * k
            self._guesses[name] = found
        return found


def _divides(k: int, value: int) -> bool:
    return value % k == 0


def _is_bent(d: Dim) -> bool:
    return any(atom.kind != "symbol" for monomial, _ in d.terms for atom in monomial)


def _shift_extrema(d: Dim) -> Dim:
    """Replace `x - min(x, y)` by `max(x - y, 0)`, which has fewer terms."""
    for monomial, c in d.terms:
        for atom in monomial:
            if atom.kind in ("min", "max"):
                scale = polynomial({quotient(monomial, (atom,)) or (): c})
                for arg in atom.args:
                    rest = d - (atom.dim - arg) * scale
                    if not arg.is_const and len(rest.terms) == len(d.terms) - len(arg.terms) - 1:
                        other = "max" if atom.kind == "min" else "min"
                        return rest - make(other, *(arg - each for each in atom.args)) * scale
    return d


def _common_factor(d: Dim) -> Monomial:
    """Return the largest monomial that divides every term."""
    common = d.terms[0][0]
    for monomial, _ in d.terms[1:]:
        common = tuple((Counter(common) & Counter(monomial)).elements())
    return common


def _truth(value: bool) -> Truth:
    return Truth.YES if value else Truth.NO
