"""Products, polynomials, Fourier transforms and linear algebra of jax.numpy."""

from __future__ import annotations

import jax.numpy as jnp

from surface.row import Table, each, on, table


def from_eigenvectors(values, vectors):
    """The matrix again: the signs of eigenvectors are anybody's."""
    return (vectors * values) @ vectors.T


def from_singular(left, values, right):
    """The square matrix again: the signs of singular vectors are anybody's."""
    return (left * values) @ right


PRODUCTS: Table = table(
    each(
        "matmul",
        on("f32[n, 3]", "f32[3, n]"),
        on("f32[n]", "f32[n]"),
        on("i32[2, n, 3]:small", "i32[3, 4]:small"),
        on("bf16[n, 8]", "bf16[8]"),
    ),
    each(
        "dot",
        on("f32[n, 3]", "f32[3, n]"),
        on("f32[n]", "f32[n]"),
        on("f32[n, 3]", "f32[]"),
        on("f32[n, 2, 3]", "f32[3]"),
    ),
    each("inner", on("f32[n, 3]", "f32[2, 3]"), on("f32[n]", "f32[n]")),
    each("outer", on("f32[n]", "f32[3]"), on("i32[n, 2]:small", "f32[n]")),
    each("kron", on("f32[n, 2]", "f32[3, n]"), on("f32[n]", "f32[3]")),
    each("vdot", on("f32[n, 3]", "f32[n, 3]"), on("c64[n]", "c64[n]")),
    each("vecdot", on("f32[n, 3]", "f32[n, 3]"), on("c64[3, n]", "c64[n]"), on("f32[n, 3]", "f32[n, 3]", axis=0)),
    each("matvec", on("f32[n, 3]", "f32[3]"), on("f32[2, 3, n]", "f32[n]")),
    each("vecmat", on("f32[n]", "f32[n, 3]"), on("c64[n]", "c64[n, 3]")),
    each(
        "tensordot",
        on("f32[n, 3, 4]", "f32[3, 4, n]"),
        on("f32[n, 3]", "f32[n, 4]", axes=([0], [0])),
        on("f32[n]", "f32[3]", axes=0),
    ),
    each(
        "cross", on("f32[n, 3]", "f32[n, 3]"), on("f32[3, n]", "f32[3, n]", axisa=0, axisb=0), on("f32[n, 2]", "f32[2]")
    ),
    {
        "einsum": [
            on("f32[n, 3]", "f32[3, n]", call=lambda f, x, y: f("ij,jk->ik", x, y)),
            on("f32[n, n]", call=lambda f, x: f("ii->i", x)),
            on("f32[n, 3]", call=lambda f, x: f("ij->", x)),
            on("f32[2, n, 3]", "f32[2, 3, n]", call=lambda f, x, y: f("b...k,bk...->b...", x, y)),
            on("f32[n, 3]", "f32[3, n]", "f32[n, 2]", call=lambda f, x, y, z: f("ij,jk,kl->il", x, y, z)),
        ],
        "convolve": [
            on("f32[n]", "f32[3]"),
            on("f32[n]", "f32[3]", mode="same"),
            on("f32[n]", "f32[3]", mode="valid"),
            on("f32[5]", "f32[n]"),
            on("f32[n]", "f32[n]"),
        ],
        "correlate": [on("f32[n]", "f32[3]"), on("f32[n]", "f32[3]", mode="same"), on("f32[5]", "f32[n]", mode="full")],
        "poly": [on("f32[n]:unit"), on("f32[3, 3]", "f32[n]", call=lambda f, x, y: f(x) + y.sum())],
        "polyadd": [on("f32[n]", "f32[3]"), on("f32[n]", "f32[n]")],
        "polysub": [on("f32[n]", "f32[3]")],
        "polymul": [on("f32[n]", "f32[3]"), on("f32[n]", "f32[n]")],
        "polyder": [on("f32[n]"), on("f32[n]", m=2)],
        "polyint": [on("f32[n]"), on("f32[n]", m=2, k=1)],
        "polydiv": [on("f32[n]", "f32[3]:positive", call=lambda f, x, y: f(x, y))],
        "polyfit": [on("f32[n]:sorted", "f32[n]", deg=1), on("f32[n]:sorted", "f32[n, 2]", deg=2)],
        "roots": [on("f32[n]:positive", call=lambda f, x: jnp.sort(jnp.abs(f(x[:4], strip_zeros=False))))],
    },
)

