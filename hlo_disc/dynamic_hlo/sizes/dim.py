"""Symbolic sizes: `Dim`, an immutable, hash-consed polynomial with integer coefficients.

The variables of the polynomial are atoms: a symbol, or a floordiv, mod, min or max of Dims. A Dim has one canonical
form, so equal polynomials are one object and `==` is an identity test. This file applies only identities that hold for
all integers. `ShapeFacts` decides identities that need a fact (`s // s == 1` needs `s >= 1`). A Dim cannot be compared
or used as a condition.
"""

from __future__ import annotations

import functools
import math
import operator
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, SupportsIndex, TypeVar

from hlo_disc.dynamic_hlo.sizes import parser
from hlo_disc.errors import ParseError, UnsupportedOpError

T = TypeVar("T")

# Names, numbers and operations of an expression: what programs say of sizes has some dozens of them.
LARGEST = 4096

_lock = threading.RLock()
_atoms: dict[Any, Atom] = {}
_dims: dict[Any, Dim] = {}
_small: dict[int, Dim] = {}


class Atom:
    """A variable of the polynomials: `kind` is symbol, floordiv, mod, min or max. One object for each distinct atom."""

    __slots__ = ("kind", "name", "args", "text", "symbols", "size", "dim")

    kind: str
    name: str
    args: tuple[Dim, ...]
    text: str
    symbols: frozenset[str]
    size: int  # nodes of the expression: a measure for orienting equalities
    dim: Dim

    def __repr__(self) -> str:
        return self.text

    def evaluate(self, values: Mapping[str, int]) -> int:
        if self.kind == "symbol":
            return values[self.name]
        return FOLD[self.kind](*(arg.evaluate(values) for arg in self.args))


Monomial = tuple[Atom, ...]  # sorted by text, repeated for powers; () is the monomial of the constant term
Term = tuple[Monomial, int]

FOLD: Mapping[str, Callable[..., int]] = {"floordiv": operator.floordiv, "mod": operator.mod, "min": min, "max": max}


