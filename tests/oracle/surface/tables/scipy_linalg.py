"""jax.scipy.linalg and jax.scipy.sparse.linalg."""

from __future__ import annotations

import jax.numpy as jnp

from surface.row import Table, each, on, table

_SIZE = on("f32[n]", call=lambda f, x: f(x.shape[0]))
_REGULAR, _DEFINITE, _SYMMETRIC = "f32[n, n]:regular", "f32[n, n]:definite", "f32[n, n]:symmetric"

LINALG: Table = table(
    each("dft hadamard helmert hilbert invhilbert invpascal pascal", _SIZE),
    each("circulant companion fiedler fiedler_companion", on("f32[n]:positive")),
    each("det inv", on(_REGULAR), on("f32[n, 3, 3]:regular")),
    {
        "block_diag": [on("f32[n, 2]", "f32[3, n]"), on("f32[n]", "f32[n, n]")],
        "convolution_matrix": [
            on("f32[n]", call=lambda f, x: f(x, 4)),
            on("f32[3]", "f32[n]", call=lambda f, x, y: f(x, y.shape[0], "same")),
        ],
        "hankel": [on("f32[n]"), on("f32[n]", "f32[3]")],
        "toeplitz": [on("f32[n]"), on("f32[n]", "f32[3]")],
        "leslie": [on("f32[n]:positive", call=lambda f, x: f(x, x[1:]))],
        "cholesky": [on(_DEFINITE), on("f32[n, 3, 3]:definite", lower=True)],
        "cho_factor": [on(_DEFINITE, call=lambda f, a: f(a)[0])],
        "cho_solve": [on(_DEFINITE, "f32[n, 2]", call=lambda f, a, b: f((jnp.linalg.cholesky(a), True), b))],
        "eigh": [on(_SYMMETRIC, eigvals_only=True), on(_SYMMETRIC, call=lambda f, a: f(a)[0])],
        "eigh_tridiagonal": [on("f32[n]", "f32[n]", call=lambda f, d, e: f(d, e[1:], eigvals_only=True))],
        "expm": [on("f32[n, n]:unit"), on("f32[n, 2, 2]:unit")],
        "expm_frechet": [on("f32[n, n]:unit", "f32[n, n]:unit")],
        "funm": [
            on("f32[3, 3]:definite", "f32[n]", call=lambda f, a, x: f(a, jnp.exp, disp=False)[0] + x.sum()),
            on(_DEFINITE, call=lambda f, a: f(a / a.shape[0], jnp.cos, disp=False)[0]),
        ],
        "hessenberg": [on("f32[n, n]")],
        "lu": [on(_REGULAR), on("f32[n, 3]", permute_l=True)],
        "lu_factor": [on(_REGULAR), on("f32[n, 3]")],
        "lu_solve": [
            on(_REGULAR, "f32[n, 2]", call=lambda f, a, b: f((a, jnp.arange(a.shape[0], dtype=jnp.int32)), b)),
            on(
                "f32[3, 3]:regular",
                "f32[3, n]",
                call=lambda f, a, b: f((a, jnp.arange(3, dtype=jnp.int32)), b, trans=1),
            ),
        ],
        "polar": [on(_REGULAR), on("f32[n, 3]", method="svd")],
        "qr": [on("f32[n, 3]", call=lambda f, x: f(x, mode="economic")), on("f32[n, 3]", mode="r")],
        "qr_multiply": [on("f32[n, 3]", "f32[2, n]", call=lambda f, a, c: f(a, c))],
        "rsf2csf": [on(_SYMMETRIC, call=lambda f, a: jnp.abs(f(jnp.triu(a), jnp.eye(a.shape[0]))[0]))],
        "schur": [on(_SYMMETRIC, call=lambda f, a: jnp.sort(jnp.diagonal(f(a)[0])))],
        "solve": [on(_REGULAR, "f32[n, 2]"), on(_DEFINITE, "f32[n]", assume_a="pos")],
        "solve_sylvester": [on("f32[n, n]:definite", "f32[3, 3]:definite", "f32[n, 3]")],
        "solve_triangular": [
            on("f32[n, n]:triangular", "f32[n, 2]", lower=True),
            on("f32[n, n]:triangular", "f32[n]", trans=1, lower=True),
        ],
        "sqrtm": [on(_DEFINITE)],
        "svd": [on("f32[n, 3]", compute_uv=False), on("f32[n, n]", call=lambda f, a: f(a)[1])],
    },
)

SPARSE: Table = each(
    "bicgstab cg gmres",
    on(_DEFINITE, "f32[n]", call=lambda f, a, b: f(a, b, tol=1e-6)[0]),
    on("f32[n]", call=lambda f, b: f(lambda v: 2 * v, b)[0]),
)
