"""Known equalities between Dims, oriented as rewrite rules: from a list of `polynomial == 0` to a normal form.

A symbol that stands alone in an equation is eliminated (`s == h*w` gives s -> h*w); otherwise the largest monomial is
replaced by the rest (`h*w == 2*u*v` gives h*w -> 2*u*v). Rules are inter-reduced, and every right side is free of
eliminated symbols and smaller than its left side, so rewriting ends and costs one look at each monomial. It is sound
but, as for all such systems without completion, two equal polynomials may keep different normal forms.
"""

from __future__ import annotations

import math

from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Atom, Dim, Monomial, make, polynomial, quotient
from hlo_disc.errors import ShapeError

_TWO = Dim.const(2)
_ROUNDS = 64  # bounds rewriting and inter-reduction; what is left unreduced is still correct


class Equations:
    """Rewrite rules from equalities. `add` raises ShapeError for one that cannot hold."""

    def __init__(self) -> None:
        self.symbols: dict[str, Dim] = {}
        self.monomials: list[tuple[Monomial, int, Dim]] = []  # coefficient * monomial -> rest
        self._memo: dict[Atom, Dim] = {}

    def add(self, zero: Dim) -> None:
        """Add the fact `zero == 0`."""
        queue = [zero]
        for _ in range(_ROUNDS):
            if not queue:
                return
            equation = self.rewrite(queue.pop())
            if equation.is_const:
                if equation.value:
                    raise ShapeError(f"contradictory facts: '{zero}' cannot be 0")
                continue
            divisor = math.gcd(*(c for _, c in equation.terms))
            queue += self._orient(polynomial({m: c // divisor for m, c in equation.terms}))

    def rewrite(self, d: Dim) -> Dim:
        """Return the normal form of `d`."""
        for _ in range(_ROUNDS):
            before = d
            d = self._reduce(self._substitute(d))
            if d is before:
                break
        return d

    def _orient(self, equation: Dim) -> list[Dim]:
        """Add the rule for a reduced equation. Returns the equations that it makes reducible, to be added again."""
        solved = _solve(equation)
        if solved is not None:
            name, value = solved
            again = [r for r in self.monomials if name in r[2].symbols or any(name in a.symbols for a in r[0])]
            self.symbols = {s: d.substitute({name: value}) for s, d in self.symbols.items()}
            self.symbols[name] = value
        else:
            lead, coefficient = max(equation.terms, key=lambda term: _weight(term[0]))
            sign = 1 if coefficient > 0 else -1
            rest = polynomial({m: -sign * c for m, c in equation.terms if m != lead})
            again = [r for r in self.monomials if quotient(r[0], lead) is not None]
            self.monomials.append((lead, abs(coefficient), rest))
        self.monomials = [rule for rule in self.monomials if rule not in again]
        self._memo = {}
        if solved is None:
            self.symbols = {s: self._reduce(d) for s, d in self.symbols.items()}
        return [polynomial({lead: c}) - rest for lead, c, rest in again]

    def _substitute(self, d: Dim) -> Dim:
        if not self.symbols and not self.monomials:
            return d
        return d.map_atoms(self._atom)

    def _atom(self, atom: Atom) -> Dim:
        found = self._memo.get(atom)
        if found is None:
            if atom.kind == "symbol":
                found = self.symbols.get(atom.name, atom.dim)
            else:
                found = make(atom.kind, *(self.rewrite(arg) for arg in atom.args))
            self._memo[atom] = found
        return found

    def _reduce(self, d: Dim) -> Dim:
        for lead, coefficient, rest in self.monomials:
            for monomial, c in d.terms:
                if c % coefficient == 0 and (cofactor := quotient(monomial, lead)) is not None:
                    d = d - polynomial({monomial: c}) + polynomial({cofactor: c // coefficient}) * rest
        return d


def _weight(monomial: Monomial) -> tuple[int, list[str]]:
    # Compatible with multiplication: total size, then the multiset order of the atoms' texts.
    return sum(atom.size for atom in monomial), sorted((atom.text for atom in monomial), reverse=True)


def _solve(equation: Dim) -> tuple[str, Dim] | None:
    """Solve the equation for one of its symbols: the one that leaves a sum without minus, else the last by name."""
    best = None
    for monomial, c in equation.terms:
        if len(monomial) != 1 or monomial[0].kind != "symbol" or abs(c) != 1:
            continue
        name = monomial[0].name
        value = polynomial({m: -c * k for m, k in equation.terms if m != monomial})
        if name in value.symbols:
            continue
        key = (all(k > 0 for _, k in value.terms), name.startswith("%"), len(name), name)
        if best is None or key > best[0]:
            best = key, name, value
    return None if best is None else (best[1], best[2])


def expand_divisions(d: Dim) -> Dim:
    """Write `mod(x, k)` as `x - k*floordiv(x, k)`, and a half rounded up by one rounded down, so that sums cancel."""

    def expand(atom: Atom) -> Dim:
        if atom.kind == "mod":
            x, k = atom.args
            return x - k * make("floordiv", x, k)
        if atom.kind == "floordiv" and atom.args[1] is _TWO and atom.args[0].constant_term % 2:
            x = atom.args[0] - 1
            return x - make("floordiv", x, _TWO)
        return atom.dim

    return d.map_atoms(expand) if d is not ZERO else d