class Dim:
    """A size, as an expression over symbols. Build with `Dim.of`, `symbol`, `const`, `parse` and `+ - * // %`.

    Division floors, as Python's does; a zero divisor raises ZeroDivisionError when the value is computed. A Dim equals
    an `int` when it is that constant.
    """

    __slots__ = ("terms", "symbols", "is_const", "_hash", "_text", "__weakref__")

    terms: tuple[Term, ...]  # higher degree first, the constant last; no zero coefficient
    symbols: frozenset[str]
    is_const: bool
    _hash: int
    _text: str | None

    __array_ufunc__ = None  # numpy scalars on the left defer to the operators below

    @staticmethod
    def of(value: SupportsIndex | str | Dim) -> Dim:
        """Return `value` as a Dim; a string is parsed."""
        if isinstance(value, Dim):
            return value
        if isinstance(value, str):
            return Dim.parse(value)
        return Dim.const(operator.index(value))

    @staticmethod
    def const(value: int) -> Dim:
        found = _small.get(value)
        if found is None:
            found = _intern((((), int(value)),) if value else ())
            if -1024 <= value <= 1 << 16:
                _small[value] = found
        return found

    @staticmethod
    def symbol(name: str) -> Dim:
        """Return the symbol `name`: letters, digits and `_ .`, a letter or `_` first; internal ones begin with `%`."""
        atom = _atoms.get(("symbol", name))
        if atom is None:
            if not parser.NAME.fullmatch(name):
                raise ParseError(f"{name!r} is not a dimension name: use letters, digits, '_' and '.'")
            atom = _intern_atom("symbol", name, ())
        return atom.dim

    @staticmethod
    def parse(text: str) -> Dim:
        """Parse the forms of `str`, of JAX, and Python's operators: `2*b*s + 1`, `mod(s, 8)`, `s % 8`, `s // 2`.

        The grammar is in parser.py. Raises ParseError.
        """
        return parser.parse(text, _ALGEBRA)

    @staticmethod
    def min(*values: int | Dim) -> Dim:
        return _extremum("min", values)

    @staticmethod
    def max(*values: int | Dim) -> Dim:
        return _extremum("max", values)

    @property
    def value(self) -> int:
        """The constant's value. Raises TypeError for a Dim that is not constant."""
        if not self.terms:
            return 0
        monomial, coefficient = self.terms[0]
        if monomial:
            raise TypeError(f"the dimension '{self}' is not a constant")
        return coefficient

    @property
    def constant_term(self) -> int:
        """The coefficient of the monomial 1."""
        return self.terms[-1][1] if self.terms and not self.terms[-1][0] else 0

    def substitute(self, values: Mapping[str, int | str | Dim]) -> Dim:
        """Replace symbols, all at once."""
        dims = {name: Dim.of(values[name]) for name in self.symbols if name in values}
        if all([value is Dim.symbol(name) for name, value in dims.items()]):
            return self
        memo: dict[Atom, Dim] = {}

        def atom(a: Atom) -> Dim:
            if a not in memo:
                if a.kind == "symbol":
                    memo[a] = dims.get(a.name, a.dim)
                else:
                    memo[a] = make(a.kind, *(arg.map_atoms(atom) for arg in a.args))
            return memo[a]

        return self.map_atoms(atom)

    def map_atoms(self, function: Callable[[Atom], Dim]) -> Dim:
        """Return this polynomial with `function(atom)` for each atom."""
        total: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms:
            product = Dim.const(coefficient)
            for atom in monomial:
                product = product * function(atom)
            for m, c in product.terms:
                total[m] = total.get(m, 0) + c
        return polynomial(total)

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value with `values` for the symbols. Raises KeyError for a missing one, ZeroDivisionError."""
        total = 0
        for monomial, coefficient in self.terms:
            for atom in monomial:
                coefficient *= atom.evaluate(values)
            total += coefficient
        return total

    def lower(self, const: Callable[[int], T], symbol: Callable[[str], T], ops: Mapping[str, Callable[[T, T], T]]) -> T:
        """Fold to another representation, `ops` for add, mul, floordiv, mod, min and max. Each atom is lowered once."""
        memo: dict[Atom, T] = {}

        def lower_atom(a: Atom) -> T:
            if a not in memo:
                if a.kind == "symbol":
                    memo[a] = symbol(a.name)
                else:
                    first, *rest = (lower_dim(arg) for arg in a.args)
                    for arg in rest:
                        first = ops[a.kind](first, arg)
                    memo[a] = first
            return memo[a]

        def lower_dim(d: Dim) -> T:
            total = None
            for monomial, coefficient in d.terms:
                term = const(coefficient) if coefficient != 1 or not monomial else None
                for atom in monomial:
                    factor = lower_atom(atom)
                    term = factor if term is None else ops["mul"](factor, term)
                total = term if total is None else ops["add"](total, term)  # type: ignore[arg-type]
            return const(0) if total is None else total

        return lower_dim(self)

    def __add__(self, other: Dim | SupportsIndex) -> Dim:
        b = _operand(other)
        return NotImplemented if b is None else self._plus(b, 1)

    def _plus(self, b: Dim, factor: int) -> Dim:
        if not b.terms:
            return self
        total = dict(self.terms)
        for monomial, coefficient in b.terms:
            total[monomial] = total.get(monomial, 0) + coefficient * factor
        return polynomial(total)

    __radd__ = __add__

    def __mul__(self, other: Dim | SupportsIndex) -> Dim:
        b = _operand(other)
        if b is None:
            return NotImplemented
        if not self.terms or not b.terms:
            return ZERO
        if b.is_const:
            factor = b.terms[0][1]
            return Dim.const(self.terms[0][1] * factor) if self.is_const else self._scale(factor)
        if self.is_const:
            return b._scale(self.terms[0][1])
        if len(self.terms) == 1 and len(b.terms) == 1:
            ((left, x),), ((right, y),) = self.terms, b.terms
            return _intern(((multiply(left, right), x * y),))
        _check_size(len(self.terms) * len(b.terms))
        total: dict[Monomial, int] = {}
        for left, x in self.terms:
            for right, y in b.terms:
                monomial = multiply(left, right)
                total[monomial] = total.get(monomial, 0) + x * y
        return polynomial(total)

    __rmul__ = __mul__

    def _scale(self, factor: int) -> Dim:
        return self if factor == 1 else _intern(tuple([(m, c * factor) for m, c in self.terms]))

    def __neg__(self) -> Dim:
        return self._scale(-1) if self.terms else self

    def __sub__(self, other: Dim | SupportsIndex) -> Dim:
        b = _operand(other)
        return NotImplemented if b is None else ZERO if b is self else self._plus(b, -1)

    def __rsub__(self, other: Dim | SupportsIndex) -> Dim:
        b = _operand(other)
        return NotImplemented if b is None else b + -self

    def __floordiv__(self, other: Dim | SupportsIndex) -> Dim:
        b = _operand(other)
        return NotImplemented if b is None else _floordiv(self, b)

    def __rfloordiv__(self, other: Dim | SupportsIndex) -> Dim:
        b = _operand(other)
        return NotImplemented if b is None else _floordiv(b, self)

    def __mod__(self, other: Dim | SupportsIndex) -> Dim:
        b = _operand(other)
        return NotImplemented if b is None else _mod(self, b)

    def __rmod__(self, other: Dim | SupportsIndex) -> Dim:
        b = _operand(other)
        return NotImplemented if b is None else _mod(b, self)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is Dim:
            return self is other
        return self.is_const and self.value == other if isinstance(other, int) else NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def _undecided(self, *_: object) -> bool:
        raise TypeError(f"the dimension '{self}' has no value while compiling: ask ShapeFacts (equal, at_most, less …)")

    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = _undecided

    def __reduce__(self) -> tuple[object, ...]:
        return Dim.parse, (str(self),)

    def __str__(self) -> str:
        if self._text is None:
            self._text = _print(self)
        return self._text

    __repr__ = __str__


def dim_product(dims: Iterable[int | Dim]) -> Dim:
    """Return the product, 1 for no dims: the number of elements of a shape."""
    product, factor = ONE, 1
    for d in dims:
        if isinstance(d, Dim) and not d.is_const:
            product = d if product is ONE else product * d
        else:
            factor *= d.value if isinstance(d, Dim) else d
    return product if factor == 1 else product * factor


def make(kind: str, *args: Dim) -> Dim:
    """Make the Dim of an atom's kind over new arguments, simplified."""
    if kind == "floordiv":
        return _floordiv(*args)
    if kind == "mod":
        return _mod(*args)
    return _extremum(kind, args)


