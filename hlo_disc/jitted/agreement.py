"""Decides whether a program may serve calls that break its asked conditions: if their trace gives the same program.

JAX itself asks many questions, for example whether a size is 1 when it broadcasts, and mostly traces the same program
for either answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from hlo_disc.abi import ASKED_BITS
from hlo_disc.dynamic_hlo.ir.graph import NEGATED, Graph, Guard, has_effect
from hlo_disc.dynamic_hlo.passes.alike import alike
from hlo_disc.dynamic_hlo.passes.rules.equal import equal
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.errors import ShapeError
from hlo_disc.import_.sizes.symbols import add_fact
from hlo_disc.tracing.trace import Traced

# So many more traces may be needed for the calls that break the same conditions, but answer other questions.
_TRACES = 4


def agree(program: Traced, unmet: int, special: Traced, at: Callable[[Sequence[Guard]], Traced | None]) -> bool:
    """Whether a program is right at all calls that break just these of its asked conditions, one bit each.

    special: the trace of such a call. at: sizes at which these conditions hold, None if none are found.
    """
    general = program.graph
    if unmet >> ASKED_BITS:
        return False
    broken = [asked for k, asked in enumerate(general.asked) if unmet >> k & 1]
    if any(asked.relation == "==" for asked in broken):  # what was compiled relies on it
        return False
    parts = [[_negated(asked) if asked in broken else asked for asked in general.asked]]
    traced: Traced | None = special
    for others in range(_TRACES, -1, -1):
        if traced is None or (traced.out_tree, traced.results) != (program.out_tree, program.results):
            return False
        left = _left(general, parts.pop(), traced)
        if left is None or len(parts) + len(left) > others:
            return False
        parts += left
        if not parts:
            return True
        traced = at(parts[-1])
    return False


def _negated(guard: Guard) -> Guard:
    return replace(guard, relation=NEGATED[guard.relation])


def _left(general: Graph, region: Sequence[Guard], special: Traced) -> list[list[Guard]] | None:
    """Return the parts of a region for which `special` was not traced; None if `general` differs in its own parts."""
    needed = [asked.guard() for asked in (*special.numbers, *special.asked)]
    left = []
    try:
        for guard in needed:
            if not _holds(guard, [*region, *general.guards], _facts(general, region)):
                left.append([*region, _negated(guard)])
                region = [*region, guard]
        return left if _same(general, region, special.graph) else None
    except (ShapeError, ZeroDivisionError):  # the general program makes no sense at such sizes
        return None


def _same(general: Graph, region: Sequence[Guard], special: Graph) -> bool:
    for one, other in ((general, special), (special, general)):  # they refuse the same calls
        facts = _facts(one, region)
        if not all(_holds(guard, [*region, *one.guards], facts) for guard in _on_symbols(other)):
            return False
    facts = _facts(general, region)
    if _empty(general, facts) and _empty(special, facts):
        shapes = ([tuple(map(facts.canonical, v.shape)) for v in g.outputs] for g in (general, special))
        return next(shapes) == next(shapes)
    left, right = (alike(replace(g, facts=facts, guards=(), asked=())) for g in (general, special))
    return equal(left, right)


def _facts(graph: Graph, region: Iterable[Guard]) -> ShapeFacts:
    facts = ShapeFacts()
    for d in {d for value in graph.inputs for d in value.shape}:
        facts.add_at_least(d, ZERO)
    for guard in (*region, *_on_symbols(graph)):
        with suppress(ZeroDivisionError):  # says nothing: it was asked after what is broken
            add_fact(facts, guard.lhs, guard.relation, guard.rhs)
    return facts


def _on_symbols(graph: Graph) -> list[Guard]:
    """Return the guards except those that say what the symbols are."""
    known = graph.bindings.keys()
    return [guard for guard in graph.guards if guard.lhs.symbols <= known and guard.rhs.symbols <= known]


def _empty(graph: Graph, facts: ShapeFacts) -> bool:
    """Whether nothing is computed: all results are known to be empty, and there are no effects."""
    empty = all(facts.equal(dim_product(value.shape), ZERO) is Truth.YES for value in graph.outputs)
    return empty and not any(map(has_effect, graph.ops))


def _holds(guard: Guard, known: Sequence[Guard], facts: ShapeFacts) -> bool:
    """Whether the guard follows from the facts, or is a known one."""
    if facts.holds(guard.lhs, guard.relation, guard.rhs) is Truth.YES:
        return True
    said = (guard.relation, facts.canonical(guard.lhs - guard.rhs))
    return any((other.relation, facts.canonical(other.lhs - other.rhs)) == said for other in known)
