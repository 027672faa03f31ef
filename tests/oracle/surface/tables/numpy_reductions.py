"""Functions of jax.numpy that reduce, accumulate, sort, search or count."""

from __future__ import annotations

import jax.numpy as jnp

from surface.row import Table, each, on, table

_MATRIX = "f32[n, 3]"

TABLE: Table = table(
    each(
        "sum prod mean max min amax amin",
        on(_MATRIX),
        on(_MATRIX, axis=0),
        on("f32[3, n]", axis=-1, keepdims=True),
        on("i32[n]:small"),
        on("bf16[n, 2]", axis=0),
    ),
    each(
        "std var",
        on(_MATRIX),
        on(_MATRIX, axis=0, ddof=1),
        on("f32[3, n]", axis=-1, keepdims=True),
        on("i32[n]:small"),
        on("c64[n]"),
    ),
    each(
        "nansum nanprod nanmean nanmax nanmin nanstd nanvar",
        on("f32[n, 3]:special"),
        on("f32[3, n]:special", axis=-1, keepdims=True),
        on("f32[n, 3]:calm", axis=0),
    ),
    each("nancumsum nancumprod", on("f32[n, 3]:special", axis=0), on("f32[n, 3]:special")),
    each(
        "cumsum cumprod cumulative_sum cumulative_prod",
        on("f32[n, 3]:unit", axis=0),
        on("i32[3, n]:small", axis=-1),
        on("bool[n]", axis=0, dtype=jnp.int32),
    ),
    each("all any", on("bool[n, 3]"), on("f32[n, 3]", axis=0), on("i32[3, n]:small", axis=-1, keepdims=True)),
    each(
        "argmax argmin",
        on(_MATRIX),
        on(_MATRIX, axis=0),
        on("f32[3, n]:special", axis=-1, keepdims=True),
        on("i32[n]:small"),
    ),
    each("nanargmax nanargmin", on("f32[n, 3]:special"), on("f32[3, n]:special", axis=-1)),
    each("median nanmedian", on(_MATRIX), on(_MATRIX, axis=0), on("f32[3, n]:special", axis=-1, keepdims=True)),
    each(
        "quantile nanquantile",
        on(_MATRIX, q=0.3, axis=0),
        on("f32[3, n]", q=0.5, axis=-1, keepdims=True, method="nearest"),
        on("f32[n]", call=lambda f, x: f(x, jnp.array([0.1, 0.9]), method="midpoint")),
    ),
    each(
        "percentile nanpercentile",
        on(_MATRIX, q=30.0, axis=0),
        on("f32[3, n]", q=50.0, axis=-1, method="higher"),
        on("f32[n]", "f32[2]:unit", call=lambda f, x, q: f(x, 50 + 40 * q, method="lower")),
    ),
    {
        "average": [
            on(_MATRIX),
            on(_MATRIX, axis=0, keepdims=True),
            on("f32[3, n]", "f32[n]:positive", call=lambda f, x, w: f(x, axis=1, weights=w, returned=True)),
        ],
        "ptp": [on(_MATRIX), on(_MATRIX, axis=0), on("i32[3, n]:small", axis=-1, keepdims=True)],
        "count_nonzero": [on("bool[n, 3]"), on("i32[n, 3]:small", axis=0)],
        "diff": [on(_MATRIX, axis=0), on("i32[3, n]:small", n=2), on("f32[n]", prepend=0.0)],
        "ediff1d": [on(_MATRIX), on("f32[n]", to_begin=1.0, to_end=2.0)],
        "gradient": [on("f32[n]"), on("f32[n, 4]", axis=0), on("f32[n]", "f32[n]:sorted")],
        "trapezoid": [on("f32[n]"), on("f32[3, n]", "f32[n]:sorted"), on(_MATRIX, axis=0, dx=0.5)],
        "cov": [on("f32[3, n]"), on(_MATRIX, rowvar=False, ddof=0), on("f32[n]", "f32[n]")],
        "corrcoef": [on("f32[3, n]"), on(_MATRIX, rowvar=False)],
        # sorting
        "sort": [
            on(_MATRIX),
            on(_MATRIX, axis=0),
            on("i32[n]:small", descending=True),
            on("f32[n, 2]:special", axis=None),
        ],
        "argsort": [
            on(_MATRIX),
            on(_MATRIX, axis=0),
            on("i32[n]:small", descending=True),
            on("i32[n, 2]:small", axis=None),
        ],
        "lexsort": [on("i32[n]:small", "f32[n]", call=lambda f, x, y: f((x, y))), on("i32[2, n]:small")],
        "sort_complex": [on("c64[n]"), on("f32[n]")],
        "partition": [
            on("f32[n]", call=lambda f, x: jnp.sort(f(x, min(2, x.shape[0] - 1))[:2])),
            on("f32[n, 5]", kth=2),
        ],
        "argpartition": [on("i32[n, 5]:small", kth=2)],
        "searchsorted": [
            on("f32[n]:sorted", _MATRIX),
            on("f32[n]:sorted", "f32[5]", side="right"),
            on("i32[n]:sorted", "i32[n]:small", method="sort"),
            on("f32[n]:sorted", "f32[5]", method="compare_all"),
        ],
        "digitize": [on(_MATRIX, "f32[4]:sorted"), on("f32[5]", "f32[n]:sorted", right=True)],
        # sets and counts; a size that depends on data must be given
        "unique": [
            on("i32[n, 2]:small", call=lambda f, x: f(x, size=x.size)),
            on("i32[n]:small", return_inverse=True, return_counts=True, return_index=True, size=5, fill_value=-1),
            on("i32[n, 2]:below:2", axis=0, size=4),
        ],
        "unique_all": [on("i32[n]:small", size=6)],
        "unique_counts": [on("i32[n]:small", size=6)],
        "unique_inverse": [on("i32[n]:small", size=6)],
        "unique_values": [on("i32[n]:small", size=6), on("f32[n]", call=lambda f, x: f(x, size=x.shape[0]))],
        "union1d": [on("i32[n]:small", "i32[3]:small", call=lambda f, x, y: f(x, y, size=x.size + y.size))],
        "intersect1d": [
            on("i32[n]:small", "i32[5]:small", size=5),
            on("i32[n]:small", "i32[n]:small", size=4, return_indices=True),
        ],
        "setdiff1d": [on("i32[n]:small", "i32[3]:small", call=lambda f, x, y: f(x, y, size=x.shape[0], fill_value=0))],
        "setxor1d": [on("i32[n]:small", "i32[3]:small", size=8)],
        "isin": [
            on("i32[n, 3]:small", "i32[4]:small"),
            on("i32[4]:small", "i32[n]:small", invert=True),
            on("i32[n]:small", "i32[5]:small", method="sort"),
        ],
        "bincount": [
            on("i32[n]:below:6", length=6),
            on("i32[n]:below:6", "f32[n]", call=lambda f, x, w: f(x, weights=w, length=9)),
            on("i32[n]:below:6", call=lambda f, x: f(x, length=x.shape[0])),
        ],
        "histogram": [
            on(_MATRIX),
            on("f32[n]", bins=4, range=(-1.0, 1.0), density=True),
            on("f32[n]", "f32[5]:sorted"),
        ],
        "histogram2d": [on("f32[n]", "f32[n]", bins=4)],
        "histogramdd": [on("f32[n, 2]", bins=3), on("f32[n, 2]", bins=3, density=True)],
        "histogram_bin_edges": [on(_MATRIX), on("f32[n]", bins=4)],
        "nonzero": [
            on("i32[n, 3]:below:2", size=8),
            on("bool[n]", call=lambda f, x: f(x, size=x.shape[0], fill_value=-1)),
        ],
        "flatnonzero": [on("bool[n, 3]", size=5), on("bool[n]", call=lambda f, x: f(x, size=x.shape[0]))],
        "argwhere": [on("bool[n, 3]", size=5), on("bool[n]", call=lambda f, x: f(x, size=x.shape[0]))],
        "apply_along_axis": [on(_MATRIX, call=lambda f, x: f(lambda v: v - v.mean(), 0, x))],
        "apply_over_axes": [on(_MATRIX, call=lambda f, x: f(jnp.sum, x, [0, 1]))],
    },
)