def polynomial(terms: Mapping[Monomial, int]) -> Dim:
    """Make the Dim with these coefficients; zeros are dropped."""
    kept = [term for term in terms.items() if term[1]]
    if len(kept) > 1:
        kept.sort(key=_order)
    return _intern(tuple(kept))


def multiply(left: Monomial, right: Monomial) -> Monomial:
    """Multiply two monomials."""
    if not left:
        return right
    return tuple(sorted(left + right, key=_atom_text)) if right else left


def quotient(monomial: Monomial, part: Monomial) -> Monomial | None:
    """Return `monomial / part`, or None if `part` does not divide it."""
    rest = list(monomial)
    for atom in part:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


_atom_text = operator.attrgetter("text")


@functools.cache
def _order(term: Term) -> tuple[int, tuple[str, ...]]:
    return -len(term[0]), tuple(atom.text for atom in term[0])


def _operand(value: object) -> Dim | None:
    if isinstance(value, Dim):
        return value
    return Dim.const(operator.index(value)) if hasattr(value, "__index__") else None


def _intern(terms: tuple[Term, ...]) -> Dim:
    found = _dims.get(terms)
    if found is not None:
        return found
    _check_size(sum(1 + sum(atom.size for atom in monomial) for monomial, _ in terms))
    d = object.__new__(Dim)
    d.terms = terms
    d.symbols = frozenset().union(*(atom.symbols for monomial, _ in terms for atom in monomial))
    d.is_const = not terms or not terms[0][0]
    d._hash = hash(d.value) if d.is_const else hash(terms)
    d._text = None
    with _lock:
        return _dims.setdefault(terms, d)


def _check_size(size: int) -> None:
    if size > LARGEST:
        raise UnsupportedOpError(
            f"a size is an expression of {size} names and operations, and {LARGEST} are supported: name what it is "
            "made of by a dim of its own"
        )


def _intern_atom(kind: str, name: str, args: tuple[Dim, ...]) -> Atom:
    key = (kind, name) if kind == "symbol" else (kind, args)
    found = _atoms.get(key)
    if found is not None:
        return found
    atom = Atom()
    atom.kind, atom.name, atom.args = kind, name, args
    atom.size = 1 + sum(a.size for arg in args for monomial, _ in arg.terms for a in monomial)
    _check_size(atom.size)
    atom.text = name if kind == "symbol" else f"{kind}({', '.join(map(str, args))})"
    atom.symbols = frozenset((name,)) if kind == "symbol" else frozenset().union(*(arg.symbols for arg in args))
    with _lock:
        if key not in _atoms:
            atom.dim = _intern((((atom,), 1),))
            _atoms[key] = atom
        return _atoms[key]


