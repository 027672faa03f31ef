"""A large dot as a product of the vendor's library (cuBLASLt, hipBLASLt), where there is one.

The runtime says at each call whether it takes the product; see `ral_product`. Offered are dots of floats with nothing
computed behind them, whose matrices have contiguous rows or columns. They are as exact as our own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from hlo_disc.abi import PRODUCT
from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.frozen import frozen
from hlo_disc.mlir import func, memref
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.strided import Strided, row_major
from hlo_disc.stitch.schedules.dot.product import Product
from hlo_disc.stitch.schedules.library import record
from hlo_disc.stitch.variant import Choice, Condition, Variant

# cudaDataType and hipDataType, which agree.
NUMBERS = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
# (type of the operands, type of the result)
TYPES = {("float32",) * 2, ("float64",) * 2, *((x, y) for x in ("float16", "bfloat16") for y in (x, "float32"))}


@frozen
class LibraryDot(Variant):
    """One form of a dot group, without a kernel."""

    group: Group
    product: Product

    @property
    def name(self) -> str:
        return "library_product"

    def key(self) -> tuple[Hashable, ...]:
        return ("library_product", self.group.key)

    def build(self, b: Builder, name: str) -> None:
        """Do nothing: the kernels are the library's."""

    def launch(self, b: Builder, sizes: Sizes, name: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> Val:
        p = self.product
        at = dict(zip((*self.group.inputs, *self.group.outputs), buffers, strict=True))
        (output,), (k,) = self.group.outputs, p.inner
        row, col, batch = _strides(p)
        left = (p.rows, p.row_axis.row_stride, k.row_stride, _batch_stride(p, "row"))
        right = (p.cols, k.col_stride, p.col_axis.col_stride, _batch_stride(p, "col"))
        whole = (Strided(output, output.shape, ZERO, ()), row, col, batch)
        types = [NUMBERS[x.dtype.name] for x in (p.rows.source, output)]
        counts = [dim_product(p.axes[a].size for a in p.batch), p.row_axis.size, p.col_axis.size, k.size]
        words: list[Scalar] = [*types, int(p.tf32), *(sizes(n) for n in counts)]
        for walk, *strides in (left, right, whole):
            start = sizes(walk.offset) * walk.source.dtype.itemsize
            address = Val(b, memref.ExtractAlignedPointerAsIndexOp(at[walk.source].v).result)
            words += [address + start, *(sizes(stride) for stride in strides)]
        b.module.declare(PRODUCT, [b.pointer, b.pointer, b.buffer_type(b.i64)], [b.i32])
        assert b.runtime is not None
        arguments = [b.runtime.v, b.name_of_kernel(name).v, record(b, words).v]
        return Val(b, func.CallOp([b.i32], PRODUCT, arguments).result)


def library_dot(group: Group, p: Product, device: Device) -> Choice | None:
    """Return the library's choice for large products; None if it has none for such a dot."""
    if not device.library_products or not _is_plain(group, p):
        return None
    products = dim_product([*(axis.size for axis in p.axes), p.depth])
    return Choice(LibraryDot(group, p), (Condition(products, ">=", device.library_products),), may_decline=True)


def _is_plain(group: Group, p: Product) -> bool:
    (output,) = p.epilogue.outputs
    left, right = p.rows.source.dtype.name, p.cols.source.dtype.name
    if output is not p.epilogue.inputs[0] or group.place or left != right or (left, output.dtype.name) not in TYPES:
        return False
    if p.row is None or p.col is None or len(p.batch) > 1 or len(p.inner) > 1:
        return False
    if p.rows.windowed or p.cols.windowed or any(axis.digits for axis in (*p.axes, *p.inner)):
        return False
    (k,), (row, col, _) = p.inner, _strides(p)
    matrices = ((p.row_axis.row_stride, k.row_stride), (k.col_stride, p.col_axis.col_stride), (row, col))
    return all(ONE in strides for strides in matrices)


def _strides(p: Product) -> tuple[Dim, Dim, Dim]:
    """Return the strides of the result along rows, columns and the batch."""
    strides = row_major(tuple(axis.size for axis in p.axes))
    assert p.row is not None and p.col is not None
    return strides[p.row], strides[p.col], sum((strides[a] for a in p.batch), ZERO)


def _batch_stride(p: Product, side: str) -> Dim:
    return sum((getattr(p.axes[a], f"{side}_stride") for a in p.batch), ZERO)
