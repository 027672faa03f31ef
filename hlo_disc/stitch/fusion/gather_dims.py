"""Which axes gather and scatter pair up. `moved`: what is gathered, or the updates. See `ops/indexing.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hlo_disc.dynamic_hlo.ir.graph import Op

Place = Callable[[int], int]


@dataclass(frozen=True)
class Numbers:
    """window: axes of moved -> axes of the operand that a window spans. batch: axes of moved -> axes of the indices."""

    window: dict[int, int]
    batch: dict[int, int]

    @staticmethod
    def of(op: Op, operand_rank: int, indices_rank: int, moved_rank: int) -> Numbers:
        attrs = op.attrs
        dropped = attrs["collapsed_slice_dims"] + attrs["operand_batching_dims"]
        kept = [a for a in range(operand_rank) if a not in dropped]
        outer = [p for p in range(moved_rank) if p not in attrs["offset_dims"]]
        index_axes = [k for k in range(indices_rank) if k != attrs["index_vector_dim"]]
        return Numbers(dict(zip(attrs["offset_dims"], kept, strict=True)), dict(zip(outer, index_axes, strict=True)))

    def renumbered(self, attrs: Mapping[str, Any], operand: Place, indices: Place, moved: Place) -> dict[str, Any]:
        """The numbers when axes have moved, some of them to one place."""

        def all_(name: str, place: Place) -> tuple[int, ...]:
            return tuple(place(a) for a in attrs[name])

        # In the order of the operand's axes.
        offsets = dict.fromkeys(moved(p) for p, _ in sorted(self.window.items(), key=lambda pair: pair[1]))
        return {
            "offset_dims": tuple(offsets),
            "collapsed_slice_dims": all_("collapsed_slice_dims", operand),
            "operand_batching_dims": all_("operand_batching_dims", operand),
            "start_indices_batching_dims": all_("start_indices_batching_dims", indices),
            "start_index_map": all_("start_index_map", operand),
            "index_vector_dim": indices(attrs["index_vector_dim"]),
        }
