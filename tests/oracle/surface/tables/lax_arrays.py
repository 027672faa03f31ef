"""Functions of jax.lax that move, reduce, sort, index and multiply arrays."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from surface.row import Table, each, on, table

_DOT = (((1,), (0,)), ((), ()))
_BATCHED_DOT = (((2,), (1,)), ((0,), (0,)))
_ROWS = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
_SCATTER_ROWS = lax.ScatterDimensionNumbers(
    update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
)
_RAGGED = lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), [0], [0])
_NHWC = ("NHWC", "HWIO", "NHWC")
_IMAGE, _KERNEL = "f32[n, 2, 8, 8]", "f32[3, 2, 3, 3]"  # NCHW, OIHW

_WIDE = "f32[2, 2, n, 6]"  # the size is one that windows slide over

VIEWS: Table = table(
    each("broadcast_shapes", on("f32[n, 3]", "f32[1, 3]", call=lambda f, x, y: jnp.ones(f(x.shape, y.shape)))),
    {
        "broadcast": [on("f32[n]", sizes=(2, 3)), on("f32[3]", "f32[n]", call=lambda f, x, y: f(x, y.shape))],
        "broadcast_in_dim": [
            on("f32[n]", call=lambda f, x: f(x, (2, *x.shape), (1,))),
            on("f32[3]", "f32[n]", call=lambda f, x, y: f(x, (3, *y.shape), (0,))),
        ],
        "shape_as_value": [on("f32[n, 3]", call=lambda f, x: f(x.shape))],
        "broadcast_like": [on("f32[3]", "f32[n, 3]")],
        "broadcast_to_rank": [on("f32[n]", rank=3)],
        "broadcasted_iota": [on("f32[n, 3]", call=lambda f, x: f(jnp.int32, x.shape, 0))],
        "iota": [on("f32[n]", call=lambda f, x: f(jnp.float32, x.shape[0]))],
        "full": [on("f32[n, 3]", call=lambda f, x: f(x.shape, 2.0))],
        "full_like": [on("f32[n, 3]", fill_value=2), on("f32[n]", fill_value=1, dtype=jnp.int32)],
        "collapse": [on("f32[2, n, 3]", start_dimension=1), on("f32[2, n, 3]", start_dimension=0, stop_dimension=2)],
        "expand_dims": [on("f32[n, 3]", dimensions=(0, 2))],
        "squeeze": [on("f32[n, 1, 3]", dimensions=(1,))],
        "reshape": [
            on("f32[n, 6]", call=lambda f, x: f(x, (x.shape[0], 2, 3))),
            on("f32[n, 6]", call=lambda f, x: f(x, (x.size,))),
        ],
        "rev": [on("f32[n, 3]", dimensions=(0,))],
        "transpose": [on("f32[n, 3, 2]", permutation=(2, 0, 1))],
        "tile": [on("f32[n, 3]", reps=(2, 1))],
        "slice": [
            on("f32[n, 5]", call=lambda f, x: f(x, (0, 1), (x.shape[0], 4))),
            on("f32[n, 5]", call=lambda f, x: f(x, (0, 0), x.shape, (2, 2))),
        ],
        "slice_in_dim": [
            on("f32[n, 5]", start_index=0, limit_index=-1),
            on("f32[n, 5]", start_index=1, limit_index=None, stride=2, axis=1),
        ],
        "index_in_dim": [on("f32[n, 3]", index=-1), on("f32[3, n]", index=1, keepdims=False)],
        "index_take": [on("f32[n, 3]", "i32[4]:below:n", call=lambda f, x, i: f(x, (i,), (0,)))],
        "dynamic_slice": [
            on("f32[n, 3]", "i32[]:around:n", call=lambda f, x, i: f(x, (i, 0), (x.shape[0] // 2, 2))),
            on("f32[n, 3]", "i32[]:below:n", call=lambda f, x, i: f(x, (0, i), (x.shape[0], 1))),
        ],
        "dynamic_slice_in_dim": [
            on("f32[n, 3]", "i32[]:below:n", slice_size=1),
            on("f32[n, 3]", "i32[]:below:3", slice_size=2, axis=1),
        ],
        "dynamic_index_in_dim": [on("f32[n, 3]", "i32[]:below:n"), on("f32[3, n]", "i32[]:below:3", keepdims=False)],
        "dynamic_update_slice": [
            on("f32[n, 3]", "f32[1, 2]", "i32[]:below:n", call=lambda f, x, y, i: f(x, y, (i, 1)))
        ],
        "dynamic_update_slice_in_dim": [on("f32[n, 3]", "f32[1, 3]", "i32[]:below:n", axis=0)],
        "dynamic_update_index_in_dim": [on("f32[n, 3]", "f32[3]", "i32[]:below:n", axis=0)],
        "pad": [
            on("f32[n, 3]", call=lambda f, x: f(x, 1.0, ((1, 2, 0), (0, 1, 1)))),
            on("f32[n, 3]", call=lambda f, x: f(x, 1.0, ((2, -1, 1), (0, 0, 0)))),
        ],
        "concatenate": [
            on("f32[n, 3]", "f32[2, 3]", call=lambda f, *xs: f(xs, 0)),
            on("f32[n, 3]", "f32[n, n]", call=lambda f, *xs: f(xs, 1)),
        ],
        "stack": [on("f32[n, 3]", "f32[n, 3]", call=lambda f, *xs: f(xs, 1))],
        "unstack": [on("f32[3, n]", call=lambda f, x: f(x)), on("f32[n, 2]", call=lambda f, x: f(x))],
        "split": [on("f32[n, 6]", sizes=(2, 4), axis=1), on("f32[n, 3]", call=lambda f, x: f(x, (1, x.shape[0] - 1)))],
        "gather": [
            on("f32[n, 3]", "i32[4, 1]:below:n", call=lambda f, x, i: f(x, i, _ROWS, (1, 3))),
            on(
                "f32[n, 3]",
                "i32[n, 1]:around:n",
                call=lambda f, x, i: f(x, i, _ROWS, (1, 2), mode="fill", fill_value=9.0),
            ),
        ],
        "scatter_apply": [
            on(
                "f32[n, 3]",
                "i32[4, 1]:below:n",
                call=lambda f, x, i: f(x, i, lambda v: v * 2, _SCATTER_ROWS, update_shape=(4, 3)),
            )
        ],
    },
    each(
        "scatter scatter_add scatter_max scatter_min scatter_mul scatter_sub",
        on("f32[n, 3]", "i32[1, 1]:below:n", "f32[1, 3]", dimension_numbers=_SCATTER_ROWS),
        on(
            "f32[5, 3]",
            "i32[n, 1]:below:5",
            "f32[n, 3]:unit",
            call=lambda f, x, i, u: f(x, i, jnp.round(u), _SCATTER_ROWS),
        ),
    ),
)

REDUCTIONS: Table = table(
    each(
        "argmax argmin",
        on("f32[n, 3]", axis=0, index_dtype=jnp.int32),
        on("i32[3, n]:small", axis=1, index_dtype=jnp.int32),
    ),
    each(
        "reduce_sum reduce_max reduce_min reduce_prod", on("f32[n, 3]", axes=(0,)), on("i32[3, n]:small", axes=(0, 1))
    ),
    each("reduce_and reduce_or reduce_xor", on("bool[n, 3]", axes=(0,)), on("i32[3, n]:full", axes=(0, 1))),
    each("cumsum cummax cummin cumprod cumlogsumexp", on("f32[n, 3]:unit"), on("f32[3, n]:unit", axis=1, reverse=True)),
    each(
        "top_k",
        on("f32[3, n]", call=lambda f, x: f(x, x.shape[1] // 2)),
        on("f32[n, 5]", k=3),
        on("i32[5, n]", k=2, axis=0),
    ),
    each("approx_max_k approx_min_k", on("f32[n, 5]", k=3), on("f32[3, n]", k=1)),
    {
        "reduce": [
            on("f32[n, 3]", call=lambda f, x: f(x, 0.0, lax.add, (0,))),
            on(
                "f32[n, 3]",
                "i32[n, 3]:small",
                call=lambda f, x, i: f(
                    (x, i), (-jnp.inf, 0), lambda a, b: (lax.max(a[0], b[0]), lax.max(a[1], b[1])), (1,)
                ),
            ),
        ],
        "reduce_window": [
            on("f32[n, 8]", call=lambda f, x: f(x, -jnp.inf, lax.max, (1, 3), (1, 2), "VALID")),
            on("f32[n, 3]", call=lambda f, x: f(x, 0.0, lax.add, (3, 1), (1, 1), "SAME")),
            on("f32[n]", call=lambda f, x: f(x, 0.0, lax.add, (2,), (2,), "VALID")),
        ],
        "sort": [
            on("f32[n, 3]"),
            on("i32[n, 3]:small", dimension=0),
            on("i32[n]:small", "f32[n]", call=lambda f, *xs: f(xs, num_keys=2)),
        ],
        "sort_key_val": [on("i32[n]:small", "f32[n]"), on("f32[n, 3]", "f32[n, 3]", dimension=0)],
        "associative_scan": [
            on("f32[n, 3]:unit", call=lambda f, x: f(jnp.add, x)),
            on("f32[3, n]:unit", call=lambda f, x: f(jnp.maximum, x, reverse=True, axis=1)),
        ],
    },
)

PRODUCTS: Table = {
    "dot": [on("f32[n, 3]", "f32[3, n]"), on("f32[n]", "f32[n]")],
    "dot_general": [
        on("f32[n, 3]", "f32[3, n]", dimension_numbers=_DOT),
        on("f32[2, n, 3]", "f32[2, 3, n]", dimension_numbers=_BATCHED_DOT),
        on("i8[n, 8]:small", "i8[8, 3]:small", dimension_numbers=_DOT, preferred_element_type=jnp.int32),
    ],
    "batch_matmul": [on("f32[n, 2, 3]", "f32[n, 3, 4]"), on("f32[2, n, 3]", "f32[2, 3, n]")],
    "ragged_dot": [
        on("f32[n, 4]", "f32[3, 4, 5]", call=lambda f, x, y: f(x, y, jnp.array([1, 0, 1], jnp.int32))),
        on("f32[6, n]", "f32[2, n, 5]", call=lambda f, x, y: f(x, y, jnp.array([2, 4], jnp.int32))),
    ],
    "ragged_dot_general": [
        on("f32[n, 4]", "f32[3, 4, 5]", call=lambda f, x, y: f(x, y, jnp.array([1, 0, 1], jnp.int32), _RAGGED))
    ],
    "scaled_dot": [on("bf16[n, 32]:unit", "bf16[32, 3]:unit")],
    "conv": [
        on(_IMAGE, _KERNEL, window_strides=(1, 1), padding="SAME"),
        on(_WIDE, _KERNEL, window_strides=(1, 1), padding="SAME"),
        on(_WIDE, _KERNEL, window_strides=(2, 2), padding="SAME"),
        on(_WIDE, _KERNEL, window_strides=(1, 1), padding="VALID"),
    ],
    "conv_with_general_padding": [
        on(_IMAGE, _KERNEL, window_strides=(2, 1), padding=((1, 0), (0, 1)), lhs_dilation=(1, 2), rhs_dilation=(2, 1))
    ],
    "conv_general_dilated": [
        on("f32[n, 8, 8, 2]", "f32[3, 3, 2, 3]", window_strides=(1, 1), padding="SAME", dimension_numbers=_NHWC),
        on("f32[n, 4, 8, 8]", "f32[6, 2, 3, 3]", window_strides=(1, 1), padding="VALID", feature_group_count=2),
        on(_WIDE, _KERNEL, window_strides=(1, 1), padding=((1, 1), (1, 1)), rhs_dilation=(2, 1)),
        on("f32[2, n, 9]", "f32[3, n, 3]", window_strides=(1,), padding="SAME"),
    ],
    "conv_general_dilated_local": [
        on(_IMAGE, "f32[3, 8, 7, 7]", window_strides=(1, 1), padding="VALID", filter_shape=(2, 2))
    ],
    "conv_general_dilated_patches": [
        on(_IMAGE, filter_shape=(2, 3), window_strides=(1, 1), padding="VALID"),
        on(_WIDE, filter_shape=(2, 3), window_strides=(1, 1), padding="SAME"),
    ],
    "conv_transpose": [
        on("f32[n, 4, 4, 2]", "f32[3, 3, 2, 3]", strides=(2, 2), padding="SAME"),
        on("f32[2, n, 4, 2]", "f32[3, 3, 2, 3]", strides=(2, 1), padding="VALID"),
    ],
    "conv_shape_tuple": [on(_IMAGE, _KERNEL, call=lambda f, x, k: jnp.ones(f(x.shape, k.shape, (1, 1), "SAME")))],
    "conv_general_shape_tuple": [
        on(
            "f32[n, 8, 8, 2]",
            "f32[3, 3, 2, 3]",
            call=lambda f, x, k: jnp.ones(f(x.shape, k.shape, (1, 1), "SAME", _NHWC)),
        )
    ],
    "conv_transpose_shape_tuple": [
        on(
            "f32[n, 8, 8, 2]",
            "f32[3, 3, 2, 3]",
            call=lambda f, x, k: jnp.ones(f(x.shape, k.shape, (1, 1), "SAME", _NHWC)),
        )
    ],
    "conv_dimension_numbers": [
        on(
            "f32[n, 8, 8, 2]",
            "f32[3, 3, 2, 3]",
            call=lambda f, x, k: lax.conv_general_dilated(
                x, k, (1, 1), "SAME", dimension_numbers=f(x.shape, k.shape, _NHWC)
            ),
        )
    ],
    "reduce_window_shape_tuple": [
        on("f32[n, 8]", call=lambda f, x: jnp.ones(f(x.shape, (1, 3), (1, 2), ((0, 0), (1, 1)))))
    ],
    "padtype_to_pads": [
        on(
            "f32[n, 8]",
            call=lambda f, x: lax.reduce_window(x, 0.0, lax.add, (3, 3), (1, 1), f(x.shape, (3, 3), (1, 1), "SAME")),
        )
    ],
    "fft": [
        on("c64[n, 8]:calm", fft_type="fft", fft_lengths=(8,)),
        on("f32[3, n]:calm", call=lambda f, x: f(x, "rfft", (x.shape[1],))),
    ],
}