FFT: Table = table(
    each(
        "fft ifft",
        on("c64[n, 3]:calm", axis=0),
        on("f32[3, n]:calm"),
        on("c64[3, n]:calm", n=5, norm="ortho"),
        on("c64[n, 8]:calm"),
    ),
    each("rfft ihfft", on("f32[n, 3]:calm", axis=0), on("f32[3, n]:calm"), on("f32[3, n]:calm", n=6, norm="forward")),
    each("irfft hfft", on("c64[3, n]:calm"), on("c64[n, 3]:calm", n=6, axis=0)),
    each(
        "fft2 ifft2 fftn ifftn",
        on("c64[n, 3]:calm"),
        on("c64[2, n, 4]:calm", axes=(0, 1)),
        on("c64[n, 4]:calm", s=(5, 6)),
    ),
    each("rfft2 rfftn", on("f32[n, 3]:calm"), on("f32[2, n, 4]:calm", axes=(0, 1))),
    each("irfft2 irfftn", on("c64[n, 3]:calm"), on("c64[n, 4]:calm", s=(5, 6))),
    each("fftshift ifftshift", on("f32[n, 3]"), on("f32[n, 3]", axes=0)),
    each("fftfreq rfftfreq", on("f32[n]", call=lambda f, x: f(x.shape[0], 0.5))),
)

LINALG: Table = table(
    each("matmul", on("f32[n, 3]", "f32[3, n]")),
    each("outer", on("f32[n]", "f32[3]")),
    each("vecdot", on("f32[n, 3]", "f32[n, 3]")),
    each("tensordot", on("f32[n, 3, 4]", "f32[3, 4, n]")),
    each("cross", on("f32[n, 3]", "f32[n, 3]"), on("f32[3, n]", "f32[3, n]", axis=0)),
    each("matrix_transpose", on("f32[2, n, 3]")),
    each("diagonal trace", on("f32[n, 3]"), on("f32[2, 3, n]", offset=1)),
    each("det slogdet inv", on("f32[n, n]:regular"), on("f32[n, 3, 3]:regular"), on("c64[2, n, n]:regular")),
    each("eigvalsh", on("f32[n, n]:symmetric"), on("f32[n, 3, 3]:symmetric")),
    each("matrix_rank cond", on("f32[n, n]:regular"), on("f32[n, 3]")),
    each("svdvals", on("f32[n, 3]"), on("f32[n, n]"), on("f32[n, 2, 3]")),
    each(
        "eigvals",
        on("f32[n, n]", call=lambda f, x: jnp.sort(jnp.abs(f(x)))),
        on("f32[n, 3, 3]", call=lambda f, x: jnp.sort(jnp.abs(f(x)), -1)),
    ),
    {
        "cholesky": [on("f32[n, n]:definite"), on("f32[n, 3, 3]:definite"), on("c64[2, n, n]:definite", upper=True)],
        "eigh": [
            on("f32[n, n]:symmetric", call=lambda f, x: from_eigenvectors(*f(x))),
            on("f32[n, 3, 3]:symmetric", call=lambda f, x: f(x)[0]),
        ],
        "eig": [on("f32[n, n]", call=lambda f, x: jnp.sort(jnp.abs(f(x)[0])))],
        "svd": [
            on("f32[n, 3]", compute_uv=False),
            on("f32[n, n]", call=lambda f, x: from_singular(*f(x))),
            on("f32[n, 3]", call=lambda f, x: abs(f(x, full_matrices=False)[2])),
        ],
        "qr": [on("f32[n, 3]"), on("f32[3, n]", mode="r"), on("f32[n, 3]", mode="complete"), on("f32[n, 3, 2]")],
        "solve": [
            on("f32[n, n]:regular", "f32[n, 3]"),
            on("f32[n, n]:regular", "f32[n]"),
            on("f32[n, 3, 3]:regular", "f32[n, 3, 2]"),
        ],
        "lstsq": [
            on("f32[n, 3]", "f32[n]", call=lambda f, x, y: f(x, y)[0]),
        ],
        "pinv": [on("f32[n, 3]"), on("f32[3, n]"), on("f32[n, n]:symmetric", hermitian=True)],
        "norm": [
            on("f32[n, 3]"),
            on("f32[n, 3]", axis=0),
            on("f32[n, 3]", ord=1, axis=-1, keepdims=True),
            on("f32[n, 3]", ord=2),
            on("f32[n, 3]", ord="nuc"),
            on("f32[n]", ord=jnp.inf),
        ],
        "vector_norm": [on("f32[n, 3]"), on("f32[n, 3]", axis=0, ord=3), on("c64[n]", ord=1)],
        "matrix_norm": [on("f32[n, 3]"), on("f32[2, n, 3]", ord=1, keepdims=True), on("f32[n, 3]", ord=2)],
        "matrix_power": [on("f32[n, n]:unit", n=3), on("f32[n, 2, 2]:regular", n=-2), on("f32[n, n]", n=0)],
        "multi_dot": [
            on("f32[n, 3]", "f32[3, 4]", "f32[4, n]", call=lambda f, *xs: f(xs)),
            on("f32[n]", "f32[n, 3]", call=lambda f, *xs: f(xs)),
        ],
        "tensorinv": [
            on("f32[6, n]", call=lambda f, x: f(jnp.eye(6).reshape(6, 2, 3) + x.sum() * 0, ind=1)),
            on("f32[n, n]:regular", ind=1),
        ],
        "tensorsolve": [
            on("f32[n, n]:regular", "f32[n]"),
            on("f32[2, n]", call=lambda f, x: f(2 * jnp.eye(6).reshape(2, 3, 6), jnp.ones((2, 3))) + x.sum()),
        ],
    },
)
