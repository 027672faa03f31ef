"""The import of a graph of PyTorch's: a program, and how its inputs and outputs come from those of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import torch

from hlo_disc.dynamic_hlo.ir.graph import Graph, Shape
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.frozen import frozen


class ElementsOf(NamedTuple):
    """How a view reads memory."""

    dtype: torch.dtype
    conjugate: bool = False
    negative: bool = False


@frozen
class Result:
    """Where a result of the graph comes from: one of these.

    output: the number of an output of the program; order: the order of its axes in memory, as PyTorch's strides have
    it, if it is not that of its shape; is_number: its only element is meant. argument: the number of a placeholder.
    view: of either, (shape, strides, offset) of a view of its memory, which reads `elements` there: nothing is
    computed. size: a number.
    """

    output: int | None = None
    order: tuple[int, ...] | None = None
    argument: int | None = None
    view: tuple[Shape, Shape, Dim] | None = None
    elements: ElementsOf | None = None
    size: Dim | None = None
    is_number: bool = False


@frozen
class Interface:
    """How the inputs and outputs of a program come from those of PyTorch's graph, which has `placeholders`.

    arguments: of each input the number of its placeholder. numbers: those that say what no tensor's shape does, each
    the number of its placeholder: after all others, there is an input of the shape (n, 0) for it, where it is negative
    of (0, -n). A program without tensors has an input of the shape (0, 0), so that it is called with something of
    PyTorch's. computed: symbols that data decides and results need, each an output of this number.
    random: there is one more input, a seed. bindings: how symbols follow from the sizes of inputs.
    """

    placeholders: int
    arguments: tuple[int, ...]
    numbers: tuple[int, ...]
    results: tuple[Result, ...]
    computed: Mapping[str, int]
    random: bool
    bindings: Mapping[str, Dim]

    def sizes(self, examples: Sequence[object]) -> list[tuple[int, ...]] | None:
        """The sizes of the program's inputs in the call that PyTorch compiles for; None where it does not know them.

        examples: what PyTorch has for the placeholders.
        """
        try:
            shapes = [tuple(map(_hint, cast(torch.Tensor, examples[i]).shape)) for i in self.arguments]
            numbers = [_hint(cast(torch.SymInt, examples[i])) for i in self.numbers]
        except LookupError:
            return None
        shapes += [(max(n, 0), max(-n, 0)) for n in numbers]
        shapes += [] if shapes else [(0, 0)]
        return [*shapes, ()] if self.random else shapes


@frozen
class Imported:
    """A program, and what PyTorch has for its inputs and outputs."""

    graph: Graph
    interface: Interface


def _hint(size: torch.SymInt | int) -> int:
    """The size in the call that PyTorch traces. Raises LookupError for one of data."""
    hint = size if isinstance(size, int) else size.node.hint
    if not isinstance(hint, int):
        raise LookupError(f"PyTorch does not know {size}")
    return hint
