"""Functions of jax.numpy that move, join, pick and put elements, and that make arrays of sizes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from surface.row import Table, each, on, table

_MATRIX = on("f32[n, 3]")


TABLE: Table = table(
    each("atleast_1d atleast_2d atleast_3d", _MATRIX, on("f32[n]"), on("f32[n]", "f32[]")),
    each("flip", on("f32[n, 3]"), on("f32[n, 3]", axis=0)),
    each("fliplr flipud matrix_transpose", _MATRIX),
    each("transpose permute_dims", on("f32[n, 3, 2]", axes=(2, 0, 1))),
    each("array_split", on("f32[n, 3]", call=lambda f, x: f(x, 3)), on("f32[n, 6]", indices_or_sections=4, axis=1)),
    each(
        "split",
        on("f32[6, n]", call=lambda f, x: f(x, 3)),
        on("f32[n, 3]", indices_or_sections=[2, 5]),
        on("f32[n, 3]", call=lambda f, x: f(x, x.shape[0])),
    ),
    each("vsplit", on("f32[6, n]", call=lambda f, x: f(x, 3))),
    each("hsplit", on("f32[n, 6]", call=lambda f, x: f(x, 3)), on("f32[n, 6]", indices_or_sections=[2, 3])),
    each("dsplit", on("f32[n, 2, 6]", call=lambda f, x: f(x, 3))),
    each(
        "stack",
        on("f32[n, 3]", "f32[n, 3]", call=lambda f, x, y: f([x, y], axis=1)),
        on("f32[n]", "i32[n]", call=lambda f, x, y: f([x, y])),
    ),
    each(
        "hstack vstack dstack column_stack",
        on("f32[n, 3]", "f32[n, 3]", call=lambda f, x, y: f([x, y])),
        on("f32[n]", "i32[n]:small", call=lambda f, x, y: f([x, y])),
    ),
    each(
        "concatenate concat",
        on("f32[n, 3]", "f32[2, 3]", call=lambda f, x, y: f([x, y])),
        on("f32[n, 3]", "i32[n, n]:small", call=lambda f, x, y: f([x, y], axis=1)),
        on("f32[n]", "f32[n]", call=lambda f, x, y: f([x, y, x])),
    ),
    each("zeros_like ones_like empty_like", _MATRIX, on("f32[n]", dtype=jnp.int32), on("i32[n]", shape=(2, 3))),
    each(
        "zeros ones empty",
        on("f32[n, 3]", call=lambda f, x: f(x.shape)),
        on("f32[n]", call=lambda f, x: f(x.shape[0], jnp.int32)),
        on("f32[n]", call=lambda f, x: x + f(x.shape)),
    ),
    each("tril triu", on("f32[n, 3]"), on("f32[n, n]", k=1), on("f32[2, 3, n]", k=-1)),
    each(
        "tril_indices triu_indices",
        on("f32[n]", call=lambda f, x: f(x.shape[0])),
        on("f32[n]", call=lambda f, x: f(x.shape[0], 1, 4)),
    ),
    each("tril_indices_from triu_indices_from", on("f32[n, n]"), on("f32[n, 4]", k=1)),
    each("bartlett blackman hamming hanning", on("f32[n]", call=lambda f, x: f(x.shape[0]))),
    {
        "append": [on("f32[n, 3]", "f32[2]"), on("f32[n, 3]", "f32[2, 3]", axis=0)],
        "block": [on("f32[n, 3]", "f32[n, 2]", call=lambda f, x, y: f([[x, y], [y, x]]))],
        "broadcast_arrays": [on("f32[n, 3]", "f32[3]"), on("f32[n, 1]", "f32[n]")],
        "broadcast_shapes": [on("f32[n, 3]", "f32[3]", call=lambda f, x, y: jnp.zeros(f(x.shape, y.shape)))],
        "broadcast_to": [
            on("f32[n]", call=lambda f, x: f(x, (2, *x.shape))),
            on("f32[1, 3]", "f32[n]", call=lambda f, x, y: f(x, (y.shape[0], 3))),
        ],
        "expand_dims": [on("f32[n, 3]", axis=1), on("f32[n]", axis=(0, -1))],
        "squeeze": [on("f32[n, 1, 3]", axis=1), on("f32[n, 1]"), on("f32[1, n, 1]", axis=(0, 2))],
        "moveaxis": [
            on("f32[n, 3, 2]", source=0, destination=-1),
            on("f32[n, 3, 2]", source=(0, 1), destination=(2, 0)),
        ],
        "rollaxis": [on("f32[n, 3, 2]", axis=2), on("f32[2, 3, n]", axis=2, start=1)],
        "swapaxes": [on("f32[n, 3, 2]", axis1=0, axis2=2)],
        "ravel": [_MATRIX, on("f32[n, 3]", order="F")],
        "reshape": [
            on("f32[n, 6]", call=lambda f, x: f(x, (-1, 3))),
            on("f32[n, 6]", call=lambda f, x: f(x, (x.shape[0], 2, 3))),
            on("f32[n, 6]", call=lambda f, x: f(x, (6, -1), order="F")),
            on("f32[n, 4]", call=lambda f, x: f(x, -1)),
            on("f32[n, n]", call=lambda f, x: f(x, (-1, 1))),
        ],
        "resize": [
            on("f32[n, 3]", new_shape=(2, 4)),
            on("f32[3]", "f32[n]", call=lambda f, x, y: f(x, (y.shape[0], 2))),
        ],
        "repeat": [
            on("f32[n, 3]", repeats=2),
            on("f32[n, 3]", repeats=3, axis=0),
            on("f32[n]", "i32[n]:below:3", call=lambda f, x, r: f(x, r, total_repeat_length=9)),
            on("f32[3, n]", call=lambda f, x: f(x, jnp.array([2, 0, 1]), axis=0, total_repeat_length=3)),
        ],
        "tile": [
            on("f32[n, 3]", reps=2),
            on("f32[n]", reps=(2, 3)),
            on("f32[3]", "f32[n]", call=lambda f, x, y: f(x, y.shape[0])),
        ],
        "roll": [
            on("f32[n, 3]", shift=2),
            on("f32[n, 3]", shift=-1, axis=0),
            on("f32[n, 3]", shift=(1, 2), axis=(0, 1)),
            on("f32[n]", "i32[]:small", call=lambda f, x, s: f(x, s)),
        ],
        "rot90": [_MATRIX, on("f32[n, 3]", k=2), on("f32[2, n, 3]", k=3, axes=(1, 2))],
        "pad": [
            on("f32[n, 3]", pad_width=1),
            on("f32[n, 3]", pad_width=((1, 2), (0, 3)), constant_values=5.0),
            *(
                on("f32[n, 3]", pad_width=((2, 1), (0, 0)), mode=mode)
                for mode in (
                    "edge",
                    "reflect",
                    "symmetric",
                    "wrap",
                    "linear_ramp",
                    "maximum",
                    "mean",
                    "median",
                    "minimum",
                )
            ),
        ],
        "unstack": [on("f32[3, n]"), on("f32[n, 3]", axis=1), on("f32[n, 3]")],
        # picking
        "take": [
            on("f32[n, 3]", "i32[4]:around:n", axis=0),
            on("f32[n, 3]", "i32[4]:around:n", axis=0, mode="clip"),
            on("f32[n]", "i32[n, 2]:below:n", mode="wrap"),
            on("f32[n]", "i32[3]:around:n", mode="fill", fill_value=7.0),
        ],
        "take_along_axis": [
            on("f32[n, 3]", "i32[n, 2]:below:3", axis=1),
            on("f32[n, 3]", "i32[4, 3]:below:n", axis=0),
            on("f32[n, 3]", "i32[n]:below:n", axis=None),
        ],
        "choose": [on("i32[n]:below:2", "f32[n]", "f32[n]", call=lambda f, i, x, y: f(i, [x, y], mode="clip"))],
        "compress": [
            on("bool[n]", "f32[n, 3]", axis=0, size=4),
            on("bool[n]", "f32[n]", call=lambda f, c, x: f(c, x, size=x.shape[0])),
        ],
        "extract": [
            on("bool[n]", "f32[n]", size=4),
            on("bool[n]", "f32[n]", call=lambda f, c, x: f(c, x, size=x.shape[0], fill_value=-1)),
        ],
        "diag": [on("f32[n]"), on("f32[n]", k=1), on("f32[n, n]"), on("f32[n, 3]", k=-1)],
        "diagflat": [on("f32[n, 2]"), on("f32[n]", k=-1)],
        "diagonal": [on("f32[n, n]"), on("f32[n, 3]", offset=1), on("f32[2, n, 3]", axis1=1, axis2=2)],
        "trace": [on("f32[n, n]"), on("f32[n, 3]", offset=1), on("i32[2, n, 3]:small", axis1=1, axis2=2)],
        "diag_indices": [on("f32[n]", call=lambda f, x: f(x.shape[0]))],
        "diag_indices_from": [on("f32[n, n]")],
        "mask_indices": [on("f32[n]", call=lambda f, x: f(x.shape[0], jnp.triu, size=3))],
        "indices": [
            on("f32[n, 3]", call=lambda f, x: f(x.shape)),
            on("f32[n, 3]", call=lambda f, x: f(x.shape, sparse=True)),
        ],
        "ix_": [on("i32[n]", "i32[3]")],
        "meshgrid": [
            on("f32[n]", "f32[3]"),
            on("f32[n]", "f32[n]", indexing="ij"),
            on("f32[n]", "f32[3]", sparse=True),
        ],
        "ravel_multi_index": [
            on("i32[n]:below:3", "i32[n]:below:4", call=lambda f, i, j: f((i, j), (3, 4), mode="clip")),
            on("i32[4]:below:3", "f32[n, 3]", call=lambda f, i, x: f((i, i), x.shape, mode="wrap")),
        ],
        "unravel_index": [
            on("i32[n]:below:12", call=lambda f, i: f(i, (3, 4))),
            on("i32[4]:around:n", "f32[n, 3]", call=lambda f, i, x: f(i, x.shape)),
        ],
        # putting
        "delete": [
            on("f32[n, 3]", call=lambda f, x: f(x, 0, axis=0)),
            on("f32[n, 3]", obj=np.array([0, 2]), axis=1),
            on("f32[n]", obj=slice(1, 3)),
            on("f32[n]", "i32[2]:below:n", call=lambda f, x, i: f(x, i, assume_unique_indices=True)),
        ],
        "insert": [
            on("f32[n, 3]", obj=1, values=5.0, axis=0),
            on("f32[n]", "f32[2]", call=lambda f, x, v: f(x, jnp.array([0, 1]), v)),
            on("f32[n]", obj=slice(0, 2), values=1.0),
        ],
        "put": [
            on("f32[n, 3]", "i32[2]:below:n", "f32[2]", inplace=False),
            on("f32[n]", "i32[2]:around:n", "f32[2]", mode="wrap", inplace=False),
        ],
        "put_along_axis": [on("f32[n, 3]", "i32[n, 1]:below:3", "f32[n, 1]", axis=1, inplace=False)],
        "place": [on("f32[n, 3]", "bool[n, 3]", "f32[2]", inplace=False)],
        "fill_diagonal": [
            on("f32[n, n]", val=3.0, inplace=False),
            on("f32[n, 3]", "f32[2]", inplace=False),
        ],
        # making
        "arange": [
            on("f32[n]", call=lambda f, x: f(x.shape[0])),
            on("f32[n]", call=lambda f, x: f(2, x.shape[0] + 2)),
            on("f32[n]", call=lambda f, x: f(0, x.shape[0], 2)),
            on("f32[n]", call=lambda f, x: f(x.shape[0], dtype=jnp.float32)),
            on("f32[n]", call=lambda f, x: f(x.shape[0], 0, -1)),
        ],
        "eye": [
            on("f32[n]", call=lambda f, x: f(x.shape[0])),
            on("f32[n]", call=lambda f, x: f(x.shape[0], 4, k=1, dtype=jnp.int32)),
        ],
        "identity": [on("f32[n]", call=lambda f, x: f(x.shape[0]))],
        "tri": [on("f32[n]", call=lambda f, x: f(x.shape[0])), on("f32[n]", call=lambda f, x: f(x.shape[0], 4, k=-1))],
        "full": [
            on("f32[n, 3]", call=lambda f, x: f(x.shape, 2.5)),
            on("f32[n]", call=lambda f, x: f((x.shape[0], 2), jnp.arange(2))),
        ],
        "full_like": [on("f32[n, 3]", fill_value=2), on("f32[n]", fill_value=1.5, dtype=jnp.int32)],
        "fromfunction": [on("f32[n, 3]", call=lambda f, x: f(lambda i, j: i * 2 + j, x.shape))],
        "linspace": [
            on("f32[n]", call=lambda f, x: f(0.0, 1.0, x.shape[0])),
            on("f32[n]", "f32[n]", num=5),
            on("f32[n]", call=lambda f, x: f(0, 10, x.shape[0], endpoint=False, retstep=True)),
            on("f32[3]", "f32[n]", call=lambda f, x, y: f(x, 2.0, y.shape[0], axis=-1)),
        ],
        "logspace": [on("f32[n]", call=lambda f, x: f(0.0, 1.0, x.shape[0])), on("f32[n]:unit", "f32[n]:unit", num=5)],
        "geomspace": [
            on("f32[n]", call=lambda f, x: f(1.0, 100.0, x.shape[0])),
            on("f32[n]:positive", "f32[n]:positive", num=5),
        ],
        "kaiser": [on("f32[n]", call=lambda f, x: f(x.shape[0], 8.0))],
        "vander": [on("f32[n]:unit", N=4), on("f32[n]:unit"), on("f32[n]:unit", N=3, increasing=True)],
        "packbits": [on("bool[n, 16]"), on("bool[n]"), on("u8[n, 9]:below:2", axis=0, bitorder="little")],
        "unpackbits": [on("u8[n, 2]:full", axis=1), on("u8[n]:full"), on("u8[n]:full", count=9, bitorder="little")],
    },
)
