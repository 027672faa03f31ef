"""Linear algebra, by formulas over JAX's arrays.

`info` of a factorisation that fails is not 0. For LU it is the first pivot that is zero, as in LAPACK. Nothing is
raised, because a graph of ATen's ops asks for no errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.aten.tensors import Operand
from hlo_disc.import_.by_jax import traced
from hlo_disc.import_.formulas import linalg as formulas
from hlo_disc.import_.formulas.arithmetic import cross
from hlo_disc.import_.handlers.arrays import Array
from hlo_disc.import_.jax_later import jax, jnp

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

lax = jax.lax.linalg
Arrays = Sequence[jax.Array]
Handler = Callable[..., Array | list[Array]]


def _first_zero(lu: jax.Array) -> jax.Array:
    """Return the number of the first pivot that is zero, from 1; 0 if there is none."""
    zero = formulas.diagonal(lu) == 0
    place = jnp.arange(1, zero.shape[-1] + 1, dtype=np.int32)
    first = jnp.min(jnp.where(zero, place, np.iinfo(np.int32).max), axis=-1, initial=np.iinfo(np.int32).max)
    return jnp.where(jnp.any(zero, axis=-1), first, 0)


def _order(lu: jax.Array, pivots: jax.Array) -> jax.Array:
    """Return the permutation of rows that ATen's pivots, which count from 1, describe."""
    return lax.lu_pivots_to_permutation(pivots - 1, lu.shape[-2])


def _matrix(order: jax.Array, dtype: np.dtype) -> jax.Array:
    """Return P of P L U, whose columns are unit vectors."""
    size = order.shape[-1]
    return (jnp.arange(size, dtype=order.dtype)[:, None] == order[..., None, :]).astype(dtype)


def _handler(fn: Callable[..., object], at_least: Sequence[tuple[Dim, Dim]] = ()) -> Handler:
    """Make a handler of `fn(arrays, *attributes)`; unwanted results, by PyTorch's types, are empty. at_least: see
    `traced`."""

    def handle(r: AtenReader, *args: object, **attrs: object) -> Array | list[Array]:
        values = [x for x in args if isinstance(x, Array)]
        rest = [x for x in args if not isinstance(x, Array)]
        made = traced(r, lambda *arrays: fn(*arrays, *rest, **attrs), *values, at_least=at_least)
        assert len(made) == len(r.outs), f"{len(made)} results in place of {len(r.outs)}"
        made = [
            r.full(0, out.dtype, out.shape) if x.rank != len(out.shape) else x.cast(out.dtype)
            for x, out in zip(made, r.outs, strict=True)
        ]
        return made if len(made) > 1 else made[0]

    return handle


def _square(fn: Callable[..., object]) -> Handler:
    """Make a handler for square matrices, though PyTorch has a symbol for each side."""
    handler = _handler(fn)

    def handle(r: AtenReader, a: Array, *args: object, **attrs: object) -> Array | list[Array]:
        _same_sides(r, a)
        return handler(r, a, *args, **attrs)

    return handle


def _same_sides(r: AtenReader, a: Array) -> None:
    r.equal(a.shape[-2], a.shape[-1], "the sides of a matrix")


def _factored(fn: Callable[..., object]) -> Handler:
    """Make a handler of `fn(turned, *arrays)`.

    turned: ATen factors the transposed matrix, because that lies in memory as LAPACK has it.
    """

    def handle(r: AtenReader, a: Array, *args: object, **attrs: object) -> Array | list[Array]:
        fake = r.meta(0)
        turned = fake.is_contiguous() and not fake.is_complex()
        return _handler(lambda *arrays, **how: fn(turned, *arrays, **how))(r, a, *args, **attrs)

    return handle


def _lu_of(a: jax.Array, turned: bool) -> tuple[jax.Array, jax.Array, jax.Array]:
    return lax.lu(jnp.swapaxes(a, -1, -2) if turned else a)


def _det(turned: bool, a: jax.Array) -> Arrays:
    lu, pivots, _ = _lu_of(a, turned)
    return formulas.determinant(lu, pivots), lu, pivots + 1


def _slogdet(turned: bool, a: jax.Array) -> Arrays:
    lu, pivots, _ = _lu_of(a, turned)
    return *formulas.log_determinant(lu, pivots), lu, pivots + 1


def _solve(r: AtenReader, a: Array, b: Array, **attrs: object) -> Array | list[Array]:
    is_vector = b.rank == 1 or b.shape == a.shape[:-1]
    return _handler(lambda *arrays, **how: _solution(is_vector, *arrays, **how))(r, a, b, **attrs)


