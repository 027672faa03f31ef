"""The parts of TensorFlow's graphs that are read here, as protocols: TensorFlow has no types for type checkers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from traceback import FrameSummary
from typing import Any, Protocol

import numpy as np
import tensorflow as tf


class Tensor(Protocol):
    """A tensor of a graph, or an eager one."""

    name: str
    op: Operation
    value_index: int
    dtype: tf.DType
    shape: tf.TensorShape

    def consumers(self) -> Sequence[Operation]: ...

    def numpy(self) -> np.ndarray: ...

    def set_shape(self, shape: Sequence[int | None] | tf.TensorShape) -> None: ...

    def _shape_tuple(self) -> tuple[int | None, ...] | None: ...


class Operation(Protocol):
    """An op of a graph."""

    name: str
    type: str
    graph: Graph
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    control_inputs: Sequence[Operation]
    traceback: Sequence[FrameSummary] | None
    op_def: Any  # protocol buffers
    node_def: Any
    get_attr: Callable[[str], Any]


class GraphFunction(Protocol):
    """A function of a graph, which ops of the graph call by its name."""

    definition: object


class Graph(Protocol):
    """A graph of a function."""

    name: str
    version: int
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    variables: Sequence[tf.Variable]

    def get_operations(self) -> Sequence[Operation]: ...

    def as_default(self) -> AbstractContextManager[object]: ...

    def _get_function(self, name: str) -> GraphFunction | None: ...


class FunctionType(Protocol):
    """The parameters of a concrete function."""

    def bind(self, *args: object, **kwargs: object) -> object: ...

    def unpack_inputs(self, bound: object) -> Sequence[object]: ...


class ConcreteFunction(Protocol):
    """A function that TensorFlow has traced."""

    graph: Graph
    captured_inputs: Sequence[Tensor]
    structured_outputs: object
    function_type: FunctionType | None

    def _call_flat(self, args: Sequence[Tensor], captured_inputs: Sequence[Tensor]) -> object: ...
