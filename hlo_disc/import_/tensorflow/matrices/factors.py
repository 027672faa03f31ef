"""Factors, roots, eigenvalues and inverses of matrices, and systems of equations: by formulas of JAX's arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO
from hlo_disc.import_.by_jax import traced
from hlo_disc.import_.formulas import linalg as formulas
from hlo_disc.import_.handlers.arrays import Array, array, filled
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.jax_later import jax, jnp
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.tensorflow.shapes import result_dtype

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node

lax = jax.lax.linalg


def _matrix(r: Reader, x: Operand) -> Value:
    """Convert an operand to a type that LAPACK has."""
    value = r.data(x)
    if value.dtype.name not in ("float32", "float64", "complex64", "complex128"):
        r.unsupported(f"factors of {value.dtype}")
    return value


def _traced(r: Reader, fn: Callable[..., object], *values: Value) -> list[Value]:
    return [x.value for x in traced(r, fn, *(Array(r, x) for x in values))]


def _square(r: Reader, x: Operand) -> Value:
    value = _matrix(r, x)
    r.equal(value.shape[-2], value.shape[-1], "rows and columns")
    return value


def _qr(r: Reader, op: Node, operands: list[Operand]) -> Result:
    full = op.attributes.get("full_matrices", False)
    return _traced(r, lambda a: lax.qr(a, full_matrices=full), _matrix(r, operands[0]))


def _svd(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Return singular values, and vectors as columns of both factors."""
    x = _matrix(r, operands[0])
    full = op.name == "tf.XlaSvd" or op.attributes.get("full_matrices", False)
    if not op.attributes.get("compute_uv", True):
        (values,) = _traced(r, lambda a: lax.svd(a, compute_uv=False), x)
        none = filled(r, 0, x.dtype, (ZERO,)).value
        return [values, none, none]

    def fn(a: jax.Array) -> tuple[jax.Array, ...]:
        u, s, vh = lax.svd(a, full_matrices=full)
        return s, u, formulas.adjoint(vh)

    return _traced(r, fn, x)


