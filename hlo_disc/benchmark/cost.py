"""The least that a program must do at given sizes: products of numbers, and bytes read and written.

Sums, elementwise ops, sorts and library calls are not counted, because the limit is a lower bound. Intermediates are
not counted either: they may stay in registers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Value, is_array, raw_dim, regions
from hlo_disc.dynamic_hlo.ops.cost import only_gathers, only_moves, operations
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.dynamic_hlo.passes.rules.patterns import counting, scalar_dim, splat
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.frozen import frozen
from hlo_disc.profile.limits import Limits


@frozen
class Work:
    """The least work of a call.

    operations: multiplications and additions of products, by the type of the factors. bytes: those of arguments,
    constants and results, each once; of values that are only gathered from, the gathered ones. partial: why there is
    more work than was counted (loops whose iterations depend on data, branches, sizes that depend on data), or "".
    """

    operations: Mapping[str, int]
    bytes: int
    partial: str = ""

    @property
    def total(self) -> int:
        """Operations on numbers of all types."""
        return sum(self.operations.values())

    def seconds(self, limits: Limits) -> float:
        """The least time that a machine of these limits takes."""
        products = sum(count / limits.rate(dtype) for dtype, count in self.operations.items())
        return max(products, self.bytes / limits.bandwidth(self.bytes))


def work(graph: Graph, shapes: Sequence[Sequence[int]]) -> Work:
    """Count the least work of a call at these shapes. graph: simplified, so that nothing in it is superfluous."""
    raw = {str(raw_dim(i, axis)): size for i, shape in enumerate(shapes) for axis, size in enumerate(shape)}
    sizes = {symbol: dim.evaluate(raw) for symbol, dim in graph.bindings.items() if dim.symbols <= raw.keys()}
    count = _Count(graph, sizes)
    operations = count.products(graph.ops)
    read = [*graph.inputs, *(op.result for op in graph.ops if is_array(op) and splat(op.result) is None)]
    written = {value for value in graph.outputs if value.op is not None and not is_array(value.op)}
    moved = sum(count.read(v) * v.dtype.itemsize for v in read)
    moved += sum(count.elements(v) * v.dtype.itemsize for v in written)
    return Work({str(dtype): n for dtype, n in operations.items() if n}, moved, ", ".join(sorted(count.partial)))


class _Count:
    """Counts the work at the sizes of the graph's symbols. partial: why some work is missing, or ""."""

    def __init__(self, graph: Graph, sizes: Mapping[str, int]):
        self.sizes = sizes
        self.partial: set[str] = set()
        self.outside: dict[Value, Value] = {}  # what inputs of regions are, those that no turn changes
        self.uses: dict[Value, list[tuple[Op, int]]] = {}
        self.kept = {value for value in graph.outputs if value.op is not None}
        self._enter(graph.ops)

    def _enter(self, ops: Iterable[Op]) -> None:
        for op in ops:
            for position, value in enumerate(op.operands):
                self.uses.setdefault(value, []).append((op, position))
            if kind(op) == "control":
                first = op.attrs["carried"] if op.name == "while" else 0
                for region in regions(op):
                    fixed = op.operands[first + (op.name == "case") :]
                    self.outside.update(zip(region.inputs[first:], fixed, strict=True))
                    self.kept.update(region.outputs)
                    self._enter(region.ops)

    def elements(self, value: Value) -> int:
        """Return the number of elements; 0 if it depends on data."""
        return self._product(range(value.rank), value)

    def _product(self, axes: Iterable[int], value: Value) -> int:
        return math.prod(max(self._size(value.shape[axis]), 0) for axis in axes)

    def _size(self, dim: Dim) -> int:
        if not dim.symbols <= self.sizes.keys():
            self.partial.add("sizes that data decide")
            return 0
        return dim.evaluate(self.sizes)

    # ------------------------------------------------------------------------------------------------- products

    def products(self, ops: Iterable[Op]) -> Counter[np.dtype]:
        """Count the operations by the type of the factors."""
        total: Counter[np.dtype] = Counter()
        for op in ops:
            if op.name == "dot_general":
                total[_factors(op)] += self._size(operations(op))
            elif op.name == "convolution":
                total[_factors(op)] += 2 * self._convolution(op)
            elif op.name == "while":
                turns = self._turns_counted(op)
                for dtype, count in (self.products(op.attrs["cond"].ops) + self.products(op.attrs["body"].ops)).items():
                    total[dtype] += turns * count
            elif op.name == "case":
                total += self._least([self.products(branch.ops) for branch in op.attrs["branches"]])
        return total

    def _least(self, branches: Sequence[Counter[np.dtype]]) -> Counter[np.dtype]:
        if any(branch != branches[0] for branch in branches):
            self.partial.add("branches")
        return min(branches, key=Counter.total)

    def _convolution(self, op: Op) -> int:
        """Count the products with elements that exist: padding and the holes of a dilated operand cost nothing."""
        (x, w), out, attrs = op.operands, op.result, op.attrs
        pairs = 1
        for i, (axis, window, at) in enumerate(
            zip(attrs["lhs_spec"][2:], attrs["rhs_spec"][2:], attrs["out_spec"][2:], strict=True)
        ):
            where = np.arange(self._product([at], out))[:, None] * attrs["strides"][i]
            where = where + np.arange(self._product([window], w))[None, :] * attrs["window_dilations"][i]
            where = where - self._size(Dim.of(attrs["low"][i]))
            place, hole = np.divmod(where, attrs["base_dilations"][i])
            pairs *= int(np.count_nonzero((hole == 0) & (place >= 0) & (place < self._product([axis], x))))
        return pairs * self._product(attrs["out_spec"][:2], out) * self._product([attrs["rhs_spec"][1]], w)

    # ---------------------------------------------------------------------------------------------------- turns

    def _turns_counted(self, op: Op) -> int:
        turns = self._turns(op)
        if turns is None:
            self.partial.add("loops whose turns data decide, counted once")
        return 1 if turns is None else turns

    def _turns(self, op: Op) -> int | None:
        """Return the number of iterations of a loop that counts by a fixed step up to a known limit; else None."""
        found = counting(op)
        if found is None:
            return None
        start, limit, step = map(self._scalar, (found.start, found.limit, found.step))
        if start is None or limit is None or step is None or step < 1:
            return None
        return max(-((start - limit) // step), 0)

    def _scalar(self, value: Value) -> int | None:
        while value in self.outside:
            value = self.outside[value]
        dim = scalar_dim(value)
        return dim.evaluate(self.sizes) if dim is not None and dim.symbols <= self.sizes.keys() else None

    # ---------------------------------------------------------------------------------------------------- bytes

    def read(self, value: Value) -> int:
        """Return how many elements of a value must be read."""
        whole = self.elements(value)
        if value in self.kept:
            return whole
        return min(whole, sum(self._read_by(op, position, whole) for op, position in self.uses.get(value, ())))

    def _read_by(self, op: Op, position: int, whole: int) -> int:
        if only_moves(op):
            return self.read(op.result)
        if only_gathers(op, position):
            return self.elements(op.result)
        if op.name == "while" and position >= op.attrs["carried"]:
            return self._turns_counted(op) * sum(self.read(op.attrs[r].inputs[position]) for r in ("cond", "body"))
        if op.name == "case" and position:
            return min(self.read(branch.inputs[position - 1]) for branch in op.attrs["branches"])
        return whole


def _factors(op: Op) -> np.dtype:
    """Return the wider of the two types in which the factors lie in memory: converted or not, the products are the
    same."""
    return max((_stored(x) for x in op.operands), key=lambda dtype: dtype.itemsize)


def _stored(value: Value) -> np.dtype:
    narrowest = value.dtype
    while value.op is not None and only_moves(value.op):
        value = value.op.operands[0]
        narrowest = min(narrowest, value.dtype, key=lambda dtype: dtype.itemsize)
    return narrowest
