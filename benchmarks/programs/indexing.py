"""Sorts, gathers and scatters as JAX has them, each with a large shape, and most with an odd one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.program import Program
from benchmarks.programs.kernels import by_matrix, by_vectors, floats, integers, no_weights, of_inputs

ROWS = [dict(n=n, m=m, k=k) for n, m, k in ((100000, 64, 1000000), (30000, 768, 1001))]
ROW_STREAM = {"n": (1, 1000, 1), "m": (1, 100, 1), "k": (1, 1000, 1)}


def top_10(columns: int, rows: int) -> Program:
    return Program(
        f"top 10 of {columns}",
        f"of n rows of {columns}",
        of_inputs(lambda ops, x: jax.lax.top_k(x, 10)),
        no_weights,
        lambda n: [floats(n, columns)],
        dims=["(n, _)"],
        shapes=[dict(n=rows)],
        stream={"n": (1, 10, 1)},
    )


def scatter_add(ops: Any, x: Any, i: Any, updates: Any) -> Any:
    return x.at[i].add(updates)


PROGRAMS = [
    by_vectors("sort of integers", lambda ops, x: jnp.sort(x), lambda n: integers(1 << 30, n), sizes=(1000000,)),
    by_vectors("argsort", lambda ops, x: jnp.argsort(x), floats, sizes=(1000000, 1001)),
    by_vectors(
        "sort of pairs",
        lambda ops, *pairs: jax.lax.sort(pairs, num_keys=1),
        floats,
        lambda n: integers(n, n),
        sizes=(1000000,),
    ),
    by_matrix("sort of rows", "of", lambda ops, x: jnp.sort(x, axis=1), (1000, 1000), (100000, 10)),
    Program(
        "gather of rows of a matrix",
        "k rows of (n, m)",
        of_inputs(lambda ops, x, i: ops.take(x, i)),
        no_weights,
        lambda n, m, k: [floats(n, m), integers(n, k)],
        dims=["(n, m)", "(k)"],
        shapes=ROWS,
        stream=ROW_STREAM,
    ),
    Program(
        "scatter-add of rows to a matrix",
        "k rows to (n, m)",
        of_inputs(scatter_add),
        no_weights,
        lambda n, m, k: [floats(n, m), integers(n, k), floats(k, m)],
        dims=["(n, m)", "(k)", "(k, m)"],
        shapes=ROWS,
        stream=ROW_STREAM,
    ),
    Program(
        "scatter-add of scalars",
        "k to n",
        of_inputs(scatter_add),
        no_weights,
        lambda n, k: [floats(n), integers(n, k), floats(k)],
        dims=["(n)", "(k)", "(k)"],
        shapes=[dict(n=n, k=k) for n, k in ((1000000, 1000000), (10, 100000))],
        stream={"n": (1, 1000, 1), "k": (1, 1000, 1)},
    ),
    top_10(1000000, 1),
    top_10(1000, 1000),
]
