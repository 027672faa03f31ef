"""A function of TensorFlow as plain data, in the form in which `Reader` follows modules: blocks of ops with operands.

`hlo_disc.tensorflow` makes it of a graph. It is no MLIR: TensorFlow's passes crash the process on some graphs, lower
others for static shapes alone, and are not needed to say what an op is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hlo_disc.frozen import frozen


@frozen
class TensorType:
    """The type of a tensor in TensorFlow: a dtype, None if it holds no numbers, and sizes, None if unknown."""

    dtype: np.dtype | None
    sizes: tuple[int | None, ...] | None
    name: str  # of the dtype

    def __str__(self) -> str:
        sizes = "*" if self.sizes is None else ", ".join("?" if n is None else str(n) for n in self.sizes)
        return f"{self.name}[{sizes}]"


class Result:
    """A value of a block: an argument, or a result of a node."""

    __slots__ = ("type",)

    def __init__(self, type: TensorType):
        self.type = type


class Node:
    """An op. Attributes are numbers, strings, dtypes, arrays, lists of these, and names of functions."""

    def __init__(
        self,
        name: str,
        operands: Sequence[Result],
        types: Sequence[TensorType],
        attributes: Mapping[str, Any],
        location: str,
    ):
        self.name = name
        self.operands = operands
        self.results = [Result(kind) for kind in types]
        self.attributes = attributes
        self.location = location

    @property
    def operation(self) -> Node:
        """Return itself: MLIR has two objects for an op."""
        return self


@dataclass
class Block:
    """Nodes in an order in which they can run; the last is "tf.return"."""

    arguments: list[Result] = field(default_factory=list)
    operations: list[Node] = field(default_factory=list)


@dataclass
class Region:
    """The body of a function."""

    blocks: list[Block]


class Function:
    """A function of a program."""

    def __init__(self, block: Block):
        self.block = block
        self.regions = [Region([block])]


@dataclass
class Program:
    """A function with those that it calls, by name. inputs: the names of its arguments in messages."""

    name: str
    main: Function
    inputs: Sequence[str]
    functions: Mapping[str, Function]
