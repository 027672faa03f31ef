"""Linear algebra by JAX's formulas with LAPACK's functions, which ATen uses, too.

`info` of a factorisation that fails is not 0. For LU it is the first pivot that is zero, as in LAPACK. Nothing is
raised, because a graph of ATen's ops asks for no errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.aten.tensors import Operand
from hlo_disc.import_.by_jax import traced
from hlo_disc.import_.handlers.arrays import Array, joined

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

lax = jax.lax.linalg
Arrays = Sequence[jax.Array]
Handler = Callable[..., Array | list[Array]]


# Formulas of arrays


def _adjoint(a: jax.Array) -> jax.Array:
    return jnp.swapaxes(a, -1, -2).conj()


def _triangle(a: jax.Array, b: jax.Array, upper: bool, left: bool = True, unit: bool = False, **how: bool) -> jax.Array:
    """A solution of a x = b, or x a = b, whose batches are spread to each other."""
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    return lax.triangular_solve(a, b, left_side=left, lower=not upper, unit_diagonal=unit, **how)


def _diagonal(a: jax.Array) -> jax.Array:
    size = jax.core.min_dim(*a.shape[-2:])
    return jnp.diagonal(a[..., :size, :size], axis1=-2, axis2=-1)


def _lu(a: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(L and U in one, pivots from 1, the first zero pivot or 0)."""
    made, pivots, _ = lax.lu(a)
    zero = _diagonal(made) == 0
    place = jnp.arange(1, zero.shape[-1] + 1, dtype=jnp.int32)
    first = jnp.min(jnp.where(zero, place, np.iinfo(np.int32).max), axis=-1, initial=np.iinfo(np.int32).max)
    return made, pivots + 1, jnp.where(jnp.any(zero, axis=-1), first, 0)


def _permutation(lu: jax.Array, pivots: jax.Array) -> jax.Array:
    return lax.lu_pivots_to_permutation(pivots - 1, lu.shape[-2])


def _lu_solve(
    lu: jax.Array, pivots: jax.Array, b: jax.Array, left: bool = True, transposed: bool = False, conj: bool = False
) -> jax.Array:
    """Solve A x = b, or x A = b if not `left`. If `transposed`, A is transposed (and conjugated, if `conj`)."""
    if not left:
        b = jnp.swapaxes(b, -1, -2)
        if conj and transposed:
            return jnp.swapaxes(_lu_solve(lu.conj(), pivots, b), -1, -2)
        return jnp.swapaxes(_lu_solve(lu, pivots, b, True, not transposed), -1, -2)
    batch = jnp.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    order = _permutation(lu, pivots)
    order = jnp.broadcast_to(order, (*batch, order.shape[-1]))[..., None]
    b = jnp.broadcast_to(b, (*batch, *b.shape[-2:]))
    if not transposed:
        b = jnp.take_along_axis(b, order, axis=-2)
        return _triangle(lu, _triangle(lu, b, False, unit=True), True)
    how = {"transpose_a": True, "conjugate_a": conj}
    made = _triangle(lu, _triangle(lu, b, True, **how), False, unit=True, **how)
    return jnp.take_along_axis(made, jnp.argsort(order, axis=-2), axis=-2)


def _parity(pivots: jax.Array, dtype: np.dtype) -> jax.Array:
    """1, or -1 where an odd number of rows were exchanged."""
    moved = pivots != jnp.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype)
    return jnp.where(jnp.sum(moved, axis=-1) % 2 == 0, 1, -1).astype(dtype)


def _unpacked(lu: jax.Array) -> tuple[jax.Array, jax.Array]:
    rows, columns = lu.shape[-2:]
    least = jax.core.min_dim(rows, columns)
    lower = jnp.tril(lu[..., :, :least], -1) + jnp.eye(rows, least, dtype=lu.dtype)
    return lower, jnp.triu(lu[..., :least, :])


def _matrix(order: jax.Array, dtype: np.dtype) -> jax.Array:
    """P of P L U, whose columns are units."""
    size = order.shape[-1]
    return (jnp.arange(size, dtype=order.dtype)[:, None] == order[..., None, :]).astype(dtype)


# Handlers


def _handler(fn: Callable[..., object], at_least: Sequence[tuple[Dim, Dim]] = ()) -> Handler:
    """`fn(arrays, *attributes)`; results that are not wanted are empty: PyTorch says which. at_least: see `traced`."""

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
    """A handler for matrices whose sides are equal, though PyTorch has a symbol for each."""
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
    return _lu(jnp.swapaxes(a, -1, -2) if turned else a)


def _det(turned: bool, a: jax.Array) -> Arrays:
    lu, pivots, _ = _lu_of(a, turned)
    diagonal = _diagonal(lu)
    return _parity(pivots, a.dtype) * jnp.prod(diagonal, axis=-1), lu, pivots


def _slogdet(turned: bool, a: jax.Array) -> Arrays:
    lu, pivots, _ = _lu_of(a, turned)
    diagonal = _diagonal(lu)
    sign = _parity(pivots, a.dtype) * jnp.prod(jnp.sign(diagonal), axis=-1)
    return sign, jnp.sum(jnp.log(jnp.abs(diagonal)), axis=-1), lu, pivots


def _solve(r: AtenReader, a: Array, b: Array, **attrs: object) -> Array | list[Array]:
    is_vector = b.rank == 1 or b.shape == a.shape[:-1]
    return _handler(lambda *arrays, **how: _solution(is_vector, *arrays, **how))(r, a, b, **attrs)


def _solution(is_vector: bool, a: jax.Array, b: jax.Array, *, left: bool = True, check_errors: bool = False) -> Arrays:
    lu, pivots, info = _lu(a)
    made = _lu_solve(lu, pivots, b[..., None] if is_vector else b, left)
    return made[..., 0] if is_vector else made, lu, pivots, info