@functools.cache
def _floordiv(a: Dim, b: Dim) -> Dim:
    if not b.is_const:
        return _intern_atom("floordiv", "", (a, b)).dim
    k = b.value
    if k == 0:
        raise ZeroDivisionError(f"the dimension 'floordiv({a}, 0)' divides by zero")
    if k < 0:
        a, k = -a, -k
    if k == 1:
        return a
    # floor((k*q + r) / k) = q + floor(r / k)
    whole = {m: c // k for m, c in a.terms if not m or c % k == 0}
    rest = {m: c % k if not m else c for m, c in a.terms if not m or c % k}
    r = polynomial(rest)
    if r.is_const:
        return polynomial(whole)
    # floor((g*p + c) / (g*k)) = floor((p + floor(c / g)) / k)
    g = math.gcd(k, *(c for m, c in r.terms if m))
    if g > 1:
        r, k = polynomial({m: c // g for m, c in r.terms}), k // g
    # ceil(r / k) = floor((r + k - 1) / k): of the two ways to round up, the one whose dividend is positive
    monomial, coefficient = r.terms[0]
    if coefficient < 0:
        return polynomial(whole) - _floordiv(k - 1 - r, Dim.const(k))
    # floor((floor(x / j) + c) / k) = floor((x + j*c) / (j*k))
    if len(monomial) == 1 and coefficient == 1 and (len(r.terms) == 1 or (len(r.terms) == 2 and r.constant_term)):
        inner = monomial[0]
        if inner.kind == "floordiv" and inner.args[1].is_const:
            x, j = inner.args[0], inner.args[1].value
            return polynomial(whole) + _floordiv(x + j * r.constant_term, Dim.const(j * k))
    divided = r if k == 1 else _intern_atom("floordiv", "", (r, Dim.const(k))).dim
    return divided + polynomial(whole)


@functools.cache
def _mod(a: Dim, b: Dim) -> Dim:
    if not b.is_const:
        return _intern_atom("mod", "", (a, b)).dim
    k = b.value
    if k == 0:
        raise ZeroDivisionError(f"the dimension 'mod({a}, 0)' divides by zero")
    if k < 0:
        return -_mod(-a, -b)
    r = ZERO
    for monomial, coefficient in a.terms:
        term = polynomial({monomial: coefficient % k})
        if len(monomial) == 1 and monomial[0].kind == "mod":
            x, j = monomial[0].args
            if j.is_const and j.value % k == 0:  # x mod j is x plus a multiple of k
                term = _mod(coefficient * x, b)
        r = r + term
    if any(not 0 < c < k for _, c in r.terms):
        return _mod(r, b)
    if r.is_const:
        return r
    monomial, coefficient = r.terms[0]
    if len(r.terms) == 1 and coefficient == 1 and len(monomial) == 1 and monomial[0].kind == "mod":
        j = monomial[0].args[1]
        if j.is_const and j.value <= k:
            return r
    return _intern_atom("mod", "", (r, b)).dim


def _extremum(kind: str, values: Iterable[int | Dim]) -> Dim:
    flat: list[Dim] = []
    for value in values:
        d = Dim.of(value)
        atom = d.terms[0][0][0] if len(d.terms) == 1 and d.terms[0][1] == 1 and len(d.terms[0][0]) == 1 else None
        flat.extend(atom.args if atom is not None and atom.kind == kind else (d,))
    if not flat:
        raise ValueError(f"{kind} of no dimensions")
    kept: list[Dim] = []
    for d in dict.fromkeys(flat):
        # Only one of two arguments that differ by a constant can be the extremum.
        for i, other in enumerate(kept):
            difference = d - other
            if difference.is_const:
                kept[i] = d if (difference.value < 0) == (kind == "min") else other
                break
        else:
            kept.append(d)
    if len(kept) == 1:
        return kept[0]
    kept.sort(key=lambda d: (d.is_const, str(d)))
    return _intern_atom(kind, "", tuple(kept)).dim


def _print(d: Dim) -> str:
    text = ""
    for monomial, coefficient in d.terms:
        factors = [str(abs(coefficient))] if abs(coefficient) != 1 or not monomial else []
        for atom in dict.fromkeys(monomial):
            power = monomial.count(atom)
            factors.append(atom.text if power == 1 else f"{atom.text}^{power}")
        sign = ("-" if coefficient < 0 else "") if not text else (" - " if coefficient < 0 else " + ")
        text += sign + "*".join(factors)
    return text or "0"


def parse_relation(text: str) -> tuple[Dim, str, Dim]:
    """Split "s <= 512" into its left side, relation and right side. Raises ParseError."""
    return parser.parse_relation(text, _ALGEBRA)


_ALGEBRA = parser.Algebra(Dim.const, Dim.symbol, make)
ZERO = _intern(())
ONE = Dim.const(1)
