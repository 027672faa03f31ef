"""Matrices in memory in the form that micro-kernels take, and the device functions that take them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from hlo_disc.frozen import frozen
from hlo_disc.mlir import ir
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.values.elements import convert, from_memory
from hlo_disc.stitch.codegen.values.val import Scalar, Val

Call = Callable[..., None]
# A row, or a column, and a k.
Place = tuple[Scalar, Scalar]


@frozen
class DotTypes:
    """The element types of the row operand, the column operand and the accumulators.

    pairs: multiply pairs of bf16 (`bf16_dot.py`); tiles: and many of them at once (`bf16_tiles.py`).
    """

    row: np.dtype
    col: np.dtype
    sum: np.dtype
    pairs: bool = False
    tiles: bool = False


def at_once(dtype: np.dtype) -> int:
    """Return how many neighbours a thread of a team accesses at once: 16 bytes, so that no memory bank waits."""
    return 16 // dtype.itemsize


@frozen
class Staging:
    """The way in which a team copies operands to fast memory, and finds sums there.

    dtype: of operands in fast memory. vector: neighbours that a thread reads at once. next: vectors of a row along K
        that neighbouring threads read.
    turned: vectors across K are turned on their way, so that lines in fast memory are along K.
    pad, sums_pad: elements behind each row of operands, and of the sums: neighbours that are written one below the
        other lie in other banks.
    """

    dtype: np.dtype
    vector: int
    next: int
    pad: int
    sums_pad: int
    turned: bool = False


@frozen
class Operand:
    """A part of a matrix in memory: the position of its first element, and its strides along some axes."""

    buffer: Val
    at: Scalar
    strides: tuple[Scalar, ...] = ()

    @property
    def words(self) -> tuple[Scalar, ...]:
        """The arguments that a call passes for the operand."""
        return (self.buffer, self.at, *self.strides)


@frozen
class Rows:
    """Rows of a matrix without a common stride: the position of each."""

    buffer: Val
    starts: tuple[Scalar, ...]

    @property
    def words(self) -> tuple[Scalar, ...]:
        return (self.buffer, *self.starts)


@frozen
class KAxis:
    """A contracted axis: its size, and its strides in the row and column operand."""

    size: Scalar
    row_stride: Scalar
    col_stride: Scalar

    @property
    def words(self) -> tuple[Scalar, ...]:
        return (self.size, self.row_stride, self.col_stride)


Argument = Operand | Rows | KAxis | Scalar


@frozen
class Parameter:
    """The words of an argument, and the function that combines them."""

    types: tuple[ir.Type, ...]
    make: Callable[..., Argument]


def matrix(b: Builder, dtype: np.dtype, strides: int = 0) -> Parameter:
    """Declare an `Operand`."""
    types = (b.buffer_type(b.memory_type(dtype)), *[b.index_type] * (1 + strides))
    return Parameter(types, lambda buffer, at, *rest: Operand(buffer, at, rest))


def matrix_rows(b: Builder, dtype: np.dtype, count: int) -> Parameter:
    """Declare so many `Rows`."""
    types = (b.buffer_type(b.memory_type(dtype)), *[b.index_type] * count)
    return Parameter(types, lambda buffer, *starts: Rows(buffer, starts))


def k_axis(b: Builder) -> Parameter:
    return Parameter((b.index_type,) * 3, KAxis)


def scalar(b: Builder, type_: ir.Type | None = None) -> Parameter:
    """Declare an index, or a value of another type."""
    return Parameter((type_ or b.index_type,), lambda x: x)


def routine(
    b: Builder, key: tuple[Hashable, ...], name: str, parameters: Sequence[Parameter], body: Callable[..., None]
) -> Call:
    """Build a device function that every dot of a module shares; `body` and its callers pass `parameters` in this
    order."""

    def build(*values: Val) -> None:
        rest = iter(values)
        body(*(p.make(*itertools.islice(rest, len(p.types))) for p in parameters))

    call = b.module.shared(key, name, [t for p in parameters for t in p.types], build)

    def flat(*args: Argument) -> None:
        call(*(word for x in args for word in ((x,) if isinstance(x, Val | int) else x.words)))

    return flat


def load(
    b: Builder, source: np.dtype, target: np.dtype, buffer: Val, i: Scalar, lanes: int, mask: Val | None = None
) -> Val:
    """Elements of `source` in memory as `target` in registers."""
    return convert(b, from_memory(b, b.load(buffer, i, lanes, mask), source), source, target)


def gather(
    b: Builder, source: np.dtype, target: np.dtype, buffer: Val, i: Scalar, offsets: Val, mask: Val | None = None
) -> Val:
    """Load elements i + offsets[lane] of `source` in memory as `target` in registers."""
    return convert(b, from_memory(b, b.gather(buffer, i, offsets, mask), source), source, target)
