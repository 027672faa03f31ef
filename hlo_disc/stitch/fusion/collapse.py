"""Fewer axes: merge neighbouring axes that every op of a group walks together, and drop axes of size 1.

From a row group to an equal one of lower rank: (b, s, 3072) + bias becomes (b*s, 3072) + bias. A boundary between two
axes of a value must be kept when some op treats the two sides differently; ops tie boundaries of operands and results
together. Memory is row-major, so that merging axes never moves an element. An op that nothing is said of here keeps all
its axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hlo_disc.dynamic_hlo.ir.graph import Op, Shape, Value, make_op
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.stitch.fusion.gather_dims import Numbers
from hlo_disc.stitch.fusion.group import Group, Place


def collapse(group: Group, facts: ShapeFacts) -> Group:
    """Return an equivalent group over as few axes as possible. Values are new, in the same order."""
    return _Collapse(group, facts).run()


def collapse_around(
    group: Group, facts: ShapeFacts, value: Value, boundaries: Iterable[int]
) -> tuple[Group, list[list[int]]]:
    """As `collapse`, but axes of `value` at each boundary stay apart; also what its axes were merged from.

    Boundary a is the one before axis a.
    """
    work = _Collapse(group, facts)
    for a in boundaries:
        work.keep_before(value, a)
    return work.run(), work.runs(value)


class _Collapse:
    def __init__(self, group: Group, facts: ShapeFacts):
        self.group, self.facts = group, facts
        # A boundary is (value, axis): between the real axis and the one before it. Real axes are those not of size 1.
        self.parent: dict[tuple[Value, int], tuple[Value, int]] = {}
        self.kept: set[tuple[Value, int]] = set()
        self.real: dict[Value, list[int]] = {}
        self.merged: dict[Value, list[list[int]]] = {}
        self.new: dict[Value, Value] = {}
        self.sizes: dict[Dim, Dim] = {}

    def run(self) -> Group:
        for op in self.group.ops:
            self._constrain(op)
        main = max(self.group.outputs, key=lambda v: v.rank)
        for value in self.group.outputs:
            if value is not main and len(self._axes(value)) == len(self._axes(main)):
                self._tie_all(value, main)
        if self.group.place:
            self._constrain_place(self.group.place)
        for value in self.group.inputs:
            self.new[value] = Value(value.dtype, self._shape(value), None, value.index)
        ops = [new for op in self.group.ops for new in self._rebuild(op)]
        outputs = tuple(self.new[v] for v in self.group.outputs)
        place = self._rebuild_place(self.group.place) if self.group.place else None
        return Group(self.group.schedule, tuple(ops), tuple(self.new[v] for v in self.group.inputs), outputs, place)

    def keep_before(self, value: Value, axis: int) -> None:
        """Keep what lies before `axis` apart from what follows, also when the axis itself has size 1."""
        axes = self._axes(value)
        following = [a for a in axes if a >= axis]
        if following and following[0] != axes[0]:
            self._keep((value, following[0]))

    def runs(self, value: Value) -> list[list[int]]:
        """The real axes of the value, merged."""
        return self._runs(value)

    # Boundaries.

    def _axes(self, value: Value) -> list[int]:
        found = self.real.get(value)
        if found is None:
            found = self.real[value] = [a for a, n in enumerate(value.shape) if n != ONE]
        return found

    def _find(self, boundary: tuple[Value, int]) -> tuple[Value, int]:
        root = boundary
        while root in self.parent:
            root = self.parent[root]
        while boundary != root:
            self.parent[boundary], boundary = root, self.parent[boundary]
        return root

    def _tie(self, x: tuple[Value, int], y: tuple[Value, int]) -> None:
        x, y = self._find(x), self._find(y)
        if x != y:
            self.parent[x] = y
            if x in self.kept:
                self.kept.add(y)

    def _keep(self, boundary: tuple[Value, int]) -> None:
        self.kept.add(self._find(boundary))

    def _keep_all(self, value: Value) -> None:
        for a in self._axes(value)[1:]:
            self._keep((value, a))

    def _tie_all(self, x: Value, y: Value) -> None:
        for a, b in zip(self._axes(x)[1:], self._axes(y)[1:], strict=True):
            self._tie((x, a), (y, b))

    def _map(self, x: Value, y: Value, axes: dict[int, int], free: Iterable[int] = ()) -> None:
        """Axes of x correspond to axes of y by `axes`; neighbours on both sides are tied, all else is kept.

        free: axes of y that x does not have, all alike (broadcast, reduced): neighbours among them may merge.
        """
        free = set(free)
        before_in_y = {b: a for a, b in zip(self._axes(y), self._axes(y)[1:], strict=False)}
        back = {b: a for a, b in axes.items()}
        tied = set()
        for a, b in zip(self._axes(x), self._axes(x)[1:], strict=False):
            if a in axes and b in axes and before_in_y.get(axes[b]) == axes[a]:
                self._tie((x, b), (y, axes[b]))
                tied.add(axes[b])
            else:
                self._keep((x, b))
        for b, a in before_in_y.items():
            if b in tied or (a in free and b in free):
                continue
            if not (a in back and b in back and b in tied):
                self._keep((y, b))

    def _constrain(self, op: Op) -> None:
        result = op.results[0]
        match op.name:
            case "constant" | "dim":
                pass
            case "iota":
                self._around(result, op.attrs["dim"])
            case "broadcast":
                (x,) = op.operands
                axes = {
                    i: a
                    for i, a in enumerate(op.attrs["dims"])
                    if x.shape[i] != ONE and self.facts.equal(x.shape[i], result.shape[a]) is Truth.YES
                }
                stretched = {a for i, a in enumerate(op.attrs["dims"]) if x.shape[i] != ONE and i not in axes}
                new = [a for a in self._axes(result) if a not in axes.values() and a not in stretched]
                self._map(x, result, axes, new)
            case "transpose":
                (x,) = op.operands
                self._map(x, result, {p: a for a, p in enumerate(op.attrs["perm"])})
            case "reshape":
                self._reshape(op.operands[0], result)
            case "reduce" | "reduce_with":
                dims = set(op.attrs["dims"])
                kept = [a for a in range(op.operands[0].rank) if a not in dims]
                for x, y in zip(op.operands, op.results, strict=False):
                    self._map(y, x, dict(enumerate(kept)), dims)
                    self._tie_all(x, op.operands[0])
                    self._tie_all(y, result)
            case "cumulative":
                for value in (*op.operands[: len(op.results)], *op.results):
                    self._tie_all(value, result)
                self._around(result, op.attrs["dim"])
            case "slice" if self._axes(op.operands[0]) != self._axes(result):
                self._keep_all(op.operands[0])
                self._keep_all(result)
            case "slice" | "reverse":
                x = op.operands[0]
                changed = self._changed(op)
                self._map(x, result, {a: a for a in range(x.rank)})
                for a in changed:
                    self._around(x, a)
                    self._around(result, a)
            case "gather":
                self._tie_places(op, op.operands[0], op.operands[1], op.result)
            case "scatter":
                count = op.attrs["count"]
                indices, *updates = op.operands[count : 2 * count + 1]
                for x, update in zip(op.results, updates, strict=True):
                    self._tie_places(op, x, indices, update)
                    self._tie_all(x, result)
                    self._tie_all(update, updates[0])
            case "dynamic_slice":
                x = op.operands[0]
                whole = {a: a for a in range(x.rank) if self.facts.equal(x.shape[a], result.shape[a]) is Truth.YES}
                self._keep_but(result, self._tie_parts(x, result, whole))
            case _ if kind(op) == "elementwise":
                for x in op.operands:
                    self._tie_all(x, result)
            case _:
                for value in (*op.results, *op.operands):
                    self._keep_all(value)

    def _tie_places(self, op: Op, x: Value, indices: Value, moved: Value) -> None:
        """Tie neighbouring axes of what gather and scatter move to those of their operands.

        These are neighbours in a window where no index points, and neighbours of the indices.
        """
        numbers = Numbers.of(op, x.rank, indices.rank, moved.rank)
        fixed = {a: p for p, a in numbers.window.items() if a not in op.attrs["start_index_map"]}
        plain = {k: p for p, k in numbers.batch.items() if k not in op.attrs["start_indices_batching_dims"]}
        self._keep_but(moved, self._tie_parts(x, moved, fixed) | self._tie_parts(indices, moved, plain))

    def _tie_parts(self, x: Value, y: Value, axes: dict[int, int]) -> set[int]:
        """Axes of x correspond to axes of y, which may be shorter. Neighbours are tied when the second is as long.

        All other boundaries of x are kept. Returns the axes of y before which there is a tied one.
        """
        before = {b: a for a, b in zip(self._axes(y), self._axes(y)[1:], strict=False)}
        tied: set[int] = set()
        for a, b in zip(self._axes(x), self._axes(x)[1:], strict=False):
            whole = b in axes and self.facts.equal(x.shape[b], y.shape[axes[b]]) is Truth.YES
            if whole and a in axes and before.get(axes[b]) == axes[a]:
                self._tie((x, b), (y, axes[b]))
                tied.add(axes[b])
            else:
                self._keep((x, b))
        return tied

    def _keep_but(self, value: Value, tied: set[int]) -> None:
        for a in self._axes(value)[1:]:
            if a not in tied:
                self._keep((value, a))

    def _changed(self, op: Op) -> list[int]:
        if op.name == "reverse":
            return list(op.attrs["dims"])
        rows = zip(op.operands[0].shape, op.result.shape, op.attrs["stride"], strict=True)
        return [a for a, (n, m, stride) in enumerate(rows) if stride != 1 or self.facts.equal(n, m) is not Truth.YES]

    def _around(self, value: Value, axis: int) -> None:
        axes = self._axes(value)
        if axis in axes:
            at = axes.index(axis)
            for a in axes[max(at, 1) : at + 2]:
                self._keep((value, a))

    def _reshape(self, x: Value, y: Value) -> None:
        """Boundaries with equal sizes before them are the same boundary; others have nothing to do with each other."""
        before = {self._size_before(x, a): a for a in self._axes(x)[1:]}
        for b in self._axes(y)[1:]:
            a = before.get(self._size_before(y, b))
            if a is not None:
                self._tie((x, a), (y, b))

    def _size_before(self, value: Value, axis: int) -> Dim:
        return self.facts.canonical(dim_product(value.shape[:axis]))

    def _constrain_place(self, place: Place) -> None:
        (x,) = self.group.outputs
        for a, stride in enumerate(place.strides):
            # What is as long as the target starts at 0, even if the start is data.
            if stride is not ONE or self.facts.equal(x.shape[a], place.shape[a]) is not Truth.YES:
                self._around_place(x, a)

    def _around_place(self, x: Value, axis: int) -> None:
        """Keep what is before the axis, and before the next real one, also when the axis itself has size 1."""
        axes = self._axes(x)
        for a in axes:
            if a == axis or (a > axis and not any(axis < b < a for b in axes)):
                if a != axes[0]:
                    self._keep((x, a))

    # Rebuilding.

    def _runs(self, value: Value) -> list[list[int]]:
        """The real axes of the value, merged."""
        found = self.merged.get(value)
        if found is None:
            found = []
            for a in self._axes(value):
                if found and self._find((value, a)) not in self.kept:
                    found[-1].append(a)
                else:
                    found.append([a])
            self.merged[value] = found
        return found

    def _shape(self, value: Value) -> Shape:
        return self._products(value.shape, self._runs(value))

    def _products(self, sizes: Shape, runs: list[list[int]]) -> Shape:
        """The sizes of merged axes."""
        return tuple(sizes[r[0]] if len(r) == 1 else dim_product(self._size(sizes[a]) for a in r) for r in runs)

    def _size(self, d: Dim) -> Dim:
        """One spelling for equal sizes: that factors are equal facts may know, and not that their products are.

        It has the same symbols, for host code computes with those of the group.
        """
        known = self.sizes.get(d)
        if known is None:
            alike = (x for x in self.sizes.values() if x.symbols == d.symbols)
            equal = (x for x in alike if self.facts.equal(x, d) is Truth.YES)
            known = self.sizes[d] = next(equal, d)
        return known

    def _at(self, value: Value, axis: int) -> int | None:
        return next((i for i, run in enumerate(self._runs(value)) if axis in run), None)

    def _rebuild(self, op: Op) -> list[Op]:
        if op.name == "scatter":
            return self._rebuild_scatter(op)
        attrs = dict(op.attrs)
        operands = [self.new[x] for x in op.operands]
        result = op.results[0]
        shape = self._shape(result)
        match op.name:
            case "iota":
                at = self._at(result, op.attrs["dim"])
                if at is None:
                    return self._zeros(op, shape)
                attrs |= {"shape": shape, "dim": at}
            case "broadcast":
                (x,) = op.operands
                attrs |= {
                    "shape": shape,
                    "dims": tuple(self._at(result, op.attrs["dims"][r[0]]) for r in self._runs(x)),
                }
            case "transpose":
                (x,) = op.operands
                attrs["perm"] = tuple(self._at(x, op.attrs["perm"][run[0]]) for run in self._runs(result))
            case "reshape":
                attrs["shape"] = shape
            case "reduce" | "reduce_with":
                x = op.operands[0]
                attrs["dims"] = tuple(dict.fromkeys(at for a in op.attrs["dims"] if (at := self._at(x, a)) is not None))
            case "slice" if self._axes(op.operands[0]) != self._axes(result):
                return self._with_all_axes(op, operands)
            case "slice":
                runs = self._runs(result)
                changed = self._changed(op)
                attrs |= {
                    "start": tuple(op.attrs["start"][r[0]] if r[0] in changed else Dim.const(0) for r in runs),
                    "stride": tuple(op.attrs["stride"][r[0]] for r in runs),
                }
            case "reverse":
                attrs["dims"] = tuple(at for a in op.attrs["dims"] if (at := self._at(result, a)) is not None)
            case "cumulative":
                at = self._at(result, op.attrs["dim"])
                if at is None:  # of one element each
                    self.new.update(zip(op.results, operands, strict=False))
                    return []
                attrs["dim"] = at
            case "gather":
                return self._rebuild_gather(op, operands)
            case "dynamic_slice":
                x, *starts = operands
                runs = _all_runs(self._runs(op.operands[0]), op.operands[0].rank)
                first = _reshape(x, self._products(op.operands[0].shape, runs), op.loc)
                sizes = self._products(op.result.shape, runs)
                taken = [first.result, *(starts[run[0]] for run in runs)]
                middle = make_op(op.name, taken, {"sizes": sizes}, [(result.dtype, sizes)], op.loc)
                last = _reshape(middle.result, shape, op.loc)
                self.new[result] = last.result
                return [first, middle, last]
            case "constant" | "dim":
                pass
            case _ if kind(op) != "elementwise":
                return self._with_all_axes(op, operands)
        new = make_op(op.name, operands, attrs, [(v.dtype, self._shape(v)) for v in op.results], op.loc)
        self.new.update(zip(op.results, new.results, strict=True))
        return [new]

    def _with_all_axes(self, op: Op, operands: list[Value]) -> list[Op]:
        """Attributes that number axes stay as they are: the op keeps its ranks, between reshapes."""
        made = [_reshape(x, y.shape, op.loc) for x, y in zip(operands, op.operands, strict=True)]
        types = [(v.dtype, v.shape) for v in op.results]
        middle = make_op(op.name, [m.result for m in made], op.attrs, types, op.loc)
        last = [_reshape(x, self._shape(y), op.loc) for x, y in zip(middle.results, op.results, strict=True)]
        self.new.update((value, again.result) for value, again in zip(op.results, last, strict=True))
        return [*made, middle, *last]

    def _rebuild_gather(self, op: Op, operands: list[Value]) -> list[Op]:
        """Merged axes, and those of size 1, which the numbers count."""
        (x, indices), result = op.operands, op.result
        runs = [_all_runs(self._runs(v), v.rank) for v in (x, indices, result)]
        made = [
            _reshape(new, self._products(v.shape, r), op.loc)
            for new, v, r in zip(operands, op.operands, runs, strict=False)
        ]
        attrs = {
            **self._numbers(op, x, indices, result),
            "slice_sizes": self._products(op.attrs["slice_sizes"], runs[0]),
        }
        types = [(result.dtype, self._products(result.shape, runs[2]))]
        middle = make_op(op.name, [m.result for m in made], attrs, types, op.loc)
        last = _reshape(middle.result, self._shape(result), op.loc)
        self.new[result] = last.result
        return [*made, middle, last]

    def _rebuild_scatter(self, op: Op) -> list[Op]:
        """Make a scatter of fewer axes. Its operands are in the results already, which keep their axes of size 1."""
        count = op.attrs["count"]
        xs, moved, captured = op.operands[:count], op.operands[count : 2 * count + 1], op.operands[2 * count + 1 :]
        shape = self._products(xs[0].shape, _all_runs(self._runs(op.results[0]), xs[0].rank))
        made = [_reshape(self.new[v], self._products(v.shape, _all_runs(self._runs(v), v.rank)), op.loc) for v in moved]
        attrs = {**op.attrs, **self._numbers(op, op.results[0], moved[0], moved[1])}
        operands = [Value(x.dtype, shape) for x in xs] + [m.result for m in made] + [self.new[v] for v in captured]
        new = make_op(op.name, operands, attrs, [(x.dtype, shape) for x in xs], op.loc)
        self.new.update(zip(op.results, new.results, strict=True))
        return [*made, new]

    def _numbers(self, op: Op, x: Value, indices: Value, moved: Value) -> dict[str, Any]:
        def place(value: Value) -> Callable[[int], int]:
            runs = _all_runs(self._runs(value), value.rank)
            at = {a: i for i, run in enumerate(runs) for a in run}
            return lambda a: at.get(a, len(runs))

        numbers = Numbers.of(op, x.rank, indices.rank, moved.rank)
        return numbers.renumbered(op.attrs, place(x), place(indices), place(moved))

    def _zeros(self, op: Op, shape: Shape) -> list[Op]:
        dtype = op.result.dtype
        zero = make_op("dim", [], {"expr": Dim.const(0), "dtype": dtype}, [(dtype, ())], op.loc)
        spread = make_op("broadcast", [zero.result], {"shape": shape, "dims": ()}, [(dtype, shape)], op.loc)
        self.new[op.result] = spread.result
        return [zero, spread]

    def _rebuild_place(self, place: Place) -> Place:
        """The target's axes merged as the output's are; an axis of size 1 that has a start stays."""
        (x,) = self.group.outputs
        shape: list[Dim] = []
        starts, strides, axes = [], [], []
        for run in _all_runs(self._runs(x), x.rank):
            at = self._at(x, run[0])
            shape += self._products(place.shape, [run])
            start = place.starts[run[0]]
            starts.append(self.new[start] if isinstance(start, Value) else start)
            strides.append(place.strides[run[0]])
            axes.append(at)
        return Place(place.target, tuple(shape), tuple(starts), tuple(strides), tuple(axes))


def _all_runs(runs: list[list[int]], rank: int) -> list[list[int]]:
    """The runs and the axes of size 1 between them, in order."""
    covered = {a for run in runs for a in run}
    return sorted([*runs, *([a] for a in range(rank) if a not in covered)])


def _reshape(x: Value, shape: Shape, loc: str) -> Op:
    return make_op("reshape", [x], {"shape": shape}, [(x.dtype, shape)], loc)