def _eigh(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Return eigenvalues and vectors of a self-adjoint matrix, given by one triangle, in the operand's type."""
    x = _square(r, operands[0])

    def fn(a: jax.Array) -> tuple[jax.Array, jax.Array]:
        vectors, values = lax.eigh(a, lower=op.attributes.get("lower", True), symmetrize_input=False)
        return values.astype(a.dtype), vectors

    values, vectors = _traced(r, fn, x)
    return [values, vectors if op.attributes.get("compute_v", True) else filled(r, 0, x.dtype, (ZERO,)).value]


def _eig(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Compute eigenvalues and eigenvectors of any square matrix, in no order; vectors are of length 1."""
    x = _square(r, operands[0])
    both = op.attributes.get("compute_v", True)
    made = _traced(r, lambda a: lax.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=both), x)
    return made if both else [made[0], filled(r, 0, made[0].dtype, (ZERO,)).value]


def _square_root(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Return the principal square root of a square matrix.

    A matrix of real numbers with a negative eigenvalue has no such real matrix: NaN.
    """
    x = _square(r, operands[0])

    def fn(a: jax.Array) -> jax.Array:
        root = jnp.vectorize(jax.scipy.linalg.sqrtm, signature="(n,n)->(n,n)")(a)
        if jnp.iscomplexobj(a):
            return root
        (values,) = lax.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)
        negative = ((values.imag == 0) & (values.real < 0)).any(-1)
        return jnp.where(negative[..., None, None], np.nan, root.real)

    return _traced(r, fn, x)


def _widened(r: Reader, x: Operand) -> Array:
    """Widen an operand of a triangular system: LAPACK has no small floats."""
    given = array(r, x)
    return given.cast(computed(given.dtype))


def _cholesky(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = _widened(r, operands[0])
    r.equal(x.shape[-2], x.shape[-1], "rows and columns")
    (factor,) = traced(r, formulas.cholesky, x)
    return factor.cast(result_dtype(op)).value


def _triangular_solve(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Solve A x = b for a triangular matrix A, or for its adjoint."""
    a, b = (_widened(r, x) for x in operands)
    upper, adjoint = not op.attributes.get("lower", True), op.attributes.get("adjoint", False)

    def fn(a: jax.Array, b: jax.Array) -> jax.Array:
        return formulas.triangle(a, b, upper, transpose_a=adjoint, conjugate_a=adjoint)

    (made,) = traced(r, fn, *_system(r, a, b))
    return made.cast(result_dtype(op)).value


def _system(r: Reader, a: Array, b: Array) -> tuple[Array, Array]:
    """Return both sides of A x = b with a common batch."""
    r.equal(a.shape[-2], a.shape[-1], "rows and columns")
    r.equal(a.shape[-1], b.shape[-2], "the matrix and the rows of the other operand")
    batch = r.common([a.shape[:-2], b.shape[:-2]])
    a, b = (x.broadcast((*batch, *x.shape[-2:])) for x in (a, b))
    return a, b


def _lu(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Return both factors in one matrix, and the row permutation."""

    def fn(a: jax.Array) -> tuple[jax.Array, jax.Array]:
        lu, _, order = lax.lu(a)
        return lu, order.astype(result_dtype(op, 1))

    return _traced(r, fn, _square(r, operands[0]))


def _solve(r: Reader, op: Node, operands: list[Operand]) -> Result:
    adjoint = op.attributes.get("adjoint", False)

    def fn(a: jax.Array, b: jax.Array) -> jax.Array:
        lu, _, order = lax.lu(formulas.adjoint(a) if adjoint else a)
        return formulas.lu_solve(lu, order, b)

    a, b = _system(r, *(Array(r, _matrix(r, x)) for x in operands))
    return _traced(r, fn, a.value, b.value)


def _inverse(r: Reader, op: Node, operands: list[Operand]) -> Result:
    adjoint = op.attributes.get("adjoint", False)

    def fn(a: jax.Array) -> jax.Array:
        lu, _, order = lax.lu(formulas.adjoint(a) if adjoint else a)
        return formulas.inverse(lu, order)

    return _traced(r, fn, _square(r, operands[0]))


def _determinant(r: Reader, op: Node, operands: list[Operand]) -> Result:
    return _traced(r, lambda a: formulas.determinant(*lax.lu(a)[:2]), _square(r, operands[0]))


def _log_determinant(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Return sign and logarithm of the magnitude, both of the operand's type."""

    def fn(a: jax.Array) -> tuple[jax.Array, jax.Array]:
        sign, size = formulas.log_determinant(*lax.lu(a)[:2])
        return sign, size.astype(a.dtype)

    return _traced(r, fn, _square(r, operands[0]))


def _tridiagonal_solve(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """The rows of the first operand are the diagonal above the main one, that, and the one below, each as long."""
    diagonals, rhs = (Array(r, _matrix(r, x)) for x in operands)
    if op.attributes.get("perturb_singular", False):
        r.unsupported("only perturb_singular=False")
    r.equal(diagonals.shape[-2], 3 * ONE, "the diagonals and 3")
    r.equal(diagonals.shape[-1], rhs.shape[-2], "the length of the diagonals and the rows")

    def fn(a: jax.Array, b: jax.Array) -> jax.Array:
        upper, main, lower = (a[..., i, :] for i in range(3))
        n = main.shape[-1]
        place = jnp.arange(n)
        upper, lower = jnp.where(place == n - 1, 0, upper), jnp.where(place == 0, 0, lower)
        return lax.tridiagonal_solve(lower, main, upper, b)

    return _traced(r, fn, diagonals.value, rhs.value)


def _tridiagonal_product(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Each row of the matrix has at most three terms; the diagonals are as long as the main one."""
    upper, main, lower, x = (array(r, o) for o in operands)
    rows = x.rank - 2
    n, none = x.shape[rows], [ZERO] * x.rank
    one = [ONE if a == rows else ZERO for a in range(x.rank)]

    def spread(line: Array) -> Array:
        return line.reshape((*line.shape[:-2], line.shape[-1], ONE))

    above, below = x.pad(none, one).slice(rows, ONE, n + 1), x.pad(one, none).slice(rows, ZERO, n)
    return (spread(upper) * above + spread(main) * x + spread(lower) * below).value


HANDLERS: dict[str, Handler] = {
    "Cholesky": _cholesky,
    "Eig": _eig,
    "LogMatrixDeterminant": _log_determinant,
    "Lu": _lu,
    "MatrixDeterminant": _determinant,
    "MatrixInverse": _inverse,
    "MatrixSolve": _solve,
    "MatrixSquareRoot": _square_root,
    "MatrixTriangularSolve": _triangular_solve,
    "Qr": _qr,
    "SelfAdjointEigV2": _eigh,
    "Svd": _svd,
    "TridiagonalMatMul": _tridiagonal_product,
    "TridiagonalSolve": _tridiagonal_solve,
    "XlaSelfAdjointEig": _eigh,
    "XlaSvd": _svd,
}