def _inverse(a: jax.Array, *, check_errors: bool = False) -> Arrays:
    lu, pivots, info = _lu(a)
    return _lu_solve(lu, pivots, jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)), info


def _cholesky(a: jax.Array, *, upper: bool = False, check_errors: bool = False) -> Arrays:
    given = jnp.triu(a) if upper else jnp.tril(a)
    lower = lax.cholesky(_adjoint(given) if upper else given, symmetrize_input=False)
    failed = jnp.any(jnp.isnan(lower), axis=(-2, -1)) & ~jnp.any(jnp.isnan(given), axis=(-2, -1))
    return _adjoint(lower) if upper else lower, failed.astype(jnp.int32)


def _cholesky_solve(b: jax.Array, factor: jax.Array, upper: bool = False) -> jax.Array:
    how = {"transpose_a": True, "conjugate_a": True}
    if upper:
        return _triangle(factor, _triangle(factor, b, True, **how), True)
    return _triangle(factor, _triangle(factor, b, False), False, **how)


def _cholesky_inverse(factor: jax.Array, upper: bool = False) -> jax.Array:
    return _cholesky_solve(jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape), factor, upper)


def _lu_factor(a: jax.Array, *, pivot: bool = True, check_errors: bool = False) -> Arrays:
    if not pivot:
        raise ValueError("LU without pivots")
    return _lu(a)


def _lu_parts(a: jax.Array, *, pivot: bool = True) -> Arrays:
    if not pivot:
        raise ValueError("LU without pivots")
    lu, pivots, _ = _lu(a)
    return (_matrix(_permutation(lu, pivots), a.dtype), *_unpacked(lu))


def _lu_unpack(r: AtenReader, lu: Array, pivots: Array, data: bool = True, order: bool = True) -> Array | list[Array]:
    """P, L and U, of which those that are not wanted are empty."""

    def fn(lu: jax.Array, pivots: jax.Array) -> Arrays:
        none = jnp.zeros((0,), lu.dtype)
        parts = _unpacked(lu) if data else (none, none)
        return (_matrix(_permutation(lu, pivots), lu.dtype) if order else none, *parts)

    return _handler(fn, at_least=[(lu.shape[-2], pivots.shape[-1])] if order else [])(r, lu, pivots)


def _lu_solution(
    lu: jax.Array, pivots: jax.Array, b: jax.Array, *, left: bool = True, adjoint: bool = False
) -> jax.Array:
    return _lu_solve(lu, pivots, b, left, adjoint, adjoint)


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


def _solve_triangular(
    a: jax.Array, b: jax.Array, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> jax.Array:
    return _triangle(a, b, upper, left, unitriangular)


def _triangular_solve(
    b: jax.Array, a: jax.Array, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Arrays:
    made = _triangle(a, b, upper, unit=unitriangular, transpose_a=transpose)
    return made, jnp.broadcast_to(a, (*made.shape[:-2], *a.shape[-2:]))


def _householder(r: AtenReader, a: Array, tau: Array) -> Array:
    rows, columns = a.shape[-2:]
    least = [(rows, columns), (columns, tau.shape[-1])]
    return traced(r, lax.householder_product, a, tau, at_least=least)[0]


def _pinv(
    r: AtenReader, a: Array, *, atol: Operand | None = None, rtol: Operand | None = None, hermitian: bool = False
) -> Array:
    """Singular values that are not above the tolerances count as zero."""
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
            s, u, vh = jnp.abs(values), v, _adjoint(v) * jnp.sign(values)[..., None]
        else:
            u, s, vh = lax.svd(a, full_matrices=False)
        top = jnp.max(s, axis=-1, keepdims=True, initial=0)
        least = jnp.maximum(*(jnp.asarray(x)[..., None] for x in (absolute, relative * top[..., 0]))).astype(s.dtype)
        inverse = jnp.where(s > least, 1 / s, 0).astype(a.dtype)
        return jnp.matmul(_adjoint(vh) * inverse[..., None, :], _adjoint(u))

    return traced(r, fn, a, *given)[0]


def _cross(r: AtenReader, a: Array, b: Array, *, dim: int = -1) -> Array:
    a, b = (x.cast(r.out.dtype).broadcast(r.out.shape) for x in (a, b))

    def turned(x: Array, first: int) -> Array:
        parts = [x.slice(dim, i % 3, i % 3 + 1) for i in range(first, first + 3)]
        return joined(parts, dim)

    one, other = (turned(a, i) * turned(b, 3 - i) for i in (1, 2))
    return one - other


def _with_effects(r: AtenReader, token: Array, op: object, *_: object, **__: object) -> list[Array | None]:
    """Only the check of errors, which is none here: what has no solution is infinite or no number."""
    if str(op) != "aten._linalg_check_errors.default":
        r.unsupported(f"{op} has an effect, which is not supported")
    return [token] + [None] * (len(r.node.meta["val"]) - 1)


def _multiplied(r: AtenReader, a: Array, tau: Array, c: Array, left: bool = True, transpose: bool = False) -> Array:
    """By Q, the product of the reflections below the diagonal of `a`."""

    def fn(a: jax.Array, tau: jax.Array, c: jax.Array) -> jax.Array:
        rows, columns = a.shape[-2:]
        square = jnp.concatenate([a, jnp.zeros((*a.shape[:-1], rows - columns), a.dtype)], axis=-1)
        q = lax.householder_product(square, tau)
        q = _adjoint(q) if transpose else q
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
    "aten.linalg_solve_triangular.default": _handler(_solve_triangular),
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
