"""Views, and ops that assemble or create tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ops.expr import BOOL, F64, I64, where
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import Truth
from hlo_disc.import_.aten.tensors import Operand, Size, is_just
from hlo_disc.import_.handlers.arrays import Array, iota, joined

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_BYTE = np.dtype(np.uint8)


def _reshape(r: AtenReader, x: Array, *_: object, **__: object) -> Array:
    """Reshape to the shape that PyTorch inferred: views, squeezes, flattening."""
    return x.reshape(r.out.shape)


def _transpose(r: AtenReader, x: Array, a: int = 0, b: int = 1) -> Array:
    order = list(range(x.rank))
    if x.rank:
        order[a], order[b] = order[b], order[a]
    return x.transpose(order)


def place(r: AtenReader, index: Size, size: Dim) -> Dim:
    """Return an index or a bound; a negative one counts from the end."""
    index = Dim.of(index)
    if r.facts.at_most(ZERO, index) is Truth.YES:
        return index
    if r.facts.at_most(index, -1) is Truth.YES:
        return index + size
    return index + size * Dim.min(ONE, Dim.max(-index, ZERO))


def _select(r: AtenReader, x: Array, axis: int, index: Size) -> Array:
    at = place(r, index, x.shape[axis])
    r.data.is_view_from(at, axis)
    return x.slice(axis, at, at + 1).squeeze(axis)


def bounds(r: AtenReader, start: Size | None, end: Size | None, size: Dim) -> tuple[Dim, Dim]:
    """Return the start and the end of a slice of an axis of this size."""
    first = ZERO if start is None else Dim.max(Dim.min(place(r, start, size), size), ZERO)
    last = size if end is None else Dim.max(Dim.min(place(r, end, size), size), first)
    return r.facts.canonical(first), r.facts.canonical(last)


def _slice(
    r: AtenReader, x: Array, axis: int = 0, start: Size | None = None, end: Size | None = None, step: Size = 1
) -> Array:
    first, last, step = *bounds(r, start, end, x.shape[axis]), r.fixed(step)
    r.data.is_view_from(first, axis)
    known = step == 1 and not r.data.is_open(r.out.shape[axis])
    return x.slice(axis, first, first + r.out.shape[axis] if known else last, step)


def _split(r: AtenReader, x: Array, _: object, axis: int = 0) -> list[Array]:
    """Split into equal parts, or parts of given sizes; PyTorch has inferred the sizes."""
    at, parts = ZERO, []
    for part in r.outs:
        parts.append(x.slice(axis, at, at + part.shape[axis]))
        at = at + part.shape[axis]
    return parts


def _cat(r: AtenReader, tensors: Sequence[Array], axis: int = 0) -> Array:
    """Concatenate. Empty tensors of one axis are left out, whatever the rank of the others."""
    rank = len(r.out.shape)
    kept = [x.cast(r.out.dtype) for x in tensors if not (x.rank == 1 and x.shape[0] is ZERO and rank != 1)]
    return joined(kept, axis)


def _stack(r: AtenReader, tensors: Sequence[Array], axis: int = 0) -> Array:
    return joined([x.cast(r.out.dtype).expand(axis) for x in tensors], axis)


def _repeat(r: AtenReader, x: Array, repeats: Sequence[Size]) -> Array:
    """Repeat each axis several times as a whole."""
    before = len(repeats) - x.rank
    shape = (ONE,) * before + x.shape
    wide = tuple(size for pair in zip(map(Dim.of, repeats), shape, strict=True) for size in pair)
    made = x.emit("broadcast", shape=wide, dims=tuple(2 * (before + a) + 1 for a in range(x.rank)))
    return made.reshape(r.out.shape)


def _roll(r: AtenReader, x: Array, shifts: Sequence[Size], axes: Sequence[int] = ()) -> Array:
    """Shift elements along axes: those that leave an axis at its end come in at its beginning.

    Without axes, all elements are shifted as one line.
    """
    made = x if axes else x.flat()
    for axis, shift in zip(axes or (0,) if x.rank else (), shifts, strict=False):
        size = made.shape[axis]
        start = r.facts.canonical(-Dim.of(shift) % Dim.max(size, ONE))
        if start is not ZERO:
            made = joined([made.slice(axis, start, size), made.slice(axis, 0, start)], axis)
    return made.reshape(x.shape)


def _constant_pad(r: AtenReader, x: Array, pad: Sequence[Size], value: Operand = 0) -> Array:
    """Pad with a constant. `pad` begins with the last axis, (before, after) of each."""
    before, after = [ZERO] * x.rank, [ZERO] * x.rank
    for k in range(len(pad) // 2):
        before[x.rank - 1 - k], after[x.rank - 1 - k] = Dim.of(pad[2 * k]), Dim.of(pad[2 * k + 1])
    return x.pad(before, after, value)


def _full(value: Operand) -> Callable[..., Array]:
    return lambda r, *_, **__: r.full(value, r.out.dtype, r.out.shape)


def _full_of(r: AtenReader, _: object, value: Operand, *__: object, **___: object) -> Array:
    return r.full(value, r.out.dtype, r.out.shape)


def _arange(r: AtenReader, start: Operand, end: Operand, step: Operand = 1, **_: object) -> Array:
    """Make a range. Floats are computed in f64, as start + i * step."""
    whole = r.out.dtype.kind in "iu" and not any(isinstance(x, float) for x in (start, step))
    computed = I64 if whole else F64
    numbers = iota(r, r.out.shape, 0, computed)
    if not is_just(step, 1):
        numbers = numbers * step
    if not is_just(start, 0):
        numbers = numbers + start
    return numbers.cast(r.out.dtype)


def _tril(keep: str) -> Callable[..., Array]:
    """Take the lower (GE) or upper (LE) triangle of matrices."""

    def handle(r: AtenReader, x: Array, diagonal: Size = 0) -> Array:
        shape = x.shape[-2:]
        rows, columns = iota(r, shape, 0, I64), iota(r, shape, 1, I64)
        inside = (rows + diagonal).op("compare", columns, direction=keep)
        return where(inside, x, 0)

    return handle


def _view_of_bits(r: AtenReader, x: Array, _: object) -> Array:
    """Reinterpret bits as another type. If the widths differ, the last axis gets more or fewer elements."""
    dtype = r.out.dtype
    if x.dtype == dtype:
        return x
    if x.dtype == BOOL:
        x = x.cast(_BYTE)
    elif dtype_class(x.dtype) == "complex":
        x = _bits_as(r, view_as_real(r, x), np.dtype(f"f{x.dtype.itemsize // 2}"), -2)
    if dtype == BOOL:
        return _bits_as(r, x, _BYTE) != 0
    if dtype_class(dtype) == "complex":
        parts = _bits_as(r, x, np.dtype(f"f{dtype.itemsize // 2}"))
        return view_as_complex(r, parts.reshape((*r.out.shape, Dim.const(2))))
    return _bits_as(r, x, dtype)


def _bits_as(r: AtenReader, x: Array, dtype: np.dtype, axis: int = -1) -> Array:
    """Join the axes from `axis` on to the last one, with elements of this type."""
    *outer, last = *x.shape[:axis], dim_product(x.shape[axis:])
    if x.dtype.itemsize < dtype.itemsize:
        parts = dtype.itemsize // x.dtype.itemsize
        x = x.reshape((*outer, last // parts, Dim.const(parts)))
        return x.emit("bitcast_convert", dtype=dtype)
    x = x.reshape((*outer, last))
    if x.dtype == dtype:
        return x
    made = x.emit("bitcast_convert", dtype=dtype)
    return made.reshape((*outer, last * (x.dtype.itemsize // dtype.itemsize)))


def view_as_real(r: AtenReader, x: Array) -> Array:
    return joined([x.emit(part).expand(-1) for part in ("real", "imag")], -1)


def view_as_complex(r: AtenReader, x: Array) -> Array:
    return x.slice(-1, 0, 1).squeeze(-1).emit("complex", x.slice(-1, 1, 2).squeeze(-1))


# What nobody has written is zero here.
_ZEROS = (
    "aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", "aten._efficientzerotensor.default",
    "aten.empty.memory_format", "aten.empty_like.default", "aten.empty_permuted.default",
    "prims.empty_permuted.default", "aten.empty_strided.default", "aten.new_empty.default",
    "aten.new_empty_strided.default",
)  # fmt: skip
_RESHAPES = (
    "aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten._reshape_alias.default",
    "aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.unsqueeze.default",
)  # fmt: skip

ROWS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_RESHAPES, _reshape),
    **dict.fromkeys(_ZEROS, _full(0)),
    **dict.fromkeys(("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default"), _full(1)),
    "aten.view.dtype": _view_of_bits,
    "aten.expand.default": lambda r, x, *_, **__: x.broadcast(r.out.shape),
    "prims.broadcast_in_dim.default": lambda r, x, _, dims: x.emit("broadcast", shape=r.out.shape, dims=tuple(dims)),
    "aten.permute.default": lambda r, x, order: x.transpose(order),
    "aten.transpose.int": _transpose,
    "aten.t.default": lambda r, x: _transpose(r, x) if x.rank == 2 else x,
    "aten.select.int": _select,
    "aten.slice.Tensor": _slice,
    "aten.split.Tensor": _split,
    "aten.split_with_sizes.default": _split,
    "aten.unbind.int": lambda r, x, axis=0: [x.slice(axis, i, i + 1).squeeze(axis) for i in range(len(r.outs))],
    "aten.cat.default": _cat,
    "aten.stack.default": _stack,
    "aten.flip.default": lambda r, x, axes: x.reverse(axes),
    "aten.copy.default": lambda r, x, source, *_: source.cast(x.dtype).broadcast(x.shape),
    "aten.repeat.default": _repeat,
    "aten.roll.default": _roll,
    "aten.constant_pad_nd.default": _constant_pad,
    "aten.full.default": _full_of,
    "aten.full_like.default": _full_of,
    "aten.new_full.default": lambda r, _, size, value, **__: _full_of(r, size, value),
    "aten.scalar_tensor.default": lambda r, value, **_: r.held(value, r.out.dtype),
    "aten.arange.start_step": _arange,
    "aten.arange.start": _arange,
    "aten.arange.default": lambda r, end, **_: _arange(r, 0, end),
    "prims.iota.default": lambda r, length, *, start=0, step=1, **_: _arange(r, start, length, step),
    "aten.tril.default": _tril("GE"),
    "aten.triu.default": _tril("LE"),
}  # fmt: skip