def _solution(is_vector: bool, a: jax.Array, b: jax.Array, *, left: bool = True, check_errors: bool = False) -> Arrays:
    lu, pivots, order = lax.lu(a)
    made = formulas.lu_solve(lu, order, b[..., None] if is_vector else b, left)
    return made[..., 0] if is_vector else made, lu, pivots + 1, _first_zero(lu)


def _inverse(a: jax.Array, *, check_errors: bool = False) -> Arrays:
    lu, _, order = lax.lu(a)
    return formulas.inverse(lu, order), _first_zero(lu)


def _cholesky(a: jax.Array, *, upper: bool = False, check_errors: bool = False) -> Arrays:
    given = jnp.triu(a) if upper else jnp.tril(a)
    factor = formulas.cholesky(given, not upper)
    failed = jnp.any(jnp.isnan(factor), axis=(-2, -1)) & ~jnp.any(jnp.isnan(given), axis=(-2, -1))
    return factor, failed.astype(np.int32)


def _cholesky_solve(b: jax.Array, factor: jax.Array, upper: bool = False) -> jax.Array:
    how = {"transpose_a": True, "conjugate_a": True}
    if upper:
        return formulas.triangle(factor, formulas.triangle(factor, b, True, **how), True)
    return formulas.triangle(factor, formulas.triangle(factor, b, False), False, **how)


def _cholesky_inverse(factor: jax.Array, upper: bool = False) -> jax.Array:
    return _cholesky_solve(formulas.identity(factor), factor, upper)


def _lu_factor(a: jax.Array, *, pivot: bool = True, check_errors: bool = False) -> Arrays:
    if not pivot:
        raise ValueError("LU without pivots")
    lu, pivots, _ = lax.lu(a)
    return lu, pivots + 1, _first_zero(lu)


def _lu_parts(a: jax.Array, *, pivot: bool = True) -> Arrays:
    if not pivot:
        raise ValueError("LU without pivots")
    lu, _, order = lax.lu(a)
    return (_matrix(order, a.dtype), *formulas.unpacked(lu))


def _lu_unpack(r: AtenReader, lu: Array, pivots: Array, data: bool = True, order: bool = True) -> Array | list[Array]:
    """Return P, L and U; unwanted ones are empty."""

    def fn(lu: jax.Array, pivots: jax.Array) -> Arrays:
        none = jnp.zeros((0,), lu.dtype)
        parts = formulas.unpacked(lu) if data else (none, none)
        return (_matrix(_order(lu, pivots), lu.dtype) if order else none, *parts)

    return _handler(fn, at_least=[(lu.shape[-2], pivots.shape[-1])] if order else [])(r, lu, pivots)


def _lu_solution(
    lu: jax.Array, pivots: jax.Array, b: jax.Array, *, left: bool = True, adjoint: bool = False
) -> jax.Array:
    return formulas.lu_solve(lu, _order(lu, pivots), b, left, adjoint, adjoint)


def _qr(a: jax.Array, mode: str = "reduced") -> Arrays:
    if mode == "r":
        return jnp.zeros((0,), a.dtype), lax.qr(a, full_matrices=False)[1]
    return lax.qr(a, full_matrices=mode == "complete")


def _svd(a: jax.Array, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Arrays:
    none = jnp.zeros((0,), a.dtype)
    if not compute_uv:
        return none, lax.svd(a, full_matrices=False, compute_uv=False), none
    u, s, vh = lax.svd(a, full_matrices=full_matrices)
    return u, s, vh


def _eigh(a: jax.Array, uplo: str = "L", compute_v: bool = True) -> Arrays:
    vectors, values = lax.eigh(a, lower=uplo.upper() == "L", symmetrize_input=False)
    return values, vectors if compute_v else jnp.zeros((0,), a.dtype)


def _eigvals(a: jax.Array) -> jax.Array:
    return lax.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]


