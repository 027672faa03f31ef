"""Ops by formulas of JAX: special functions, linear algebra. JAX traces the formula at the sizes of the operands.

The lowered program is read like any program of JAX, and becomes part of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.construction import Construction
from hlo_disc.import_.handlers.arrays import Array
from hlo_disc.import_.inlined import inlined
from hlo_disc.import_.jax_later import jax


def traced(
    r: Construction, fn: Callable[..., object], *arrays: Array, at_least: Sequence[tuple[Dim, Dim]] = ()
) -> list[Array]:
    """Return the arrays that `fn` computes from arrays like these, flattened. Raises the errors of tracing and reading.

    at_least: pairs of sizes of which the first is at least the second, because JAX asks about it.
    """
    from hlo_disc.import_.jax import from_jax  # with all of JAX

    sizes = dict.fromkeys(r.facts.canonical(d) for x in arrays for d in x.shape)
    named = {d: d if d.is_const else Dim.symbol(f"size{k}") for k, d in enumerate(sizes)}

    def name(d: Dim) -> str:
        return str(named[r.facts.canonical(d)])

    dims = [list(map(name, x.shape)) for x in arrays]
    leaves = [jax.ShapeDtypeStruct((0,) * x.rank, x.dtype) for x in arrays]
    known = [f"{name(a)} >= {name(b)}" for a, b in at_least if a is not b and not (a.is_const and b.is_const)]

    def flat(*tracers: jax.Array) -> list[jax.Array]:
        results: list[jax.Array] = jax.tree.leaves(fn(*tracers))
        return results

    with jax.enable_x64(True):
        graph, _ = from_jax(flat, leaves, dims, [f"operand {i}" for i in range(len(arrays))], known)
    sizes_of = {str(symbol): d for d, symbol in named.items() if not d.is_const}
    return [Array(r, x) for x in inlined(r, graph, [x.value for x in arrays], sizes_of)]


def by_jax(fn: Callable[..., object]) -> Callable[..., Any]:
    """Make a formula for `elementwise`, or a handler of an op that has only tensor arguments, from `fn` of arrays."""

    def handle(r: Construction, *arrays: Array) -> Any:
        made = traced(r, fn, *arrays)
        return made[0] if len(made) == 1 else made

    return handle
