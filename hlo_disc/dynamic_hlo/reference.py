"""Runs a DHLO graph in numpy: what tests compare with, and what constant folding computes with.

Slow and exact about semantics: sizes are bound and guards checked as a compiled program does, and every result is held
against its declared type, so a wrong inference rule shows at the op that has it.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hlo_disc.dynamic_hlo.dim import Dim
from hlo_disc.dynamic_hlo.graph import Graph, Guard, Op, Value
from hlo_disc.dynamic_hlo.inference import describe
from hlo_disc.dynamic_hlo.ops import OPS
from hlo_disc.errors import ArgumentError, CompileError, ShapeError

RELATIONS = {
    "==": operator.eq, "!=": operator.ne, ">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt,
}  # fmt: skip


def evaluate(graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs for `arrays`. Raises ArgumentError (count, dtype, rank) and ShapeError (a broken guard)."""
    arrays = [np.asarray(array) for array in arrays]
    sizes = bind(graph, arrays)
    values: dict[Value, np.ndarray] = dict(zip(graph.inputs, arrays, strict=True))
    remaining = Counter(value for op in graph.ops for value in op.operands)
    remaining.update(graph.outputs)
    for op in graph.ops:
        result = apply(op, [values[value] for value in op.operands], sizes)
        for value in op.operands:
            remaining[value] -= 1
            if not remaining[value]:
                del values[value]
        if remaining[op.result]:
            values[op.result] = result
    return [np.array(values[value], order="C") for value in graph.outputs]


def bind(graph: Graph, arrays: Sequence[np.ndarray]) -> dict[str, int]:
    """The value of every symbol for a call with `arrays`, after checking arguments and guards."""
    if len(arrays) != len(graph.inputs):
        raise ArgumentError(f"{graph.name} takes {len(graph.inputs)} arguments, not {len(arrays)}")
    raw: dict[str, int] = {}
    for number, (name, value, array) in enumerate(zip(graph.input_names, graph.inputs, arrays, strict=True)):
        if array.dtype != value.dtype:
            raise ArgumentError(f"argument {name} has dtype {array.dtype}, expected {value.dtype}")
        if array.ndim != value.rank:
            raise ArgumentError(f"argument {name} has rank {array.ndim}, expected {value.rank}")
        raw |= {f"%{number}.{axis}": size for axis, size in enumerate(array.shape)}
    sizes = {name: dim.evaluate(raw) for name, dim in graph.bindings.items()}
    for guard in graph.guards:
        check(guard, raw | sizes)
    for name, value, array in zip(graph.input_names, graph.inputs, arrays, strict=True):
        for axis, (dim, size) in enumerate(zip(value.shape, array.shape, strict=True)):
            if dim.evaluate(sizes) != size:
                expected = dim if dim.is_const else f"{dim} = {dim.evaluate(sizes)}"
                raise ShapeError(f"argument {name}: dim {axis} has size {size}, expected {expected}")
    return sizes


def check(guard: Guard, sizes: Mapping[str, int]) -> None:
    """Raise ShapeError with the guard's message when the sizes break it."""
    if not RELATIONS[guard.relation](guard.lhs.evaluate(sizes), guard.rhs.evaluate(sizes)):
        raise ShapeError(guard.message.format(*(arg.evaluate(sizes) for arg in guard.args)))


def apply(op: Op, arrays: Sequence[np.ndarray], sizes: Mapping[str, int] | None = None) -> np.ndarray:
    """The result of one op on arrays, `sizes` being the values of the symbols in its attributes and result type.

    Raises ShapeError when sizes that only the call knows do not agree.
    """
    sizes = sizes or {}
    row = OPS[op.name]
    if row.kind == "elementwise" and len({array.shape for array in arrays}) > 1:
        raise ShapeError(f"{describe(op)}: sizes {', '.join(str(array.shape) for array in arrays)} differ")
    attrs = {name: _evaluated(value, sizes) for name, value in op.attrs.items()}
    try:
        result = np.asarray(row.reference(*arrays, **attrs))  # numpy makes scalars of rank 0
    except ShapeError as error:
        raise ShapeError(f"{describe(op)}: {error}") from None
    except ValueError as error:
        raise ShapeError(f"{describe(op)}: sizes {', '.join(str(a.shape) for a in arrays)}: {error}") from error
    shape = tuple(dim.evaluate(sizes) for dim in op.result.shape)
    if result.dtype != op.result.dtype or result.shape != shape:
        raise CompileError(
            f"{describe(op)}: the result is {result.dtype}{list(result.shape)}, inferred {op.result!r} = {list(shape)}"
        )
    return result


def _evaluated(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, Dim):
        return value.evaluate(sizes)
    return tuple(_evaluated(item, sizes) for item in value) if isinstance(value, tuple) else value
