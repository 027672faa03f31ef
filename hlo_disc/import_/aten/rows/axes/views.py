"""Views, what assembles tensors of others, and what makes new ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import Truth
from hlo_disc.import_.aten.tensors import BOOL, F64, I64, Operand, Size
from hlo_disc.import_.elements import ONE, ZERO

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_BYTE = np.dtype(np.uint8)


def _reshape(r: AtenReader, x: Value, *_: Any, **__: Any) -> Value:
    """To the shape that PyTorch found: views, squeezes, flattening."""
    return r.reshape(x, r.out.shape)


def _expand(r: AtenReader, x: Value, *_: Any, **__: Any) -> Value:
    return r.broadcast(x, r.out.shape)


def _permute(r: AtenReader, x: Value, order: Sequence[int]) -> Value:
    return r.transpose(x, order)


def _transpose(r: AtenReader, x: Value, a: int = 0, b: int = 1) -> Value:
    order = list(range(x.rank))
    if x.rank:
        order[a], order[b] = order[b], order[a]
    return r.transpose(x, order)


def _t(r: AtenReader, x: Value) -> Value:
    return _transpose(r, x) if x.rank == 2 else x


def place(r: AtenReader, index: Size, size: Dim) -> Dim:
    """An index or a bound that counts from behind where it is negative."""
    index = Dim.of(index)
    if r.facts.at_most(ZERO, index) is Truth.YES:
        return index
    if r.facts.at_most(index, -1) is Truth.YES:
        return index + size
    return index + size * Dim.min(ONE, Dim.max(-index, ZERO))


def _select(r: AtenReader, x: Value, axis: int, index: Size) -> Value:
    at = place(r, index, x.shape[axis])
    r.data.is_view_from(at, axis)
    return r.squeeze(r.slice(x, axis, at, at + 1), axis)


def bounds(r: AtenReader, start: Size | None, end: Size | None, size: Dim) -> tuple[Dim, Dim]:
    """The start and the end of a slice of an axis of this size."""
    first = ZERO if start is None else Dim.max(Dim.min(place(r, start, size), size), ZERO)
    last = size if end is None else Dim.max(Dim.min(place(r, end, size), size), first)
    return r.facts.canonical(first), r.facts.canonical(last)


def _slice(
    r: AtenReader, x: Value, axis: int = 0, start: Size | None = None, end: Size | None = None, step: Size = 1
) -> Value:
    first, last, step = *bounds(r, start, end, x.shape[axis]), r.fixed(step)
    r.data.is_view_from(first, axis)
    known = step == 1 and not r.data.is_open(r.out.shape[axis])
    return r.slice(x, axis, first, first + r.out.shape[axis] if known else last, step)


def _split(r: AtenReader, x: Value, _: Any, axis: int = 0) -> list[Value]:
    """Equal parts, or parts of given sizes: PyTorch says which sizes they have."""
    at, parts = ZERO, []
    for part in r.outs:
        parts.append(r.slice(x, axis, at, at + part.shape[axis]))
        at = at + part.shape[axis]
    return parts


def _unbind(r: AtenReader, x: Value, axis: int = 0) -> list[Value]:
    return [r.squeeze(r.slice(x, axis, i, i + 1), axis) for i in range(len(r.outs))]


def _cat(r: AtenReader, tensors: Sequence[Value], axis: int = 0) -> Value:
    """Empty tensors of one axis are left out, whatever the others are."""
    rank = len(r.out.shape)
    kept = [r.convert(x, r.out.dtype) for x in tensors if not (x.rank == 1 and x.shape[0] is ZERO and rank != 1)]
    return r.concatenate(kept, axis)


def _stack(r: AtenReader, tensors: Sequence[Value], axis: int = 0) -> Value:
    return r.concatenate([r.unsqueeze(r.convert(x, r.out.dtype), axis) for x in tensors], axis)


def _flip(r: AtenReader, x: Value, axes: Sequence[int]) -> Value:
    return r.emit("reverse", (x,), dims=tuple(sorted(axis % x.rank for axis in axes))) if x.rank and axes else x


def _repeat(r: AtenReader, x: Value, repeats: Sequence[Size]) -> Value:
    """Each axis several times over, one after the other."""
    before = len(repeats) - x.rank
    shape = (ONE,) * before + x.shape
    wide = tuple(size for pair in zip(map(Dim.of, repeats), shape, strict=True) for size in pair)
    made = r.emit("broadcast", (x,), shape=wide, dims=tuple(2 * (before + a) + 1 for a in range(x.rank)))
    return r.reshape(made, r.out.shape)


def _roll(r: AtenReader, x: Value, shifts: Sequence[Size], axes: Sequence[int] = ()) -> Value:
    """Shift elements along axes: those that leave an axis at its end come in at its beginning.

    Without axes, all elements are shifted as one line.
    """
    made = x if axes else r.flat(x)
    for axis, shift in zip(axes or (0,) if x.rank else (), shifts, strict=False):
        size = made.shape[axis]
        start = r.facts.canonical(-Dim.of(shift) % Dim.max(size, ONE))
        if start is not ZERO:
            made = r.concatenate([r.slice(made, axis, start, size), r.slice(made, axis, 0, start)], axis)
    return r.reshape(made, x.shape)


def _constant_pad(r: AtenReader, x: Value, pad: Sequence[Size], value: Operand = 0) -> Value:
    """`pad` begins with the last axis, (before, after) of each."""
    before, after = [ZERO] * x.rank, [ZERO] * x.rank
    for k in range(len(pad) // 2):
        before[x.rank - 1 - k], after[x.rank - 1 - k] = Dim.of(pad[2 * k]), Dim.of(pad[2 * k + 1])
    return r.pad(x, value, before, after)


def _full(value: Operand) -> Callable[..., Value]:
    return lambda r, *_, **__: r.full(value, r.out.dtype, r.out.shape)


def _full_of(r: AtenReader, _: Any, value: Operand, *__: Any, **___: Any) -> Value:
    return r.full(value, r.out.dtype, r.out.shape)


def _scalar_tensor(r: AtenReader, value: Operand, **_: Any) -> Value:
    return r.held(value, r.out.dtype)


def _arange(r: AtenReader, start: Operand, end: Operand, step: Operand = 1, **_: Any) -> Value:
    """Floats are computed in f64, as start + i * step."""
    whole = r.out.dtype.kind in "iu" and not any(isinstance(x, float) for x in (start, step))
    computed = I64 if whole else F64
    numbers = r.iota(computed, r.out.shape)
    if step != 1:
        numbers = r.op("multiply", numbers, r.scalar(step, computed))
    if start != 0:
        numbers = r.op("add", numbers, r.scalar(start, computed))
    return r.convert(numbers, r.out.dtype)


def _prims_iota(r: AtenReader, length: Size, *, start: Size = 0, step: Size = 1, **_: Any) -> Value:
    return _arange(r, start, length, step)


def _tril(keep: str) -> Callable[..., Value]:
    """The lower (GE) or upper (LE) triangle of matrices."""

    def handle(r: AtenReader, x: Value, diagonal: Size = 0) -> Value:
        shape = x.shape[-2:]
        rows, columns = r.iota(I64, shape, 0), r.iota(I64, shape, 1)
        inside = r.compare(r.op("add", rows, r.scalar(diagonal, I64)), keep, columns)
        return r.select(inside, x, r.full(0, x.dtype, x.shape))

    return handle


# What nobody has written is zero here.
_empty = _full(0)


def _view_of_bits(r: AtenReader, x: Value, _: Any) -> Value:
    """As elements of another type, of which the last axis has more or fewer where they are not as wide."""
    dtype = r.out.dtype
    if x.dtype == dtype:
        return x
    if x.dtype == BOOL:
        x = r.convert(x, _BYTE)
    elif dtype_class(x.dtype) == "complex":
        x = _bits_as(r, view_as_real(r, x), np.dtype(f"f{x.dtype.itemsize // 2}"), -2)
    if dtype == BOOL:
        return r.compare(_bits_as(r, x, _BYTE), "NE", 0)
    if dtype_class(dtype) == "complex":
        parts = _bits_as(r, x, np.dtype(f"f{dtype.itemsize // 2}"))
        return view_as_complex(r, r.reshape(parts, (*r.out.shape, Dim.const(2))))
    return _bits_as(r, x, dtype)


def _bits_as(r: AtenReader, x: Value, dtype: np.dtype, axis: int = -1) -> Value:
    """The axes from `axis` on become the last one, of elements of this type."""
    *outer, last = *x.shape[:axis], dim_product(x.shape[axis:])
    if x.dtype.itemsize < dtype.itemsize:
        parts = dtype.itemsize // x.dtype.itemsize
        x = r.reshape(x, (*outer, last // parts, Dim.const(parts)))
        return r.emit("bitcast_convert", (x,), dtype=dtype)
    x = r.reshape(x, (*outer, last))
    if x.dtype == dtype:
        return x
    made = r.emit("bitcast_convert", (x,), dtype=dtype)
    return r.reshape(made, (*outer, last * (x.dtype.itemsize // dtype.itemsize)))


def view_as_real(r: AtenReader, x: Value) -> Value:
    return r.concatenate([r.unsqueeze(r.emit(part, (x,)), -1) for part in ("real", "imag")], -1)


def view_as_complex(r: AtenReader, x: Value) -> Value:
    return r.emit("complex", [r.squeeze(r.slice(x, -1, i, i + 1), -1) for i in range(2)])


ROWS: dict[str, Callable[..., Any]] = {
    "aten.view.default": _reshape,
    "aten.view.dtype": _view_of_bits,
    "aten._unsafe_view.default": _reshape,
    "aten.reshape.default": _reshape,
    "aten._reshape_alias.default": _reshape,
    "aten.squeeze.default": _reshape,
    "aten.squeeze.dim": _reshape,
    "aten.squeeze.dims": _reshape,
    "aten.unsqueeze.default": _reshape,
    "aten.expand.default": _expand,
    "prims.broadcast_in_dim.default": lambda r, x, shape, dims: r.emit(
        "broadcast", (x,), shape=r.out.shape, dims=tuple(dims)),
    "aten.permute.default": _permute,
    "aten.transpose.int": _transpose,
    "aten.t.default": _t,
    "aten.select.int": _select,
    "aten.slice.Tensor": _slice,
    "aten.split.Tensor": _split,
    "aten.split_with_sizes.default": _split,
    "aten.unbind.int": _unbind,
    "aten.cat.default": _cat,
    "aten.stack.default": _stack,
    "aten.flip.default": _flip,
    "aten.copy.default": lambda r, x, source, *_: r.broadcast(r.convert(source, x.dtype), x.shape),
    "aten.repeat.default": _repeat,
    "aten.roll.default": _roll,
    "aten.constant_pad_nd.default": _constant_pad,
    "aten.full.default": _full_of,
    "aten.full_like.default": _full_of,
    "aten.new_full.default": lambda r, _, size, value, **__: _full_of(r, size, value),
    "aten.zeros.default": _full(0),
    "aten.zeros_like.default": _full(0),
    "aten.new_zeros.default": _full(0),
    "aten.ones.default": _full(1),
    "aten.ones_like.default": _full(1),
    "aten.new_ones.default": _full(1),
    "aten.empty.memory_format": _empty,
    "aten.empty_like.default": _empty,
    "aten.empty_permuted.default": _empty,
    "prims.empty_permuted.default": _empty,
    "aten._efficientzerotensor.default": _full(0),
    "aten.empty_strided.default": _empty,
    "aten.new_empty.default": _empty,
    "aten.new_empty_strided.default": _empty,
    "aten.scalar_tensor.default": _scalar_tensor,
    "aten.arange.start_step": _arange,
    "aten.arange.start": _arange,
    "aten.arange.default": lambda r, end, **_: _arange(r, 0, end),
    "prims.iota.default": _prims_iota,
    "aten.tril.default": _tril("GE"),
    "aten.triu.default": _tril("LE"),
}  # fmt: skip
