"""The diagonals of matrices: the main one, or a band of them as rows of equal length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Shape
from hlo_disc.dynamic_hlo.ops.expr import I64, where
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim, dim_product
from hlo_disc.import_.construction import Construction
from hlo_disc.import_.handlers.arrays import Array, array, filled, iota
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.tensorflow.shapes import ints

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node


def on_diagonal(r: Construction, shape: Shape) -> Array:
    """Return where the last two indices are equal."""
    return iota(r, shape, len(shape) - 2) == iota(r, shape, len(shape) - 1)


def diagonal(r: Reader, x: Array) -> Array:
    """Take the elements whose last two indices are equal."""
    n = r.evaluator.scalar.minimum(*x.shape[-2:])
    square = x.slice(x.rank - 2, ZERO, n).slice(x.rank - 1, ZERO, n)
    return where(on_diagonal(r, square.shape), square, 0).sum([x.rank - 1])


class Band:
    """A band of diagonals of matrices of one size: from number `low` to `high`, counted upwards from the main one.

    Packed, each diagonal is a row, the uppermost first, and is aligned left or right in it.
    """

    def __init__(self, r: Reader, op: Node, operands: list[Operand], at: int):
        given = ints(r, operands[at], "the diagonals") if len(operands) > at else [0]
        self.r, (self.low, self.high) = r, (given[0], given[-1])
        upper, lower = op.attributes.get("align", "RIGHT_LEFT" if op.name.endswith("V3") else "LEFT_LEFT").split("_")
        self.left_upper, self.left_lower = upper == "LEFT", lower == "LEFT"

    @property
    def is_main(self) -> bool:
        return self.low == self.high == 0

    def longest(self, rows: Dim, columns: Dim) -> Dim:
        """The length of the longest diagonal."""
        scalar = self.r.evaluator.scalar
        found = ZERO
        for d in range(self.low, self.high + 1):
            found = scalar.maximum(found, scalar.minimum(rows + min(d, 0), columns - max(d, 0)))
        return found

    def start(self, d: Array, rows: Dim, columns: Dim) -> tuple[Array, Array]:
        """Return the lengths of diagonals, and where each begins in its row, by their numbers."""
        height, width = (filled(self.r, n, I64) for n in (rows, columns))
        length = (height + d.minimum(0)).minimum(width - d.maximum(0))
        most = filled(self.r, self.longest(rows, columns), I64)
        left = (d >= 0) & self.left_upper | (d <= 0) & self.left_lower
        return length, where(left, 0, most - length)

    def shape(self, rows: Dim, columns: Dim) -> Shape:
        """The shape of the diagonals."""
        longest = self.longest(rows, columns)
        return (longest,) if self.low == self.high else (Dim.const(self.high - self.low + 1), longest)

    def taken(self, x: Array, padding: Array) -> Array:
        """Take the diagonals of matrices."""
        *batch, rows, columns = x.shape
        wide = (Dim.const(self.high - self.low + 1), self.longest(rows, columns))
        d = self.high - iota(self.r, wide, 0, I64)
        length, start = self.start(d, rows, columns)
        place = iota(self.r, wide, 1, I64) - start
        inside = (place >= 0) & (place < length)
        at = (place - d.minimum(0)) * columns + place + d.maximum(0)
        flat = x.reshape((*batch, rows * columns))
        made = where(inside, flat.take(where(inside, at, 0), flat.rank - 1), padding)
        return made.reshape((*batch, *self.shape(rows, columns)))

    def put(self, diagonals: Array, rows: Dim, columns: Dim, rest: Array) -> Array:
        """Return matrices with these diagonals, and `rest` elsewhere."""
        own = self.shape(rows, columns)
        batch = diagonals.shape[: diagonals.rank - len(own)]
        for axis, (n, m) in enumerate(zip(diagonals.shape[len(batch) :], own, strict=True)):
            self.r.equal(n, m, f"dimension {len(batch) + axis} of the diagonals and of those of the matrix")
        wide = (rows, columns)
        row, column = (iota(self.r, wide, axis, I64) for axis in (0, 1))
        d = column - row
        inside = (d >= self.low) & (d <= self.high)
        _, start = self.start(d, rows, columns)
        at = (self.high - d) * own[-1] + row.minimum(column) + start
        flat = diagonals.reshape((*batch, dim_product(own)))
        return where(inside, flat.take(where(inside, at, 0), flat.rank - 1), rest)


def _diag(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, band = array(r, operands[0]), Band(r, op, operands, 1)
    padding = array(r, operands[4]) if len(operands) > 4 else x.like(0)
    given: list[Dim | None] = [None, None]
    for i, at in enumerate((2, 3)):
        if len(operands) > at and r.constant_of(operands[at]) != -1:
            (given[i],) = r.elements(operands[at])
    n = x.shape[-1]
    least = n - min(band.high, 0), n + max(band.low, 0)
    if given == [None, None]:
        least = (n + max(max(band.low, 0), -min(band.high, 0)),) * 2
    rows, columns = (d if size is None else size for size, d in zip(given, least, strict=True))
    if band.is_main and rows is columns is n:
        shape = (*x.shape[:-1], n, n)
        return where(on_diagonal(r, shape), x.broadcast(shape, [*range(x.rank - 1), x.rank]), padding).value
    return band.put(x, rows, columns, padding).value


def _diag_part(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, band = array(r, operands[0]), Band(r, op, operands, 1)
    if band.is_main:
        return diagonal(r, x).value
    return band.taken(x, array(r, operands[2])).value


def _set_diag(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, line, band = array(r, operands[0]), array(r, operands[1]), Band(r, op, operands, 2)
    rows, columns = x.shape[-2:]
    if not band.is_main:
        return band.put(line, rows, columns, x).value
    n = r.evaluator.scalar.minimum(rows, columns)
    r.equal(line.shape[-1], n, "the new diagonal's length and the matrix's")
    longest = line.pad([ZERO] * line.rank, [*[ZERO] * (line.rank - 1), rows - line.shape[-1]])
    return where(on_diagonal(r, x.shape), longest.broadcast(x.shape, range(x.rank - 1)), x).value


def _trace_part(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """`DiagPart`: of a tensor of rank 2k."""
    x = array(r, operands[0])
    half = x.rank // 2
    n = dim_product(x.shape[:half])
    return diagonal(r, x.reshape((n, n))).reshape(x.shape[:half]).value


HANDLERS: dict[str, Handler] = {
    "DiagPart": _trace_part,
    **dict.fromkeys(("MatrixDiag", "MatrixDiagV2", "MatrixDiagV3"), _diag),
    **dict.fromkeys(("MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3"), _diag_part),
    **dict.fromkeys(("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3"), _set_diag),
}
