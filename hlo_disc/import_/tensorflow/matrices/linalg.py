"""Products of matrices, and factorisations by LAPACK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ops.expr import I32, I64, where
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.import_.handlers.arrays import Array, array, dot, filled, iota, joined, loop
from hlo_disc.import_.handlers.library import call_library, cholesky_of, lapack_name, triangular_solve_of
from hlo_disc.import_.handlers.products.einsum import make_einsum
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand, Symbolic
from hlo_disc.import_.tensorflow.matrices.diagonals import diagonal, on_diagonal
from hlo_disc.import_.tensorflow.shapes import broadcast_shape, result_dtype

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node


def turned(x: Array) -> Array:
    """The last two axes exchanged."""
    return x.transpose((*range(x.rank - 2), x.rank - 1, x.rank - 2))


def _mat_mul(r: Reader, op: Node, operands: list[Operand]) -> Result:
    a, b = (array(r, x).cast(result_dtype(op)) for x in operands)  # of SparseMatMul one may be narrower
    flag = op.attributes.get
    return dot(a, b, [0 if flag("transpose_a") else 1], [1 if flag("transpose_b") else 0]).value


def _batch_mat_mul(r: Reader, op: Node, operands: list[Operand]) -> Result:
    a, b = (array(r, x) for x in operands)
    flag = op.attributes.get
    if flag("adj_x"):
        a = turned(a).conj()
    if flag("adj_y"):
        b = turned(b).conj()
    dtype = result_dtype(op)
    if b.rank == 2:
        return dot(a, b, [a.rank - 1], [0], dtype=dtype).value
    batch = broadcast_shape(r, a.shape[:-2], b.shape[:-2])
    a, b = (x.broadcast((*batch, *x.shape[-2:])) for x in (a, b))
    k = len(batch)
    return dot(a, b, [k + 1], [k], k, dtype).value


def _einsum(r: Reader, op: Node, operands: list[Operand]) -> Result:
    values = [r.data(x) for x in operands]
    return make_einsum(r, op, op.attributes["equation"], values, result_dtype(op))


def _band_part(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    row, column = x.iota(x.rank - 2, I64), x.iota(x.rank - 1, I64)
    inside = None
    for count, distance in ((operands[1], row - column), (operands[2], column - row)):
        if isinstance(count, Symbolic) and r.facts.at_most(count.elements[0], Dim.const(-1)).name == "YES":  # type: ignore[arg-type]
            continue
        most = array(r, count).cast(I64)
        within = (distance <= most) | (most < 0)
        inside = within if inside is None else inside & within
    return x.value if inside is None else where(inside, x, 0).value


def _cross(r: Reader, op: Node, operands: list[Operand]) -> Result:
    a, b = (array(r, x) for x in operands)
    axis = a.rank - 1
    r.equal(a.shape[axis], Dim.const(3), "the last dimension and 3")
    parts = [[x.slice(axis, i, i + 1) for i in range(3)] for x in (a, b)]
    (a0, a1, a2), (b0, b1, b2) = parts
    return joined([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axis).value


# ------------------------------------------------------------------------------------------------------ factorisations


def solve_triangular(r: Reader, a: Array, b: Array, lower: bool, adjoint: bool, unit: bool = False) -> Array:
    """Solve A x = b for a triangular matrix A, or for its adjoint."""
    batch = broadcast_shape(r, a.shape[:-2], b.shape[:-2])
    a, b = (x.broadcast((*batch, *x.shape[-2:])) for x in (a, b))
    transpose = "ADJOINT" if adjoint else "NO_TRANSPOSE"
    return Array(r, triangular_solve_of(r, a.value, b.value, True, lower, unit, transpose))


def _triangular_solve(r: Reader, op: Node, operands: list[Operand]) -> Result:
    a, b = (array(r, x) for x in operands)
    flag = op.attributes.get
    return solve_triangular(r, a, b, flag("lower", True), flag("adjoint", False)).value


def _factors(r: Reader, x: Array) -> tuple[Array, Array]:
    """The LU factors of square matrices in one, and which row was exchanged for each, from 0."""
    *batch, rows, columns = x.shape
    r.equal(rows, columns, "rows and columns")
    outer = tuple(range(x.rank - 2))
    turned_ = (*outer, x.rank - 1, x.rank - 2)
    vector = (*outer, x.rank - 2)
    types = [(x.dtype, x.shape), (I32, (*batch, rows)), (I32, tuple(batch))]
    orders = ((turned_,), (turned_, vector, outer))
    made, pivots, _ = call_library(r, lapack_name("getrf", x.value), (), [x.value], types, orders, ((0, 0),))
    return Array(r, made), Array(r, pivots) - 1


def permutation(r: Reader, pivots: Array) -> Array:
    """Exchanges of rows, one after another, as the row that ends up at each place."""
    batch, n = dim_product(pivots.shape[:-1]), pivots.shape[-1]
    flat = pivots.reshape((batch, n))

    def body(i: Array, perm: Array) -> list[Array]:
        at = i.broadcast((batch, ONE))
        target, mine, place = flat.window(1, i), perm.window(1, i), perm.iota(1, I32)
        other = where(place == target, perm, 0).sum([1], keep=True)
        swapped = where(place == target, mine, perm)
        return [i + 1, where(place == at, other, swapped)]

    start = iota(r, (batch, n), 1, I32)
    count = filled(r, n, I32)
    first = filled(r, 0, I32, ())
    (_, perm) = loop(r, lambda i, perm: i < count, body, [first, start])
    return perm.reshape(pivots.shape)


def _lu(r: Reader, op: Node, operands: list[Operand]) -> Result:
    made, pivots = _factors(r, array(r, operands[0]))
    return [made.value, permutation(r, pivots).cast(result_dtype(op, 1)).value]


def solve(r: Reader, a: Array, b: Array, adjoint: bool = False) -> Array:
    """Solve A x = b for square matrices A, or for their adjoints, by LU factors with exchanged rows."""
    if adjoint:
        a = turned(a).conj()
    made, pivots = _factors(r, a)
    perm = permutation(r, pivots)
    n = perm.shape[-1]
    flat_b = b.reshape((dim_product(b.shape[:-2]), *b.shape[-2:]))
    flat_p = perm.reshape((flat_b.shape[0], n))
    rows = flat_b.take(flat_p, 1, 1).reshape(b.shape)
    return solve_triangular(r, made, solve_triangular(r, made, rows, True, False, True), False, False)


def identity_like(x: Array) -> Array:
    return where(on_diagonal(x.r, x.shape), x.like(1), x.like(0))


def _inverse(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = array(r, operands[0])
    return solve(r, x, identity_like(x), op.attributes.get("adjoint", False)).value


def _solve(r: Reader, op: Node, operands: list[Operand]) -> Result:
    a, b = (array(r, x) for x in operands)
    return solve(r, a, b, op.attributes.get("adjoint", False)).value


def _sign_of(pivots: Array) -> Array:
    """-1 for an odd number of exchanges."""
    moved = (pivots != pivots.iota(pivots.rank - 1)).cast(I32).sum([pivots.rank - 1])
    return 1 - (moved & 1) * 2


def _determinant(r: Reader, op: Node, operands: list[Operand]) -> Result:
    made, pivots = _factors(r, array(r, operands[0]))
    product = diagonal(r, made).reduce("mul", [made.rank - 2])
    return (product * _sign_of(pivots).cast(product.dtype)).value


def _log_determinant(r: Reader, op: Node, operands: list[Operand]) -> Result:
    made, pivots = _factors(r, array(r, operands[0]))
    line = diagonal(r, made)
    sign = line.op("sign").reduce("mul", [made.rank - 2]) * _sign_of(pivots).cast(made.dtype)
    return [sign.value, abs(line).log().sum([made.rank - 2]).value]


def _fft(kind: str, axes: int) -> Handler:
    def handler(r: Reader, op: Node, operands: list[Operand]) -> Result:
        x = array(r, operands[0])
        if kind in ("FFT", "IFFT"):
            return r.emit("fft", (x.value,), transform=kind, length=x.shape[-axes:])
        length = r.sizes(operands[1])
        for i, n in enumerate(length):
            axis = x.rank - axes + i
            wanted = n // 2 + 1 if kind == "IRFFT" and i == axes - 1 else n
            have = x.shape[axis]
            kept = r.evaluator.scalar.minimum(wanted, have)
            x = x.slice(axis, ZERO, kept)
            x = x.pad([ZERO] * x.rank, [wanted - kept if a == axis else ZERO for a in range(x.rank)])
        return r.emit("fft", (x.value,), transform=kind, length=length)

    return handler


HANDLERS: dict[str, Handler] = {
    **{
        f"{kind}{axes}D" if axes > 1 else kind: _fft(kind, axes)
        for kind in ("FFT", "IFFT", "IRFFT", "RFFT")
        for axes in (1, 2, 3)
    },
    "BatchMatMul": _batch_mat_mul,
    "BatchMatMulV2": _batch_mat_mul,
    "BatchMatMulV3": _batch_mat_mul,
    "Cholesky": lambda r, op, operands: cholesky_of(r, r.data(operands[0]), True),
    "Cross": _cross,
    "Einsum": _einsum,
    "LogMatrixDeterminant": _log_determinant,
    "Lu": _lu,
    "MatMul": _mat_mul,
    "MatrixBandPart": _band_part,
    "MatrixDeterminant": _determinant,
    "MatrixInverse": _inverse,
    "MatrixSolve": _solve,
    "MatrixTriangularSolve": _triangular_solve,
    "SparseMatMul": _mat_mul,
}
