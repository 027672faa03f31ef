"""Traces a JAX function to a DHLO graph and the tree of its results.

The function is traced on flat arrays, so that names, dims and results are lists in flattening order everywhere below.

For a call, `trace_call` traces at symbolic sizes and lets the function ask about them (`import_.size_questions`). Some
answers are known only after the question: an equality that holds, or a size that has to be a number. Then the trace
starts again with the answer, mostly once or twice.
"""

from __future__ import annotations

import functools
import itertools
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from hlo_disc.abi import ASKED_BITS
from hlo_disc.dynamic_hlo.ir.graph import RELATIONS, Graph, Guard, raw_dim
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import HloDiscError, ShapeError, UnsupportedOpError
from hlo_disc.tracing import structure
from hlo_disc.tracing.generalise import Dims
from hlo_disc.tracing.values import Leaf, Result, is_key, show

if TYPE_CHECKING:
    import jax
    from jax._src.export.shape_poly import _DimExpr as SymbolicSize
    from jax.core import ShapedArray
    from jax.tree_util import PyTreeDef

    from hlo_disc.import_.jax_edge.size_questions import Answers, Asked
    from hlo_disc.tracing.structure import Structure

_state = threading.local()

# After so many equalities that a call's sizes were asked for, they are all taken for numbers.
_MOST = 24
# Other sizes than those of a call are multiples of them: where sizes must be a multiple of something, these are.
_FACTORS = (3, 5, 2, 8, 64, 1)
# So many sizes are tried to find some at which conditions hold.
_TRIED = 100


class Traced(NamedTuple):
    """A function as a graph, the tree of its results, and what each of them is to JAX.

    dims: of its arguments, None for what is fixed. asked: what holds at the calls that it is for, of its symbols.
    numbers: the symbols that became numbers because the function asked; wanted: the dims before.
    """

    graph: Graph
    out_tree: Any
    results: tuple[Result, ...]
    dims: Dims
    asked: tuple[Asked, ...] = ()
    numbers: tuple[Asked, ...] = ()
    wanted: Dims = ()


def trace(
    fn: Callable[..., object],
    tree: Structure,
    leaves: Sequence[Leaf],
    dims: Dims,
    names: Sequence[str],
    constraints: Sequence[str],
    made_up: bool = False,
) -> Traced:
    """Trace `fn`, whose (args, kwargs) have the structure `tree`, without a call.

    made_up: whether the sizes of dims in the leaves are invented, so that no message may mention them.

    Raises what tracing raises; JAX's refusal of a symbolic size is a ShapeError with JAX's message.
    """
    from hlo_disc.import_.jax import from_jax

    flat, out_tree = flattened(fn, tree)
    try:
        with _tracing():
            graph, avals = from_jax(flat, leaves, dims, names, constraints)
    except HloDiscError:
        raise
    except Exception as error:
        if not any(map(any, dims)):
            raise
        own = _mistake(flat, leaves)
        if own is not None and (not made_up or str(own) == str(error)):
            raise own from None
        possible = "" if own else ", though it can at fixed sizes"
        shown = ", ".join(show(n, leaf, ds) for n, leaf, ds in zip(names, leaves, dims, strict=True) if any(ds))
        raise ShapeError(
            f"{getattr(fn, '__name__', 'the function')} cannot be traced with {shown}{possible}: "
            "name equal dims alike, add what you know as constraints, or keep a dim static with '_'. "
            f"JAX says:\n{error}"
        ) from error
    return Traced(graph, out_tree[0], _results(avals), dims)


def trace_call(
    fn: Callable[..., object],
    tree: Structure,
    leaves: Sequence[Leaf],
    dims: Dims,
    names: Sequence[str],
    constraints: Sequence[str],
) -> Traced:
    """Trace `fn` for a call, whose sizes are in `leaves`, and for all calls with the same answers.

    Raises the errors of tracing at these sizes, fixed or not, and ShapeError if they break a constraint.
    """
    from hlo_disc.import_.jax import from_jax
    from hlo_disc.import_.jax_edge.size_questions import Again

    flat, out_tree = flattened(fn, tree, structure.of_results)
    call = _Call(leaves, dims, names, constraints)
    can_be_traced = False  # at fixed sizes
    while True:
        answers = call.answers()
        try:
            with _tracing():
                graph, avals = from_jax(flat, leaves, call.dims, names, call.constraints(), answers)
        except Again:
            call.learn(answers.equal)
        except HloDiscError:
            raise
        except Exception as error:
            if not any(map(any, call.dims)):
                raise
            own = None if can_be_traced else _mistake(flat, leaves)
            if own is not None:
                raise own from None
            can_be_traced = True
            call.learn(answers.number, error)
        else:
            if call.equalities and call.pin(graph.facts):
                continue
            return Traced(graph, out_tree[0], _results(avals), call.dims, answers.asked(), tuple(call.numbers), dims)


