"""Random numbers of gathers and scatters: which axes a window spans, which are batches, where the indices point."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from hlo_disc.dynamic_hlo.sizes.dim import Dim

INDEX_TYPES = ("int32", "int64", "int8", "uint8", "uint32", "uint64", "int16")


@dataclass
class Layout:
    """operand, indices, moved: shapes. sizes: the window's, one an axis of the operand. numbers: the attributes."""

    operand: tuple[Dim, ...]
    indices: tuple[Dim, ...]
    moved: tuple[Dim, ...]
    sizes: tuple[Dim, ...]
    dtype: str
    numbers: dict = field(default_factory=dict)

    @property
    def smallest(self) -> int:
        """The least size of a symbol at which every window fits."""
        return max((size.value for size in self.sizes if size.is_const), default=0)

    def text(self, shape: tuple[Dim, ...]) -> str:
        return ", ".join(map(str, shape))

    def starts(self, shape: tuple[int, ...], sizes: dict[str, int], rng: np.random.Generator) -> np.ndarray:
        """Indices inside, at the edges, and far outside."""
        info = np.iinfo(self.dtype)
        largest = max(sizes.values(), default=1)
        near = rng.integers(max(-2, info.min), min(largest + 2, info.max), shape, endpoint=True)
        far = rng.choice(np.array([info.min, info.max], object), shape)
        return np.where(rng.random(shape) < 0.1, far, near).astype(self.dtype)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    symbols = iter("abcdefghij")
    rank = draw(st.integers(1, 4))
    kinds = [draw(st.sampled_from(("inserted", "window", "window", "batch"))) for _ in range(rank)]
    operand, sizes, pointed = [], [], []
    for axis, kind in enumerate(kinds):
        n = draw(st.sampled_from((Dim.symbol(next(symbols)),) * 4 + (Dim.const(3), Dim.const(1))))
        operand.append(n)
        window = n if kind == "window" and draw(st.booleans()) else Dim.const(1)
        if kind == "window" and window.is_const and n.is_const is False and draw(st.booleans()):
            window = Dim.const(2)
        sizes.append(window)
        if kind == "inserted" or (kind == "window" and draw(st.booleans())):
            pointed.append(axis)
    pointed = draw(st.permutations(pointed))
    batching = draw(st.permutations([a for a, kind in enumerate(kinds) if kind == "batch"]))
    batch = [(operand[a], a) for a in batching]
    batch += [(Dim.symbol(next(symbols)), None) for _ in range(draw(st.integers(0, 2)))]
    batch = draw(st.permutations(batch))
    rows = [n for n, _ in batch]
    vector = draw(st.integers(0, len(rows)))
    implicit = len(pointed) == 1 and draw(st.booleans())
    indices = list(rows)
    if implicit:
        vector = len(rows)
    else:
        indices.insert(vector, Dim.const(len(pointed)))
    where = {a: i + (not implicit and i >= vector) for i, (_, a) in enumerate(batch) if a is not None}
    kept = [a for a, kind in enumerate(kinds) if kind == "window"]
    total = len(rows) + len(kept)
    offsets = tuple(sorted(draw(st.permutations(range(total)))[: len(kept)]))
    outer, inner = iter(rows), iter(sizes[a] for a in kept)
    moved = tuple(next(inner) if p in offsets else next(outer) for p in range(total))
    numbers = {
        "offset_dims": offsets,
        "collapsed_slice_dims": tuple(a for a, kind in enumerate(kinds) if kind == "inserted"),
        "operand_batching_dims": tuple(sorted(batching)),
        "start_indices_batching_dims": tuple(where[a] for a in sorted(batching)),
        "start_index_map": tuple(pointed),
        "index_vector_dim": vector,
    }
    dtype = draw(st.sampled_from(INDEX_TYPES))
    return Layout(tuple(operand), tuple(indices), moved, tuple(sizes), dtype, numbers)
