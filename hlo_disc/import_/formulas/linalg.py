"""Linear algebra over JAX's arrays, for `by_jax.traced`, by LAPACK's functions, which all frameworks use."""

from __future__ import annotations

import numpy as np

from hlo_disc.import_.jax_later import jax, jnp

lax = jax.lax.linalg


def adjoint(a: jax.Array) -> jax.Array:
    """Return conjugated matrices with rows and columns exchanged."""
    return jnp.swapaxes(a, -1, -2).conj()


def triangle(
    a: jax.Array, b: jax.Array, upper: bool, left: bool = True, unitriangular: bool = False, **how: bool
) -> jax.Array:
    """Solve a x = b, or x a = b; the batches are broadcast to each other."""
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    return lax.triangular_solve(a, b, left_side=left, lower=not upper, unit_diagonal=unitriangular, **how)


def diagonal(a: jax.Array) -> jax.Array:
    """Return the main diagonal of matrices."""
    size = jax.core.min_dim(*a.shape[-2:])
    return jnp.diagonal(a[..., :size, :size], axis1=-2, axis2=-1)


def lu_solve(
    lu: jax.Array, order: jax.Array, b: jax.Array, left: bool = True, transposed: bool = False, conj: bool = False
) -> jax.Array:
    """Solve A x = b, or x A = b if not `left`. If `transposed`, A is transposed (and conjugated, if `conj`).

    lu, order: factors of A and the permutation of its rows, the first and third result of `lax.lu`.
    """
    if not left:
        b = jnp.swapaxes(b, -1, -2)
        if conj and transposed:
            return jnp.swapaxes(lu_solve(lu.conj(), order, b), -1, -2)
        return jnp.swapaxes(lu_solve(lu, order, b, True, not transposed), -1, -2)
    batch = jnp.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    order = jnp.broadcast_to(order, (*batch, order.shape[-1]))[..., None]
    b = jnp.broadcast_to(b, (*batch, *b.shape[-2:]))
    if not transposed:
        b = jnp.take_along_axis(b, order, axis=-2)
        return triangle(lu, triangle(lu, b, False, unitriangular=True), True)
    how = {"transpose_a": True, "conjugate_a": conj}
    made = triangle(lu, triangle(lu, b, True, **how), False, unitriangular=True, **how)
    return jnp.take_along_axis(made, jnp.argsort(order, axis=-2), axis=-2)


def parity(pivots: jax.Array, dtype: np.dtype) -> jax.Array:
    """Return 1, or -1 if an odd number of rows were exchanged. pivots: from 0, the second result of `lax.lu`."""
    moved = pivots != jnp.arange(pivots.shape[-1], dtype=pivots.dtype)
    return jnp.where(jnp.sum(moved, axis=-1) % 2 == 0, 1, -1).astype(dtype)


def unpacked(lu: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return L and U."""
    rows, columns = lu.shape[-2:]
    least = jax.core.min_dim(rows, columns)
    lower = jnp.tril(lu[..., :, :least], -1) + jnp.eye(rows, least, dtype=lu.dtype)
    return lower, jnp.triu(lu[..., :least, :])


def determinant(lu: jax.Array, pivots: jax.Array) -> jax.Array:
    """Compute a determinant from factors."""
    return parity(pivots, lu.dtype) * jnp.prod(diagonal(lu), axis=-1)


def log_determinant(lu: jax.Array, pivots: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return (sign of a determinant, logarithm of its magnitude) from factors."""
    line = diagonal(lu)
    return parity(pivots, lu.dtype) * jnp.prod(jnp.sign(line), axis=-1), jnp.sum(jnp.log(jnp.abs(line)), axis=-1)


def inverse(lu: jax.Array, order: jax.Array) -> jax.Array:
    """Compute the inverse of a matrix from its factors."""
    return lu_solve(lu, order, identity(lu))


def identity(a: jax.Array) -> jax.Array:
    """Return ones on the diagonal, in the shape of square matrices."""
    return jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)


def cholesky(a: jax.Array, lower: bool = True) -> jax.Array:
    """Factor by one triangle; a matrix that is not positive definite becomes NaN."""
    made = lax.cholesky(a if lower else adjoint(a), symmetrize_input=False)
    return made if lower else adjoint(made)
