"""The symbols of a program, from the sizes of a call: shape strings, bindings, guards and constraints.

A symbol is bound by the first input dim that is the bare symbol, otherwise solved from a dim that is linear in it.
Every other input dim becomes a guard. The message of a guard has the argument, the axis, both values and the origin of
a symbol.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Guard, Shape, raw_dim
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, parse_relation
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import ArgumentError, ParseError, ShapeError
from hlo_disc.frozen import frozen

# One entry an axis: a size, an expression, or None to keep what the program says.
ShapeSpec = Sequence["int | str | Dim | None"]
# Of a program's inputs, by name or position, or one an input.
DimsOfInputs = Mapping[str, str | ShapeSpec] | Mapping[int, str | ShapeSpec] | Sequence[str | ShapeSpec | None]

_PLACEHOLDER = re.compile(r"\{(\d+)\}")


@frozen
class Input:
    """An input: its name in messages, dtype and symbolic shape."""

    name: str
    dtype: np.dtype
    shape: Shape


def parse_shape(text: str) -> list[Dim | None]:
    """Parse "(b, 2*s, _)" to Dims, with None for `_`. Raises ParseError."""
    body = text.strip()
    if body.startswith("(") and body.endswith(")"):
        body = body[1:-1]
    parts, depth, start = [], 0, 0
    for i, c in enumerate(body):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(body[start:i])
            start = i + 1
    parts.append(body[start:])
    if not parts[-1].strip():  # "(b,)", "()" and ""
        parts.pop()
    try:
        return [_axis(part) for part in parts]
    except ParseError as error:
        raise ParseError(f"the shape {text!r} is not valid: {error}") from None


def shape_spec(spec: str | ShapeSpec) -> list[Dim | None]:
    """Parse a shape string, or a sequence of sizes, expressions and None, to Dims. Raises ParseError."""
    return parse_shape(spec) if isinstance(spec, str) else [_axis(d) for d in spec]


def _axis(size: int | str | Dim | None) -> Dim | None:
    if size is None or (isinstance(size, str) and size.strip() == "_"):
        return None
    d = Dim.of(size)
    _check(d)
    if d.is_const and d.value < 0:
        raise ParseError(f"the size {d} is negative")
    return d


def _check(d: Dim) -> None:
    """Raise ParseError for numbers that sizes cannot have, and for the compiler's own names."""
    for monomial, coefficient in d.terms:
        if not -(1 << 63) <= coefficient < 1 << 63:
            raise ParseError(f"the number {coefficient} in '{d}' does not fit into 64 bits")
        for atom in monomial:
            if atom.name.startswith("%"):
                raise ParseError(f"the name {atom.name!r} is not valid: it begins with '%'")
            for argument in atom.args:
                _check(argument)


def select_specs(
    dims: DimsOfInputs,
    names: Sequence[str],
    ranks: Sequence[int],
) -> list[list[Dim | None]]:
    """Return one spec for each input, from a mapping by name or position, or a sequence. Raises ArgumentError for a
    misfit."""
    specs: list[list[Dim | None]] = [[None] * rank for rank in ranks]
    entries: list[tuple[int, str | ShapeSpec]]
    if isinstance(dims, Mapping):
        positions = {f"args[{i}]": i for i in range(len(names))} | {i: i for i in range(len(names))}
        positions |= {name: i for i, name in enumerate(names)}
        entries = []
        for key, spec in dims.items():
            if key not in positions:
                raise ArgumentError(f"dims names {key!r}, but the inputs are {', '.join(names)}")
            entries.append((positions[key], spec))
    else:
        if len(dims) > len(names):
            raise ArgumentError(f"dims has {len(dims)} entries for {len(names)} inputs")
        entries = [(i, spec) for i, spec in enumerate(dims) if spec is not None]
    positions_ = [i for i, _ in entries]
    for i, spec in entries:
        if positions_.count(i) > 1:
            raise ArgumentError(f"dims names {names[i]!r} twice, by name and by position")
        shape = shape_spec(spec)
        if len(shape) != ranks[i]:
            raise ArgumentError(f"dims gives {names[i]} the shape {spec!r}, but its rank is {ranks[i]}")
        specs[i] = shape
    return specs


# ------------------------------------------------------------------------------------------------------- bindings


