"""The result of importing a graph of PyTorch's: a program, and the mapping of its inputs and outputs to the graph's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import torch

from hlo_disc.dynamic_hlo.ir.graph import Graph, Shape
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.frozen import frozen


class ElementsOf(NamedTuple):
    """The way in which a view reads memory."""

    dtype: torch.dtype
    conjugate: bool = False
    negative: bool = False


@frozen
class Result:
    """The source of one result of the graph; one of these is set.

    output: the number of a program's output; order: the order of its axes in memory by PyTorch's strides, if it differs
    from the shape's; is_number: the result is its only element. argument: the number of a placeholder. view: (shape,
    strides, offset) of a view of the memory of either, which reads `elements` there and computes nothing. size: a
    number.
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
    """The mapping from PyTorch's graph, which has `placeholders`, to the inputs and outputs of a program.

    arguments: for each input the number of its placeholder. numbers: the placeholders of numbers that no tensor's shape
    gives. For each there is an input after all others, of the shape (n, 0), or (0, -n) if it is negative. A program
    without tensors has an input of the shape (0, 0), so that it is called with a tensor of PyTorch's. computed:
    data-dependent symbols that results need, with the numbers of their outputs. random: there is one more input, a
    seed. bindings: the expressions of symbols over the sizes of inputs.
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
    """A program, with PyTorch's view of its inputs and outputs."""

    graph: Graph
    interface: Interface


def _hint(size: torch.SymInt | int) -> int:
    """The size in the call that PyTorch traces. Raises LookupError for one of data."""
    hint = size if isinstance(size, int) else size.node.hint
    if not isinstance(hint, int):
        raise LookupError(f"PyTorch does not know {size}")
    return hint
