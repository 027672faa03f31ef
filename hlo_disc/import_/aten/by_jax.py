"""Ops whose formula JAX has: special functions, linear algebra. JAX traces it at the sizes of the operands.

What JAX lowers is read as any program of JAX is, and becomes part of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_ import symbols
from hlo_disc.import_.jax import from_jax

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def traced(
    r: AtenReader, fn: Callable[..., Any], *values: Value, at_least: Sequence[tuple[Dim, Dim]] = ()
) -> list[Value]:
    """The arrays that `fn` makes of arrays like these, flattened. Raises what tracing and reading it raise.

    at_least: pairs of sizes of which the first must not be smaller, which JAX asks for.
    """
    named = {d: r.named(r.facts.canonical(d)) for x in values for d in x.shape}
    dims = [[str(named[d]) for d in x.shape] for x in values]
    leaves = [jax.ShapeDtypeStruct((0,) * x.rank, x.dtype) for x in values]

    known = [f"{named[a]} >= {named[b]}" for a, b in at_least if a is not b and not (a.is_const and b.is_const)]

    def flat(*arrays: Any) -> list[Any]:
        return jax.tree.leaves(fn(*arrays))

    with jax.enable_x64(True):
        graph, _ = from_jax(flat, leaves, dims, [f"operand {i}" for i in range(len(values))], known)
    if graph.definitions:
        r.unsupported("sizes that depend on data are not supported here")
    for guard in graph.guards:
        if not any(name.startswith("%") for name in guard.lhs.symbols | guard.rhs.symbols):
            r.guards.append(guard)
            symbols.add_fact(r.facts, guard.lhs, guard.relation, guard.rhs)
    inside = dict(zip(graph.inputs, values, strict=True))
    for op in graph.ops:
        made = r.emit_all(op.name, [inside[x] for x in op.operands], **op.attrs)
        inside.update(zip(op.results, made, strict=True))
    return [inside[x] for x in graph.outputs]


def by_jax(fn: Callable[..., Any]) -> Callable[..., Value]:
    """A formula for `elementwise`, or a handler of an op whose only arguments are tensors: `fn` of arrays."""

    def handle(r: AtenReader, *values: Value) -> Any:
        made = traced(r, fn, *values)
        return made[0] if len(made) == 1 else made

    return handle