class Bindings:
    """The expression of each symbol over `raw_dim`s, and the guards that the shapes require."""

    def __init__(self, inputs: Sequence[Input]):
        self.inputs = inputs
        self.symbols: dict[str, Dim] = {}
        self.places: dict[str, str] = {}
        self._solved: list[str] = []
        self._bare: set[tuple[int, int]] = set()
        dims = [(i, axis, d) for i, x in enumerate(inputs) for axis, d in enumerate(x.shape) if not d.is_const]
        for i, axis, d in dims:
            if d.symbols and d is Dim.symbol(name := next(iter(d.symbols))) and name not in self.symbols:
                self._bare.add((i, axis))
                self._bind(name, raw_dim(i, axis), i, axis)
        pending = [entry for entry in dims if entry[:2] not in self._bare]
        while pending:
            stuck = [entry for entry in pending if not self._solve(*entry)]
            if len(stuck) == len(pending):
                i, axis, d = next((e for e in stuck if not e[2].symbols <= self.symbols.keys()), stuck[0])
                self._refuse(i, axis, d)
            pending = stuck

    def _bind(self, name: str, value: Dim, argument: int, axis: int) -> None:
        self.symbols[name] = value
        self.places[name] = f"argument {self.inputs[argument].name!r} dimension {axis}"

    def _solve(self, argument: int, axis: int, d: Dim) -> bool:
        """Bind the one unbound symbol of `d`; True if no symbol of it is unbound afterwards."""
        unbound = [name for name in d.symbols if name not in self.symbols]
        if len(unbound) != 1:
            return not unbound
        solution = solve(d, unbound[0], raw_dim(argument, axis))
        if solution is None:
            return False
        self._solved.append(unbound[0])
        self._bind(unbound[0], solution.substitute(self.symbols), argument, axis)
        return True

    def _refuse(self, argument: int, axis: int, d: Dim) -> None:
        missing = sorted(name for name in d.symbols if name not in self.symbols)
        raise ShapeError(
            f"the size of {', '.join(map(repr, missing))} cannot be found from the arguments: argument "
            f"{self.inputs[argument].name!r} dimension {axis} is '{d}'; give an argument a dimension that is just "
            f"{missing[0]!r}, or linear in it"
        )

    def guards(self) -> list[Guard]:
        """List a guard for each input dim that binds no symbol, in order; then that solved symbols are sizes."""
        result = [
            self._guard(i, axis, d)
            for i, x in enumerate(self.inputs)
            for axis, d in enumerate(x.shape)
            if (i, axis) not in self._bare
        ]
        for name in self._solved:
            message = f"the size of '{name}' follows from {self.places[name]} as {{0}}, which is negative"
            result.append(Guard(Dim.symbol(name), ">=", ZERO, message, (Dim.symbol(name),)))
        return result

    def _guard(self, argument: int, axis: int, d: Dim) -> Guard:
        place = f"argument {escape(self.inputs[argument].name)!r} dimension {axis} is {{0}}"
        raw = raw_dim(argument, axis)
        if d.is_const:
            return Guard(raw, "==", d, f"{place}, but must be {d}", (raw,))
        names = sorted(d.symbols)
        origins = [f"from {escape(self.places[name])}" for name in names]
        if d is Dim.symbol(names[0]):
            return Guard(raw, "==", d, f"{place}, but '{d}' is {{1}} {origins[0]}", (raw, d))
        pairs = enumerate(zip(names, origins, strict=True), 2)
        values = ", ".join(f"'{name}' is {{{k}}} {origin}" for k, (name, origin) in pairs)
        return Guard(raw, "==", d, f"{place}, but '{d}' is {{1}}, where {values}", (raw, d, *map(Dim.symbol, names)))


def solve(d: Dim, name: str, value: Dim) -> Dim | None:
    """Solve `d == value` for the symbol `name`, in which `d` is linear; else None. Divisions must be exact."""
    symbol = Dim.symbol(name)
    rest = d.substitute({name: ZERO})
    factor = d - rest
    if any(name in atom.symbols and atom.dim is not symbol for monomial, _ in d.terms for atom in monomial):
        return None
    slope = factor.substitute({name: ONE})
    if factor is not slope * symbol:
        return None
    if slope.is_const:
        return (value - rest) // slope if slope.value > 0 else (rest - value) // -slope
    if len(slope.terms) > 1 or slope.terms[0][1] < 0:
        return None
    # A size in the slope may be 0; the guard `d == value` then decides alone.
    return (value - rest) // Dim.max(slope, ONE)