class _Call:
    """The findings of a call's earlier traces about its sizes.

    dims: the arguments', None for what has become a number. numbers: the reasons. equalities: between the
        other symbols.
    """

    def __init__(self, leaves: Sequence[Leaf], dims: Dims, names: Sequence[str], constraints: Sequence[str]):
        from hlo_disc.dynamic_hlo.ops.reference import check
        from hlo_disc.import_.sizes.symbols import check_bound, parse_constraints

        self.dims = dims
        self.numbers: list[Asked] = []
        self.equalities: list[Asked] = []
        self._sizes = symbol_sizes(dims, leaves, names)
        self._texts, self._constraints = constraints, parse_constraints(constraints)
        check_bound(self._constraints, self._sizes)
        for guard in self._constraints:
            check(guard, self._sizes)

    def answers(self) -> Answers:
        from hlo_disc.import_.jax_edge.size_questions import Answers

        return Answers(self._sizes, self._facts(), self.equalities)

    def _facts(self) -> ShapeFacts:
        """Return the facts for all calls. Equalities that JAX misses are asked for: told so, it simplifies sizes."""
        from hlo_disc.import_.sizes.symbols import constraint_facts

        facts = constraint_facts(self._constraints)
        for d in {d for ds in self.dims for d in ds if d is not None}:
            facts.add_at_least(Dim.parse(d), ZERO)
        return facts

    def constraints(self) -> list[str]:
        """Return the user's constraints on the remaining symbols; for numbers they hold."""
        numbers = {str(known.lhs): known.rhs for known in self.numbers}
        left = []
        for text, guard in zip(self._texts, self._constraints, strict=True):
            lhs, rhs = guard.lhs.substitute(numbers), guard.rhs.substitute(numbers)
            if lhs.symbols | rhs.symbols:
                left.append(text if (lhs, rhs) == (guard.lhs, guard.rhs) else f"{lhs} {guard.relation} {rhs}")
        return left

    def learn(self, asked: Asked | None, error: Exception | None = None) -> None:
        """Trace with this equality from now on. Without one that says anything new all sizes have to be numbers, as
        `error` says.
        """
        before = self.dims, list(self.equalities)
        if asked is not None and len(self.equalities) + len(self.numbers) <= _MOST:
            self._add(asked)
        if (self.dims, self.equalities) == before:
            why = str(error).strip().partition("\n")[0] if error else "the function asks too much of it"
            for name in sorted(self._symbols()):
                self._fix(name, why)
            self._add()

    def _add(self, *asked: Asked) -> None:
        self.equalities += asked
        facts = self._facts()
        for known in self.equalities:
            facts.add_equal(known.lhs, known.rhs)
        for name in sorted(self._symbols()):
            if facts.canonical(Dim.symbol(name)).is_const:
                self._fix(name, self.equalities[-1].line)
        numbers = {str(known.lhs): known.rhs for known in self.numbers}
        sides = [(known, known.lhs.substitute(numbers), known.rhs.substitute(numbers)) for known in self.equalities]
        self.equalities = [replace(known, lhs=a, rhs=b) for known, a, b in sides if a is not b]

    def pin(self, facts: ShapeFacts) -> bool:
        """Trace with the numbers that sizes have by the program's own needs, if there are such."""
        pinned = [name for name in sorted(self._symbols()) if facts.canonical(Dim.symbol(name)).is_const]
        for name in pinned:
            self._fix(name, self.equalities[-1].line)
        if pinned:
            self._add()
        return bool(pinned)

    def _symbols(self) -> set[str]:
        return {name for ds in self.dims for d in ds if d is not None for name in Dim.parse(d).symbols}

    def _fix(self, name: str, line: str) -> None:
        """Replace a symbol by its number at this call."""
        from hlo_disc.import_.jax_edge.size_questions import Asked

        number = Dim.const(self._sizes[name])
        self.numbers.append(Asked(Dim.symbol(name), "==", number, line))

        def fixed(d: str | None) -> str | None:
            new = None if d is None else Dim.parse(d).substitute({name: number})
            return None if new is None or new.is_const else str(new)

        self.dims = tuple(tuple(map(fixed, ds)) for ds in self.dims)


def symbol_sizes(dims: Dims, leaves: Sequence[Leaf], names: Sequence[str]) -> dict[str, int]:
    """Return the values of the dims' symbols at a call."""
    from hlo_disc.import_.sizes.symbols import Bindings, Input

    dynamic = [(n, leaf, ds) for n, leaf, ds in zip(names, leaves, dims, strict=True) if any(ds)]
    inputs = [
        Input(name, leaf.dtype, tuple(Dim.of(n if d is None else d) for n, d in zip(leaf.shape, ds, strict=True)))
        for name, leaf, ds in dynamic
    ]
    passed = {str(raw_dim(i, axis)): n for i, (_, leaf, _) in enumerate(dynamic) for axis, n in enumerate(leaf.shape)}
    return {name: size.evaluate(passed) for name, size in Bindings(inputs).symbols.items()}


