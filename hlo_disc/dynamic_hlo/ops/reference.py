"""Runs a DHLO graph in numpy: the reference for tests, and the evaluator for constant folding.

It is slow and exact about semantics. Sizes are bound and guards checked as in a compiled program. Every result is
compared with its declared type, so a wrong inference rule shows at its op.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import RELATIONS, Graph, Guard, Op, Region, Value
from hlo_disc.dynamic_hlo.ops.inference import describe
from hlo_disc.dynamic_hlo.ops.table import OPS
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import ArgumentError, CompileError, ShapeError, SizeOverflowError
from hlo_disc.frozen import frozen


def evaluate(graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compute the outputs for `arrays`. Raises ArgumentError (count, dtype, rank) and ShapeError (a broken guard)."""
    arrays = [np.asarray(array) for array in arrays]
    sizes = bind(graph, arrays)
    guards = [g for g in graph.guards if _is_deferred(g, graph)]

    def define(value: Value, array: np.ndarray) -> None:
        names = [name for name, v in graph.definitions.items() if v is value]
        sizes.update((name, int(array)) for name in names)
        for guard in guards:
            symbols = _symbols(guard)
            if not symbols.isdisjoint(names) and symbols <= sizes.keys():
                check(guard, sizes)

    return [np.array(x, order="C") for x in _run(graph, arrays, sizes, define if graph.definitions else None)]


def _symbols(guard: Guard) -> frozenset[str]:
    return frozenset().union(*(dim.symbols for dim in (guard.lhs, guard.rhs, *guard.args)))


def _is_deferred(guard: Guard, graph: Graph) -> bool:
    """Whether a guard depends on sizes that are computed later."""
    return not _symbols(guard).isdisjoint(graph.definitions)


def _run(
    scope: Graph | Region,
    arrays: Sequence[np.ndarray],
    sizes: Mapping[str, int],
    define: Callable[[Value, np.ndarray], None] | None = None,
) -> list[np.ndarray]:
    values: dict[Value, np.ndarray] = dict(zip(scope.inputs, arrays, strict=True))
    remaining = Counter(value for op in scope.ops for value in op.operands)
    remaining.update(scope.outputs)
    for op in scope.ops:
        results = apply_all(op, [values[value] for value in op.operands], sizes)
        for value in op.operands:
            remaining[value] -= 1
            if not remaining[value]:
                del values[value]
        for value, array in zip(op.results, results, strict=True):
            if remaining[value]:
                values[value] = array
            if define:
                define(value, array)
    return [values[value] for value in scope.outputs]


def bind(graph: Graph, arrays: Sequence[np.ndarray]) -> dict[str, int]:
    """Return the value of every symbol for a call with `arrays`, after checking arguments and guards."""
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
    for guard in (*graph.guards, *graph.asked):
        if not _is_deferred(guard, graph):
            check(guard, raw | sizes)
    for name, value, array in zip(graph.input_names, graph.inputs, arrays, strict=True):
        for axis, (dim, size) in enumerate(zip(value.shape, array.shape, strict=True)):
            if dim.evaluate(sizes) != size:
                expected = dim if dim.is_const else f"{dim} = {dim.evaluate(sizes)}"
                raise ShapeError(f"argument {name}: dim {axis} has size {size}, expected {expected}")
    return sizes


def check(guard: Guard, sizes: Mapping[str, int]) -> None:
    """Raise the guard's error, with its message, when the sizes break it."""
    if not RELATIONS[guard.relation](guard.lhs.evaluate(sizes), guard.rhs.evaluate(sizes)):
        error = SizeOverflowError if guard.overflow else ShapeError
        raise error(guard.message.format(*(arg.evaluate(sizes) for arg in guard.args)))


def apply(op: Op, arrays: Sequence[np.ndarray], sizes: Mapping[str, int] | None = None) -> np.ndarray:
    """Compute the result of an op with one result; see `apply_all`."""
    (result,) = apply_all(op, arrays, sizes)
    return result


def apply_all(op: Op, arrays: Sequence[np.ndarray], sizes: Mapping[str, int] | None = None) -> list[np.ndarray]:
    """Compute the results of one op on arrays. `sizes` has the values of the symbols in its attributes and result
    types.

    Raises ShapeError when sizes that only the call knows do not agree.
    """
    sizes = sizes or {}
    row = OPS[op.name]
    if row.kind == "elementwise" and len({array.shape for array in arrays}) > 1:
        raise ShapeError(f"{describe(op)}: sizes {', '.join(str(array.shape) for array in arrays)} differ")
    attrs = {name: _evaluated(value, sizes) for name, value in op.attrs.items()}
    try:
        made = row.reference(*arrays, **attrs)
    except ShapeError as error:
        raise ShapeError(f"{describe(op)}: {error}") from None
    except ValueError as error:
        raise ShapeError(f"{describe(op)}: sizes {', '.join(str(a.shape) for a in arrays)}: {error}") from error
    results = list(map(np.asarray, made if isinstance(made, tuple) else (made,)))  # numpy makes scalars of rank 0
    for value, result in zip(op.results, results, strict=True):
        shape = tuple(dim.evaluate(sizes) for dim in value.shape)
        if result.dtype != value.dtype or result.shape != shape:
            raise CompileError(
                f"{describe(op)}: the result is {result.dtype}{list(result.shape)}, inferred {value!r} = {list(shape)}"
            )
    return results


@frozen
class Function:
    """A region as the numpy references call it: arrays to a list of arrays.

    A region over scalars takes arrays of any shapes that broadcast, and computes element by element.
    """

    region: Region
    sizes: Mapping[str, int]

    @property
    def results(self) -> int:
        return len(self.region.outputs)

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        if any(np.ndim(x) for x in arrays) and not any(v.rank for v in self.region.inputs):
            return self._run_elements(arrays)
        return _run(self.region, arrays, self.sizes)

    def _run_elements(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        values: dict[Value, np.ndarray] = dict(zip(self.region.inputs, arrays, strict=True))
        for op in self.region.ops:
            row = OPS[op.name]
            if any(v.rank for v in op.results) or row.kind not in ("elementwise", "source"):
                raise CompileError(f"{describe(op)}: a region over scalars cannot have this op")
            attrs = {name: _evaluated(attr, self.sizes) for name, attr in op.attrs.items()}
            values[op.result] = np.asarray(row.reference(*(values[x] for x in op.operands), **attrs))
        return [values[value] for value in self.region.outputs]


def _evaluated(value: object, sizes: Mapping[str, int]) -> object:
    if isinstance(value, Dim):
        return value.evaluate(sizes)
    if isinstance(value, Region):
        return Function(value, sizes)
    return tuple(_evaluated(item, sizes) for item in value) if isinstance(value, tuple) else value
