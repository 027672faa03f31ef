"""Blocks of pixels as channels, or as parts of the batch, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim, dim_product
from hlo_disc.import_.handlers.arrays import array
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node


def _depth_to_space(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, k = array(r, operands[0]), op.attributes["block_size"]
    if op.attributes.get("data_format", "NHWC") != "NHWC":
        r.unsupported("only NHWC")
    n, h, w, c = x.shape
    parts = x.reshape((n, h, w, k, k, c // (k * k))).transpose((0, 1, 3, 2, 4, 5))
    return parts.reshape((n, h * k, w * k, c // (k * k))).value


def _space_to_depth(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, k = array(r, operands[0]), op.attributes["block_size"]
    if op.attributes.get("data_format", "NHWC") != "NHWC":
        r.unsupported("only NHWC")
    n, h, w, c = x.shape
    parts = x.reshape((n, h // k, k, w // k, k, c)).transpose((0, 1, 3, 2, 4, 5))
    return parts.reshape((n, h // k, w // k, c * k * k)).value


def _blocks(r: Reader, op: Node, operands: list[Operand]) -> tuple[Sequence[Dim], Sequence[Dim]]:
    """Return the sizes of a block, which older ops have as an attribute, and the crops or padding."""
    if (size := op.attributes.get("block_size")) is not None:
        return [Dim.const(size)] * 2, r.elements(operands[1])
    return r.elements(operands[1]), r.elements(operands[2])


def _batch_to_space(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, blocks, crops = array(r, operands[0]), *_blocks(r, op, operands)
    m, factor = len(blocks), dim_product(blocks)
    batch, rest = x.shape[0] // factor, x.shape[1 + m :]
    parts = x.reshape((*blocks, batch, *x.shape[1:]))
    perm = [m, *(a for i in range(m) for a in (m + 1 + i, i)), *range(2 * m + 1, 2 * m + 1 + len(rest))]
    y = parts.transpose(perm).reshape((batch, *(n * b for n, b in zip(x.shape[1:], blocks, strict=False)), *rest))
    for i, (low, high) in enumerate(zip(crops[::2], crops[1::2], strict=True)):
        y = y.slice(1 + i, low, y.shape[1 + i] - high)
    return y.value


def _space_to_batch(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, blocks, pads = array(r, operands[0]), *_blocks(r, op, operands)
    m = len(blocks)
    low, high = ([ZERO, *pads[start::2], *(ZERO,) * (x.rank - 1 - m)] for start in (0, 1))
    x = x.pad(low, high)
    batch, rest = x.shape[0], x.shape[1 + m :]
    sizes = [d for n, b in zip(x.shape[1:], blocks, strict=False) for d in (n // b, b)]
    parts = x.reshape((batch, *sizes, *rest))
    perm = [*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m, 2), *range(2 * m + 1, 2 * m + 1 + len(rest))]
    y = parts.transpose(perm)
    return y.reshape(
        (batch * dim_product(blocks), *(n // b for n, b in zip(x.shape[1:], blocks, strict=False)), *rest)
    ).value


HANDLERS: dict[str, Handler] = {
    "BatchToSpace": _batch_to_space,
    "BatchToSpaceND": _batch_to_space,
    "DepthToSpace": _depth_to_space,
    "SpaceToBatch": _space_to_batch,
    "SpaceToBatchND": _space_to_batch,
    "SpaceToDepth": _space_to_depth,
}
