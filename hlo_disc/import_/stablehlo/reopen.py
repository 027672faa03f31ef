"""Re-opens a static module: sizes that the user names become symbols, and every other size follows or stays.

The module is read twice. In the first pass (`Inference`), every size that an op introduces (of an iota, a broadcast,
part of a slice) is open. The tensors that it meets settle it: `x + broadcast(0) : 2x77` with x of shape (b, s)
determines the meaning of 2 and 77. Sizes that stay open keep their number. If a symbolic size had the same number, the
size is ambiguous, and an error names the op. In the second pass (`Replay`) the module is read with these answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Graph, Shape, Value, all_ops
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import Truth
from hlo_disc.errors import ShapeError
from hlo_disc.import_.sizes.symbols import solve
from hlo_disc.import_.stablehlo.decode import ints
from hlo_disc.import_.stablehlo.policy import Sizes, StaticShapes
from hlo_disc.mlir import stablehlo

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.mlir import ir

_OPEN = "%o"


def reopen(values: Mapping[str, int], read: Callable[[StaticShapes], Graph]) -> Graph:
    """Read a module with symbols in place of numbers. values: the number that each symbol replaces.

    Raises ShapeError if a size could be either the written number or a symbol.
    """
    inference = Inference(values)
    graph = read(inference)
    return read(Replay(values, inference.settled(graph)))


class Inference(StaticShapes):
    """Open sizes as symbols `%o0`, `%o1` …, and their values once found."""

    trusts_types = False

    def __init__(self, values: Mapping[str, int]):
        self.values = dict(values)  # of open symbols too: their number in the module
        self.symbols = list(values)
        self.solution: dict[str, Dim] = {}
        self.origins: dict[str, str] = {}
        self.requests: list[Shape] = []

    def settled(self, graph: Graph) -> list[Shape]:
        """Return the shapes that were asked for, in order, with every open size settled."""
        symbolic: dict[int, Dim] = {}
        shapes = [v.shape for v in graph.inputs] + [v.shape for op in all_ops(graph.ops) for v in op.results]
        for d in dict.fromkeys(d for shape in shapes for d in shape):
            d = self.find(d)
            if not d.is_const and not self._open(d) and d.symbols <= self.values.keys():
                symbolic.setdefault(d.evaluate(self.values), d)
        for name, origin in self.origins.items():
            if self.find(Dim.symbol(name)) is not Dim.symbol(name):
                continue
            size = self.values[name]
            if size in symbolic:
                raise ShapeError(
                    f"{origin}: the size {size} could be the number or '{symbolic[size]}', which was {size} when the "
                    "module was exported; export it at sizes that occur nowhere else"
                )
            self.solution[name] = Dim.const(size)
        return [tuple(map(self.find, shape)) for shape in self.requests]

    def find(self, d: Dim) -> Dim:
        """Express a size in known ones."""
        while True:
            found = d.substitute(self.solution)
            if found is d:
                return d
            d = found

    def _open(self, d: Dim) -> list[str]:
        return [name for name in d.symbols if name.startswith(_OPEN)]

    def _new(self, r: Reader, size: int) -> Dim:
        if size == 0 or (size == 1 and 1 not in (self.values[name] for name in self.symbols)):
            return Dim.const(size)
        name = f"{_OPEN}{len(self.origins)}"
        self.origins[name] = r.describe()
        self.values[name] = size
        return Dim.symbol(name)

    def _asked(self, shape: Sequence[Dim]) -> Shape:
        self.requests.append(tuple(shape))
        return tuple(shape)

    def bind(self, r: Reader, a: Dim, b: Dim) -> bool:
        a, b = self.find(a), self.find(b)
        if a is b:
            return True
        for d, value in ((a, b), (b, a)):
            for name in self._open(d):
                found = solve(d, name, value)
                # A quotient is right only when it is exact, and then at the exported sizes too.
                if found is None or name in found.symbols or not found.symbols <= self.values.keys():
                    continue
                if found.evaluate(self.values) == self.values[name]:
                    self.solution[name] = found
                    return True
        return bool(self._open(a) or self._open(b))

    def created(self, r: Reader, op: ir.OpView, sizes: Sizes) -> Shape:
        return self._asked([self._new(r, size) for size in sizes])

    def broadcast(self, r: Reader, op: ir.OpView, x: Value, dims: tuple[int, ...], sizes: Sizes) -> Shape:
        shape: list[Dim | None] = [None] * len(sizes)
        for axis, d, n in zip(dims, x.shape, _sizes(r, op), strict=True):
            if n == sizes[axis] and d is not ONE:
                shape[axis] = d
            elif n == 1 and n != sizes[axis]:
                self.bind(r, d, ONE)  # only a 1 stretches
        return self._asked([self._new(r, n) if d is None else d for d, n in zip(shape, sizes, strict=True)])

    def slice(self, r: Reader, op: ir.OpView, x: Value, start: Sizes, limit: Sizes) -> tuple[Shape, Shape]:
        limits = []
        strides = r.attr(op, "strides", ints)
        for low, high, d, n, stride in zip(start, limit, x.shape, _sizes(r, op), strides, strict=True):
            if not d.is_const and (low == n - 1 > 0 or high == n - 1 > 0):
                raise ShapeError(
                    f"{r.describe()}: elements {low} to {high} of the dimension '{d}', which was {n} when the module "
                    "was exported, could be counted from its beginning or from its end; export it with dynamic shapes"
                )
            limits.append(d if high == n else Dim.const(high) if stride > 1 else low + self._new(r, high - low))
        return tuple(map(Dim.const, start)), self._asked(limits)

    def window(self, r: Reader, op: ir.OpView, x: Value, sizes: Sizes) -> Shape:
        single = r.attr(op, "dimension_numbers", _collapsed) if "dimension_numbers" in op.attributes else ()
        pairs = enumerate(zip(sizes, x.shape, _sizes(r, op), strict=True))
        return self._asked(
            [ONE if axis in single else d if size == n else self._new(r, size) for axis, (size, d, n) in pairs]
        )

    def update(self, r: Reader, op: ir.OpView, x: Value, part: Value) -> None:
        """Bind dimensions: a part that is as long as the whole dimension is the whole dimension."""
        for a, b, n, m in zip(x.shape, part.shape, _sizes(r, op), _sizes(r, op, 1), strict=True):
            if n == m:
                self.bind(r, a, b)

    def reshape(self, r: Reader, op: ir.OpView, x: Value, sizes: Sizes) -> Shape:
        result: list[Dim] = []
        known = [Dim.symbol(name) for name in self.symbols]
        for dims, group in _segments([self.find(d) for d in x.shape], _sizes(r, op), sizes):
            result += self._split(r, dims, group, known)
        return self._asked(result)

    def _split(self, r: Reader, dims: Sequence[Dim], sizes: Sizes, known: Sequence[Dim]) -> Sequence[Dim]:
        """Split a group of operand dims into the sizes of the group of result dims that replaces it."""
        total = dim_product(dims)
        if len(sizes) == 1:
            return [total]
        if total.is_const:
            return list(map(Dim.const, sizes))
        if len(self._open(total)) == 1 and total is Dim.symbol(self._open(total)[0]):
            parts = [self._new(r, size) for size in sizes]
            self.bind(r, total, dim_product(parts))
            return parts
        options = [
            [Dim.const(n), *(d for d in dict.fromkeys([*dims, *known]) if not d.is_const and self._value(d) == n)]
            for n in sizes
        ]
        found = [parts for parts in product(*options) if dim_product(parts) is total]
        if len(found) != 1:
            raise ShapeError(
                f"{r.describe()}: cannot tell how the sizes ({', '.join(map(str, sizes))}) follow from '{total}'"
                + ("" if not found else ": it could be " + " or ".join(f"({', '.join(map(str, f))})" for f in found))
            )
        return found[0]

    def _value(self, d: Dim) -> int | None:
        return d.evaluate(self.values) if d.symbols <= self.values.keys() else None


class Replay(StaticShapes):
    """The shapes that inference settled, in the order in which they were asked for."""

    trusts_types = False

    def __init__(self, values: Mapping[str, int], shapes: Sequence[Shape]):
        self.values = values
        self.shapes = iter(shapes)

    def created(self, r: Reader, op: ir.OpView, sizes: Sizes) -> Shape:
        return next(self.shapes)

    def broadcast(self, r: Reader, op: ir.OpView, x: Value, dims: tuple[int, ...], sizes: Sizes) -> Shape:
        return next(self.shapes)

    def reshape(self, r: Reader, op: ir.OpView, x: Value, sizes: Sizes) -> Shape:
        return next(self.shapes)

    def slice(self, r: Reader, op: ir.OpView, x: Value, start: Sizes, limit: Sizes) -> tuple[Shape, Shape]:
        return tuple(map(Dim.const, start)), next(self.shapes)

    def window(self, r: Reader, op: ir.OpView, x: Value, sizes: Sizes) -> Shape:
        return next(self.shapes)

    def bind(self, r: Reader, a: Dim, b: Dim) -> bool:
        for d, other in ((a, b), (b, a)):
            named = not d.is_const and other.is_const and d.symbols <= self.values.keys()
            if named and r.facts.equal(d, other) is not Truth.YES:
                raise ShapeError(
                    f"{r.describe()}: '{d}' meets the fixed size {other}, so the module works for {other} only; "
                    "give that size a name too, or leave this one as it is"
                )
        return False


def _sizes(r: Reader, op: ir.OpView, number: int = 0) -> Sizes:
    """Return an operand's sizes in the module."""
    return tuple(-1 if size is None else size for size in r.decoder.tensor(op.operands[number].type)[1])


