"""The small modules of jax.scipy: signals, transforms, images, clusters, optimisation, rotations."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax.scipy.spatial.transform import Rotation

from surface.row import Table, each, on, table

_ANGLES = "f32[n, 3]:unit"

SIGNAL: Table = table(
    each(
        "convolve correlate",
        on("f32[n]", "f32[3]"),
        on("f32[n, 4]", "f32[3, 2]", mode="same"),
        on("f32[n]", "f32[3]", mode="valid"),
        on("f32[n]", "f32[3]", method="fft"),
    ),
    each(
        "convolve2d correlate2d",
        on("f32[n, 4]", "f32[3, 2]"),
        on("f32[n, 4]", "f32[3, 2]", mode="same"),
        on("f32[n, 4]", "f32[3, 2]", mode="valid"),
    ),
    each(
        "csd",
        on("f32[n]", "f32[n]", call=lambda f, x, y: f(x, y, nperseg=min(4, x.shape[0]))),
        on("f32[2, n]", "f32[2, n]"),
    ),
    each(
        "welch",
        on("f32[n]", call=lambda f, x: f(x, nperseg=min(4, x.shape[0]))),
        on("f32[n, 40]", nperseg=16),
        on("f32[2, n]"),
    ),
    each("stft", on("f32[n, 40]", nperseg=8), on("f32[n]", nperseg=4), on("f32[2, n]", nperseg=8, boundary=None)),
    {
        "fftconvolve": [
            on("f32[n]", "f32[3]"),
            on("f32[n, 4]", "f32[3, 4]", mode="same"),
            on("f32[n, 4]", "f32[n, 3]", axes=1),
        ],
        "istft": [on("c64[5, n]", nperseg=8), on("c64[n, 5, 6]", nperseg=8)],
        # What is left of two points is rounding errors alone.
        "detrend": [
            on("f32[n, 3]", call=lambda f, x: f(x, axis=0) + x),
            on("f32[n]", type="constant"),
            on("f32[3, n]", call=lambda f, x: f(x) + x),
        ],
    },
)

OTHER: Mapping[str, Table] = {
    "jax.scipy.signal": SIGNAL,
    "jax.scipy.fft": table(
        each("dct idct", on("f32[n, 3]", axis=0), on("f32[3, n]", norm="ortho"), on("f32[n, 8]", n=5)),
        each("dctn idctn", on("f32[n, 3]"), on("f32[2, n, 4]", axes=(1, 2), norm="ortho")),
    ),
    "jax.scipy.ndimage": {
        "map_coordinates": [
            on("f32[n, 4]", "f32[2, 5]:positive", order=1),
            on("f32[5, 4]", "f32[2, n]", order=1, mode="nearest"),
            on("f32[n, 4]", "f32[2, n]", order=0, mode="wrap"),
            on("f32[n, 4]", "f32[2, 5]", order=1, mode="mirror"),
            on("f32[n, 4]", "f32[2, 5]", order=1, mode="reflect"),
        ]
    },
    "jax.scipy.cluster.vq": {"vq": [on("f32[n, 3]", "f32[4, 3]"), on("f32[6, n]", "f32[4, n]")]},
    "jax.scipy.integrate": {
        "trapezoid": [on("f32[n]"), on("f32[3, n]", "f32[n]:sorted"), on("f32[n, 3]", dx=0.5, axis=0)]
    },
    "jax.scipy.interpolate": {
        "RegularGridInterpolator": [
            on(
                "f32[4]:sorted",
                "f32[4, 3]",
                "f32[n]",
                call=lambda f, x, v, at: f((x,), v, bounds_error=False)(at[:, None]),
            ),
            on(
                "f32[n]:sorted",
                "f32[n]",
                "f32[3]",
                call=lambda f, x, v, at: f((x,), v, "nearest", bounds_error=False, fill_value=None)(at[:, None]),
            ),
        ]
    },
    "jax.scipy.optimize": {
        "minimize": [
            on("f32[n]", call=lambda f, x: jnp.round(f(lambda v: jnp.sum((v - 1.0) ** 2), x, method="BFGS").x, 2))
        ]
    },
    "jax.scipy.spatial.transform": {
        "Rotation": [
            on("f32[n, 4]", "f32[3]", call=lambda f, q, v: f.from_quat(q).apply(v)),
            on(_ANGLES, call=lambda f, v: f.from_rotvec(v).as_matrix()),
            on(_ANGLES, call=lambda f, v: f.from_euler("xyz", v).as_quat()),
        ],
        "Slerp": [
            on(
                "f32[4, 4]",
                "f32[n]:simplex",
                call=lambda f, q, at: f.init(jnp.arange(4.0), Rotation.from_quat(q))(at).as_quat(),
            )
        ],
    },
}
