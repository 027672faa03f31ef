"""The consequences of inequalities for Dims: intervals, and proofs that a polynomial is never negative.

Intervals follow the polynomial's terms (symbols are sizes, so >= 0). If they lose a correlation (`s - min(s, 512)`), a
bounded search subtracts known inequalities, times monomials that are never negative, until the interval suffices. A
search that fails takes the longest, so a few points at which the inequalities hold are tried before: no proof exists
for a polynomial that is negative at one of them.
Bounds are ints or +-math.inf.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from hlo_disc.dynamic_hlo.sizes.dim import Atom, Dim, Monomial, Term, multiply, polynomial, quotient

Bound = float | int
Interval = tuple[Bound, Bound]

EVERYTHING: Interval = (-math.inf, math.inf)
_SEARCH_DEPTH = 3
_SEARCH_NODES = 48
_SAMPLES = ((1,), (3,), (64, 2), (5, 1000), (226, 0))  # the sizes of symbols at a point, in turn


class Ranges:
    """Intervals of monomials, and the inequalities `polynomial >= 0` that proofs may use."""

    def __init__(self, inequalities: Iterable[Dim] = ()) -> None:
        self.inequalities = list(dict.fromkeys(inequalities))
        self.limits: dict[Monomial, Interval] = {}
        self._least: dict[tuple[Term, ...], int] = {}  # of the sum of some terms
        for d in self.inequalities:
            self._limit(d)
            terms = _variable_terms(d)
            self._least[terms] = max(-d.constant_term, self._least.get(terms, -d.constant_term))
        self._products = [m for m in self.limits if len(m) > 1]
        self._atoms: dict[Atom, Interval] = {}
        self._monomials: dict[Monomial, Interval] = {(): (1, 1)}
        self._definitions: dict[Atom, list[Dim]] = {}
        self._proofs: dict[Dim, bool] = {}

    def _limit(self, d: Dim) -> None:
        # c*m + k >= 0 bounds the monomial m
        if len(d.terms) > 2 or d.is_const or (len(d.terms) == 2 and not d.constant_term):
            return
        monomial, c = d.terms[0]
        low, high = self.limits.get(monomial, EVERYTHING)
        if c > 0:
            low = max(low, -(d.constant_term // c))
        else:
            high = min(high, d.constant_term // -c)
        self.limits[monomial] = low, high

    def interval(self, d: Dim) -> Interval:
        """Return bounds of `d` from its terms."""
        return self._low(d.terms), -self._low((monomial, -c) for monomial, c in d.terms)

    def _low(self, terms: Iterable[Term]) -> Bound:
        low: Bound = 0
        for monomial, c in terms:
            low += c * self._monomial(monomial)[0 if c > 0 else 1]
        return low

    def bounds(self, d: Dim) -> Interval:
        """Return bounds of `d` from its terms, from inequalities about the same polynomial, and its proved sign."""
        low, high = self.interval(d)
        above, below = (self._least.get(_variable_terms(side)) for side in (d, -d))
        if above is not None:
            low = max(low, d.constant_term + above)
        if below is not None:
            high = min(high, d.constant_term - below)
        if low < 0 and self.nonnegative(d):
            low = 0
        if high > 0 and self.nonnegative(-d):
            high = 0
        return low, high

    def nonnegative(self, d: Dim) -> bool:
        """Whether `d >= 0` is proved."""
        low = self._low(d.terms)
        if low >= 0:
            return True
        found = self._proofs.get(d)
        if found is None:
            refuted = any(_is_negative(d, point) for point in self._points)
            found = self._proofs[d] = not refuted and self._search(d, low, _SEARCH_DEPTH, [_SEARCH_NODES])
        return found

    @functools.cached_property
    def _points(self) -> list[Mapping[str, int]]:
        """Sizes at which all inequalities hold. A symbol that no inequality has gets the last size of a sample."""
        names = sorted({name for d in self.inequalities for name in d.symbols})
        limits = {m[0].name: limit for m, limit in self.limits.items() if len(m) == 1 and m[0].kind == "symbol"}
        points: list[Mapping[str, int]] = []
        for sample in _SAMPLES:
            point = defaultdict(functools.partial(int, sample[-1]))
            for turn, name in enumerate(names):
                low, high = limits.get(name, EVERYTHING)
                point[name] = int(max(low, min(sample[turn % len(sample)], high)))
            if all(_is_negative(d, point) is False for d in self.inequalities):
                points.append(point)
        return points

    def _monomial(self, monomial: Monomial) -> Interval:
        found = self._monomials.get(monomial)
        if found is None:
            found = (1, 1)
            for atom in monomial:
                found = _product(found, self._atom(atom))
            for known in self._products:
                rest = quotient(monomial, known)
                if rest is not None:
                    found = _meet(found, _product(self.limits[known], self._monomial(rest)))
            self._monomials[monomial] = found
        return found

    def _atom(self, atom: Atom) -> Interval:
        found = self._atoms.get(atom)
        if found is None:
            interval = (0, math.inf) if atom.kind == "symbol" else _TABLE[atom.kind](*map(self.interval, atom.args))
            found = self._atoms[atom] = _meet(interval, self.limits.get((atom,), EVERYTHING))
        return found

    def _search(self, d: Dim, low: Bound, depth: int, nodes: list[int]) -> bool:
        """Whether a search proves `d >= 0`. low: the negative lower bound that its terms give."""
        nodes[0] -= 1
        if depth == 0 or nodes[0] < 0:
            return False
        split = self._split(d)
        if split:
            return all(self._holds(dict(case.terms), depth - 1, nodes) for case in split)
        at_fault = [(m, c) for m, c in d.terms if c < 0]
        if low == -math.inf:
            # Only a term without a lower bound can be at fault, and each of them must go: start with the first.
            at_fault = [(m, c) for m, c in d.terms if math.isinf(self._monomial(m)[0 if c > 0 else 1])][:1]
        usable = self._usable(d)
        for monomial, c in at_fault:
            for cofactor, k, known in sorted(_matching(monomial, c, usable), key=lambda match: len(match[0])):
                if self._monomial(cofactor)[0] >= 0:
                    common = math.gcd(c, k)
                    factor, scale = abs(k) // common, abs(c) // common
                    rest = {m: n * factor for m, n in d.terms}
                    for m, n in known.terms:
                        product = multiply(m, cofactor)
                        rest[product] = rest.get(product, 0) - n * scale
                    rest[()] = rest.get((), 0) + factor - 1  # d is an integer
                    if self._holds(rest, depth - 1, nodes):
                        return True
        return False

    def _holds(self, terms: Mapping[Monomial, int], depth: int, nodes: list[int]) -> bool:
        low = self._low(term for term in terms.items() if term[1])
        if low >= 0:
            return True
        if depth == 0 or nodes[0] <= 0:  # most end here, and need not become a Dim
            nodes[0] -= 1
            return False
        return self._search(polynomial(terms), low, depth, nodes)

    def _split(self, d: Dim) -> list[Dim]:
        """Split by a min that is added or a max that is subtracted: `d` is >= 0 if it is with each argument in its
        place."""
        for monomial, c in d.terms:
            for atom in monomial:
                if (atom.kind, c > 0) in (("min", True), ("max", False)):
                    rest = quotient(monomial, (atom,)) or ()
                    if self._monomial(rest)[0] >= 0:
                        scale = polynomial({rest: c})
                        without = d - atom.dim * scale
                        return [without + arg * scale for arg in atom.args]
        return []

    def _usable(self, d: Dim) -> list[Dim]:
        atoms = dict.fromkeys(atom for monomial, _ in d.terms for atom in monomial if atom.kind != "symbol")
        return self.inequalities + [known for atom in atoms for known in self.definition(atom)]

    def definition(self, atom: Atom) -> list[Dim]:
        """List the inequalities that an atom's meaning implies for it and its arguments, as polynomials >= 0."""
        found = self._definitions.get(atom)
        if found is None:
            found = self._definitions[atom] = self._define(atom)
        return found

    def _define(self, atom: Atom) -> list[Dim]:
        if atom.kind == "symbol":
            return []
        if atom.kind == "min":
            return [arg - atom.dim for arg in atom.args]
        if atom.kind == "max":
            return [atom.dim - arg for arg in atom.args]
        a, b = atom.args
        if self.interval(b)[0] < 1:
            return []
        if atom.kind == "floordiv":
            rest = a - b * atom.dim
            return [rest, b - rest - 1]
        known = [b - atom.dim - 1]
        return [*known, a - atom.dim] if self.interval(a)[0] >= 0 else known


