"""Products of matrices, and Fourier transforms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ops.expr import I64, where
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim
from hlo_disc.import_.formulas.arithmetic import cross
from hlo_disc.import_.handlers.arrays import Array, array, dot
from hlo_disc.import_.handlers.products.einsum import make_einsum
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand, Symbolic
from hlo_disc.import_.tensorflow.shapes import result_dtype

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node


def turned(x: Array) -> Array:
    """Exchange the last two axes."""
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
    batch = r.common([a.shape[:-2], b.shape[:-2]])
    a, b = (x.broadcast((*batch, *x.shape[-2:])) for x in (a, b))
    k = len(batch)
    return dot(a, b, [k + 1], [k], k, dtype).value


def _einsum(r: Reader, op: Node, operands: list[Operand]) -> Result:
    values = [r.data(x) for x in operands]
    equation = op.attributes["equation"]
    return make_einsum(r, op, equation, values, result_dtype(op))  # type: ignore[arg-type]  # a node has the form of ops


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
    r.equal(a.shape[-1], Dim.const(3), "the last dimension and 3")
    return cross(a, b, -1).value


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
    "Cross": _cross,
    "Einsum": _einsum,
    "MatMul": _mat_mul,
    "MatrixBandPart": _band_part,
    "SparseMatMul": _mat_mul,
}