def _collapsed(attribute: ir.Attribute) -> frozenset[int]:
    return frozenset(stablehlo.GatherDimensionNumbers(attribute).collapsed_slice_dims)


def _segments(dims: Sequence[Dim], sizes: Sizes, target: Sizes) -> list[tuple[list[Dim], Sizes]]:
    """Split operand dims and result sizes into the smallest groups of equally many elements.

    Dims of size 1 may be added or dropped, unless a symbol happened to be 1.
    """
    if 0 in sizes or 0 in target:
        return [(list(dims), target)]
    groups: list[tuple[list[Dim], Sizes]] = []
    i = j = 0
    while j < len(target):
        while i < len(dims) and dims[i] is ONE:
            i += 1
        if target[j] == 1 and (i == len(dims) or sizes[i] != 1):
            groups.append(([], (1,)))
            j += 1
            continue
        first, begin = i, j
        left, right = sizes[i], target[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left, i = left * sizes[i], i + 1
            else:
                right, j = right * target[j], j + 1
        groups.append((list(dims[first:i]), target[begin:j]))
    rest = [d for d in dims[i:] if d is not ONE]  # symbols that happened to be 1
    if rest:
        last = groups.pop() if groups else ([], ())
        groups.append((last[0] + rest, last[1]))
    return groups