def escape(text: str) -> str:
    """Escape text for a guard's message, in which braces are placeholders."""
    return text.replace("{", "{{").replace("}", "}}")


def message(text: str, count: int) -> str:
    """Return a framework's message with only those placeholders that have one of `count` values."""
    parts = _PLACEHOLDER.split(text)
    fields = (f"{{{n}}}" if int(n) < count else f"{{{{{n}}}}}" for n in parts[1::2])
    return "".join(a + b for a, b in zip(map(escape, parts[::2]), [*fields, ""], strict=True))


# ---------------------------------------------------------------------------------------------------- constraints


def constraint_texts(constraints: str | Sequence[str]) -> tuple[str, ...]:
    """List the user's constraints: one string is one. Raises ArgumentError if they are neither a string nor a list of
    strings."""
    texts = (constraints,) if isinstance(constraints, str) else constraints
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise ArgumentError(f'constraints={constraints!r}: pass a string, as "s <= 512", or a list of such strings')
    return tuple(texts)


def parse_constraints(constraints: str | Sequence[str]) -> list[Guard]:
    """Parse "s <= 512" or ["s <= 512", "s % 8 == 0"] to guards. Raises ParseError; ArgumentError if they are no
    strings."""
    return [_constraint(text) for text in constraint_texts(constraints)]


def _constraint(text: str) -> Guard:
    lhs, relation, rhs = parse_relation(text)
    for d in (lhs, rhs):
        try:
            _check(d)
        except ParseError as error:
            raise ParseError(f"the constraint {text!r} is not valid: {error}") from None
    return relation_guard(lhs, relation, rhs, f"the sizes do not meet the constraint {escape(text.strip())}: ")


def relation_guard(lhs: Dim, relation: str, rhs: Dim, head: str) -> Guard:
    """Make a guard whose message is `head` and the value of each side that is not constant."""
    sides = [d for d in (lhs, rhs) if not d.is_const]
    values = ", ".join(f"'{d}' is {{{k}}}" for k, d in enumerate(sides))
    return Guard(lhs, relation, rhs, f"{head}{values}", tuple(sides))


def add_fact(facts: ShapeFacts, lhs: Dim, relation: str, rhs: Dim) -> None:
    """Add a guard's condition to the facts. Raises ShapeError for a contradiction."""
    if relation == "==":
        facts.add_equal(lhs, rhs)
    elif relation == ">=":
        facts.add_at_least(lhs, rhs)
    elif relation == "<=":
        facts.add_at_most(lhs, rhs)
    elif relation == ">":
        facts.add_at_least(lhs, rhs + 1)
    elif relation == "<":
        facts.add_at_most(lhs, rhs - 1)
    else:
        facts.add_unequal(lhs, rhs)


def constraint_facts(constraints: Iterable[Guard]) -> ShapeFacts:
    """Collect the facts of a user's constraints. Raises ShapeError if they contradict each other."""
    facts = ShapeFacts(at_points=False)
    for guard in constraints:
        add_fact(facts, guard.lhs, guard.relation, guard.rhs)
    return facts


def fixed_sizes(constraints: Sequence[Guard], names: Iterable[str]) -> dict[str, int]:
    """Return those of the symbols to which constraints leave a single size, with the size."""
    if not constraints:
        return {}
    facts, sizes = constraint_facts(constraints), {name: Dim.symbol(name) for name in names}
    for d in sizes.values():
        facts.add_at_least(d, ZERO)
    bounds = {name: facts.bounds(d) for name, d in sizes.items()}
    return {name: low for name, (low, high) in bounds.items() if low is not None and low == high}


def check_bound(guards: Iterable[Guard], bound: Iterable[str], defined: Iterable[str] = ()) -> None:
    """Raise ShapeError for symbols in guards that no input binds and the program does not define."""
    used = {name for g in guards for d in (g.lhs, g.rhs, *g.args) for name in d.symbols}
    missing = {name for name in used if not name.startswith("%")}.difference(bound, defined)
    if missing:
        raise ShapeError(
            f"nothing says what {', '.join(sorted(missing))} is: no argument has it as a dimension "
            f"(the arguments have {', '.join(bound) or 'no symbols'})"
        )