def _is_negative(d: Dim, point: Mapping[str, int]) -> bool | None:
    """Whether a polynomial is negative at a point; None if it divides by 0 there."""
    try:
        return d.evaluate(point) < 0
    except ZeroDivisionError:
        return None


def _variable_terms(d: Dim) -> tuple[Term, ...]:
    return d.terms if d.terms and d.terms[-1][0] else d.terms[:-1]


def _matching(monomial: Monomial, c: int, inequalities: Iterable[Dim]) -> Iterator[tuple[Monomial, int, Dim]]:
    """Yield the inequalities with a term of the sign of `c` that divides the monomial: quotient, coefficient,
    inequality."""
    for known in inequalities:
        for part, k in known.terms:
            cofactor = quotient(monomial, part) if c * k > 0 else None
            if cofactor is not None:
                yield cofactor, k, known


def _product(a: Interval, b: Interval) -> Interval:
    # 0 * inf is 0 here: an infinite bound stands for values that are large but finite.
    corners = [x * y if x and y else 0 for x in a for y in b]
    return min(corners), max(corners)


def _meet(a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), min(a[1], b[1])


def _floordiv(a: Interval, b: Interval) -> Interval:
    if b[0] < 1:
        return EVERYTHING

    def divide(x: Bound, y: Bound) -> Bound:
        if math.isinf(x):
            return x
        return (0 if x >= 0 else -1) if math.isinf(y) else x // y

    corners = [divide(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _mod(a: Interval, b: Interval) -> Interval:
    if b[0] < 1:
        return EVERYTHING
    return 0, min(b[1] - 1, a[1]) if a[0] >= 0 else b[1] - 1


_TABLE: Mapping[str, Callable[..., Interval]] = {
    "floordiv": _floordiv,
    "mod": _mod,
    "min": lambda *args: (min(low for low, _ in args), min(high for _, high in args)),
    "max": lambda *args: (max(low for low, _ in args), max(high for _, high in args)),
}