def elsewhere(
    special: Traced, leaves: Sequence[Leaf], names: Sequence[str], constraints: Sequence[str]
) -> list[Leaf] | None:
    """Return the arguments at other sizes, if the trace of a call has found equalities; None if there are none."""
    from hlo_disc.dynamic_hlo.ops.reference import check
    from hlo_disc.import_.sizes.symbols import parse_constraints

    sizes = symbol_sizes(special.wanted, leaves, names)
    equal = [asked for asked in (*special.numbers, *special.asked) if asked.relation == "=="]
    moved = {name for asked in equal for name in asked.lhs.symbols | asked.rhs.symbols}
    moved |= {name for name, size in sizes.items() if size < 2}  # of which most is asked
    guards = parse_constraints(constraints)
    for factor in _FACTORS:
        others = sizes | {name: factor * (max(sizes[name], 1) + k) for k, name in enumerate(sorted(moved))}
        try:
            for guard in guards:
                check(guard, others)
        except ShapeError:
            continue
        return _at(others, special.wanted, leaves)
    return None


def where(guards: Sequence[Guard], dims: Dims, leaves: Sequence[Leaf], names: Sequence[str]) -> list[Leaf] | None:
    """Return the arguments at sizes near theirs at which the guards hold; None if none are found."""
    sizes = symbol_sizes(dims, leaves, names)
    moved = sorted({name for g in guards if broken([g], sizes) for name in g.lhs.symbols | g.rhs.symbols})
    tried = sorted({*range(4), *sizes.values(), 2 * max(sizes.values(), default=0) + 1})
    for values in itertools.islice(itertools.product(tried, repeat=len(moved)), _TRIED):
        others = sizes | dict(zip(moved, values, strict=True))
        if not broken(guards, others):
            return _at(others, dims, leaves)
    return None


def _at(sizes: Mapping[str, int], dims: Dims, leaves: Sequence[Leaf]) -> list[Leaf]:
    """Return the arguments at these sizes of their symbols."""
    shapes = [
        tuple(n if d is None else Dim.parse(d).evaluate(sizes) for n, d in zip(leaf.shape, ds, strict=True))
        for leaf, ds in zip(leaves, dims, strict=True)
    ]
    return [leaf._replace(shape=shape) for leaf, shape in zip(leaves, shapes, strict=True)]


def broken(asked: Sequence[Asked | Guard], sizes: Mapping[str, int]) -> int:
    """Return which of the conditions do not hold, one bit each, as `plan` stores them in `EnvLayout.asked`."""
    operations: dict[str, Callable[[int, int], int]] = {
        "add": operator.add,
        "mul": operator.mul,
        "floordiv": lambda x, y: x // (y or 1),
        "mod": lambda x, y: x % (y or 1),
        "min": min,
        "max": max,
    }

    def value(d: Dim) -> int:
        return d.lower(int, sizes.__getitem__, operations)

    holds = (RELATIONS[a.relation](value(a.lhs), value(a.rhs)) for a in asked)
    return functools.reduce(operator.or_, (1 << min(k, ASKED_BITS) for k, ok in enumerate(holds) if not ok), 0)


def active() -> bool:
    """Whether this thread is tracing a function for hlo_disc: functions that it calls become part of that program."""
    return getattr(_state, "active", False)


@contextmanager
def _tracing() -> Iterator[None]:
    outer, _state.active = active(), True
    try:
        yield
    finally:
        _state.active = outer


def flattened(
    fn: Callable[..., object],
    tree: Structure,
    stands_for: Callable[[PyTreeDef], tuple[Structure, Sequence[SymbolicSize]]] | None = None,
) -> tuple[Callable[..., list[jax.Array]], list[Structure]]:
    """The function of flat arrays to flat results, and where each trace of it leaves the tree of these.

    stands_for: makes of the tree what takes sizes from results that are there for them alone, and these sizes.
    """
    import jax.numpy as jnp
    from jax import tree_util

    out_tree: list[Any] = []

    @functools.wraps(fn)
    def flat(*arrays: jax.Array) -> list[jax.Array]:
        args, kwargs = tree.unflatten(arrays)
        results, results_tree = tree_util.tree_flatten(fn(*args, **kwargs))
        results_tree, sizes = stands_for(results_tree) if stands_for else (results_tree, [])
        out_tree[:] = [results_tree]
        return [*results, *(jnp.zeros((n, 0), bool) for n in sizes)]

    return flat, out_tree


def _results(avals: Sequence[ShapedArray]) -> tuple[Result, ...]:
    from jax import dtypes

    for aval in avals:
        if dtypes.issubdtype(aval.dtype, dtypes.extended) and not is_key(aval.dtype):
            raise UnsupportedOpError(f"{aval.str_short()} as a result is not supported: return its data")
    return tuple(Result(aval.dtype, aval.weak_type) for aval in avals)


def _mistake(flat: Callable[..., object], leaves: Sequence[Leaf]) -> Exception | None:
    """Return the error of tracing the function at the sizes of the call, none of them symbolic; None for no error."""
    import jax

    structs = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.weak) for leaf in leaves]
    try:
        jax.eval_shape(flat, *structs)
    except Exception as error:
        return error
    return None
