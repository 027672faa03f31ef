"""Sorts, gathers and scatters, each with a large shape and an odd one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.kernels import Kernel, floats, matrices


def indices(count: int, largest: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(count).integers(0, largest, count).astype(np.int32))


def gather_rows(x, i):
    return x[i]


def scatter_add(x, i, updates):
    return x.at[i].add(updates)


def sort_pairs(keys, values):
    return jax.lax.sort((keys, values), num_keys=1)


def sort_rows(x):
    return jnp.sort(x, axis=1)


def top_10(x):
    return jax.lax.top_k(x, 10)


def table(n: int, m: int, k: int) -> tuple[jax.Array, jax.Array]:
    return floats(n, m), indices(k, n)


INDEXING = (
    Kernel("sort", jnp.sort, {"a": "(n)"}, lambda n: (floats(n),), (dict(n=1000000), dict(n=1001))),
    Kernel("sort of integers", jnp.sort, {"a": "(n)"}, lambda n: (indices(n, 1 << 30),), (dict(n=1000000),)),
    Kernel("argsort", jnp.argsort, {"a": "(n)"}, lambda n: (floats(n),), (dict(n=1000000), dict(n=1001))),
    Kernel(
        "sort of pairs",
        sort_pairs,
        {"keys": "(n)", "values": "(n)"},
        lambda n: (floats(n), indices(n, n)),
        (dict(n=1000000),),
    ),
    Kernel(
        "sort of rows",
        sort_rows,
        {"x": "(n, m)"},
        lambda n, m: (floats(n, m),),
        matrices((1000, 1000), (100000, 10)),
    ),
    Kernel(
        "gather of rows",
        gather_rows,
        {"x": "(n, m)", "i": "(k)"},
        table,
        (dict(n=100000, m=64, k=1000000), dict(n=30000, m=768, k=1001)),
    ),
    Kernel(
        "scatter-add of rows",
        scatter_add,
        {"x": "(n, m)", "i": "(k)", "updates": "(k, m)"},
        lambda n, m, k: (*table(n, m, k), floats(k, m)),
        (dict(n=100000, m=64, k=1000000), dict(n=30000, m=768, k=1001)),
    ),
    Kernel(
        "scatter-add of scalars",
        scatter_add,
        {"x": "(n)", "i": "(k)", "updates": "(k)"},
        lambda n, k: (floats(n), indices(k, n), floats(k)),
        (dict(n=1000000, k=1000000), dict(n=10, k=100000)),
    ),
    Kernel("top 10", top_10, {"x": "(n, _)"}, lambda n, m: (floats(n, m),), matrices((1, 1000000), (1000, 1000))),
)