def _triangular_solve(
    b: jax.Array, a: jax.Array, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Arrays:
    made = formulas.triangle(a, b, upper, unitriangular=unitriangular, transpose_a=transpose)
    return made, jnp.broadcast_to(a, (*made.shape[:-2], *a.shape[-2:]))


def _householder(r: AtenReader, a: Array, tau: Array) -> Array:
    rows, columns = a.shape[-2:]
    least = [(rows, columns), (columns, tau.shape[-1])]
    return traced(r, lax.householder_product, a, tau, at_least=least)[0]


def _pinv(
    r: AtenReader, a: Array, *, atol: Operand | None = None, rtol: Operand | None = None, hermitian: bool = False
) -> Array:
    """Compute the pseudo-inverse. Singular values that do not exceed the tolerances count as zero."""
    given = [x for x in (atol, rtol) if isinstance(x, Array)]
    if hermitian:
        _same_sides(r, a)

    def fn(a: jax.Array, *tensors: jax.Array) -> jax.Array:
        left = list(tensors)
        absolute, relative = (left.pop(0) if isinstance(x, Array) else x for x in (atol, rtol))
        if relative is None:
            usual = float(jnp.finfo(a.dtype).eps) * jnp.asarray(jax.core.max_dim(*a.shape[-2:]), np.float64)
            relative = usual if absolute is None else jnp.where(jnp.asarray(absolute) > 0, 0.0, usual)
        absolute = 0.0 if absolute is None else absolute
        if hermitian:
            v, values = lax.eigh(a, symmetrize_input=False)
            s, u, vh = jnp.abs(values), v, formulas.adjoint(v) * jnp.sign(values)[..., None]
        else:
            u, s, vh = lax.svd(a, full_matrices=False)
        top = jnp.max(s, axis=-1, keepdims=True, initial=0)
        least = jnp.maximum(*(jnp.asarray(x)[..., None] for x in (absolute, relative * top[..., 0]))).astype(s.dtype)
        inverse = jnp.where(s > least, 1 / s, 0).astype(a.dtype)
        return jnp.matmul(formulas.adjoint(vh) * inverse[..., None, :], formulas.adjoint(u))

    return traced(r, fn, a, *given)[0]


def _cross(r: AtenReader, a: Array, b: Array, *, dim: int = -1) -> Array:
    a, b = (x.cast(r.out.dtype).broadcast(r.out.shape) for x in (a, b))
    return cross(a, b, dim)


def _with_effects(r: AtenReader, token: Array, op: object, *_: object, **__: object) -> list[Array | None]:
    """Drop the check for errors, the only effect that is supported: a system without solution gives infinity or NaN."""
    if str(op) != "aten._linalg_check_errors.default":
        r.unsupported(f"{op} has an effect, which is not supported")
    return [token] + [None] * (len(r.node.meta["val"]) - 1)


def _multiplied(r: AtenReader, a: Array, tau: Array, c: Array, left: bool = True, transpose: bool = False) -> Array:
    """Multiply by Q, the product of the reflections below the diagonal of `a`."""

    def fn(a: jax.Array, tau: jax.Array, c: jax.Array) -> jax.Array:
        rows, columns = a.shape[-2:]
        square = jnp.concatenate([a, jnp.zeros((*a.shape[:-1], rows - columns), a.dtype)], axis=-1)
        q = lax.householder_product(square, tau)
        q = formulas.adjoint(q) if transpose else q
        return jnp.matmul(q, c) if left else jnp.matmul(c, q)

    rows, columns = a.shape[-2:]
    return traced(r, fn, a, tau, c, at_least=[(rows, columns), (columns, tau.shape[-1])])[0]


ROWS: dict[str, Callable[..., Any]] = {
    "aten.cholesky.default": _square(lambda a, upper=False: _cholesky(a, upper=upper)[0]),
    "aten.linalg_cholesky_ex.default": _handler(_cholesky),
    "aten.cholesky_solve.default": _handler(_cholesky_solve),
    "aten._cholesky_solve_helper.default": _handler(_cholesky_solve),
    "aten.cholesky_inverse.default": _handler(_cholesky_inverse),
    "aten._linalg_det.default": _factored(_det),
    "aten._linalg_slogdet.default": _factored(_slogdet),
    "aten._linalg_solve_ex.default": _solve,
    "aten.linalg_inv_ex.default": _handler(_inverse),
    "aten.linalg_lu_factor_ex.default": _handler(_lu_factor),
    "aten.linalg_lu.default": _handler(_lu_parts),
    "aten.lu_unpack.default": _lu_unpack,
    "aten.linalg_lu_solve.default": _handler(_lu_solution),
    "aten.linalg_qr.default": _handler(_qr),
    "aten._linalg_svd.default": _handler(_svd),
    "aten._linalg_eigh.default": _handler(_eigh),
    "aten.linalg_eig.default": _handler(lambda a: lax.eig(a, compute_left_eigenvectors=False)),
    "aten._linalg_eigvals.default": _handler(_eigvals),
    "aten.linalg_solve_triangular.default": _handler(formulas.triangle),
    "aten.triangular_solve.default": _handler(_triangular_solve),
    "aten.linalg_householder_product.default": _householder,
    "aten.linalg_pinv.atol_rtol_tensor": _pinv,
    "aten.linalg_cross.default": _cross,
    "aten.ormqr.default": _multiplied,
    "aten.linalg_matrix_exp.default": _handler(jax.scipy.linalg.expm),
    "with_effects": _with_effects,
    "prims._make_token.default": lambda r: r.full(0, r.out.dtype, r.out.shape),
    "prims._sink_tokens.default": lambda r, _: None,
}
