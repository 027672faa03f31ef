"""A pass over `while` and `case` that removes unneeded values, repeated work and known choices.

    while: a carried value that does not change is read from outside; a value that nobody needs is not carried; a value
           that is the same in every iteration is computed before the loop; one that costs nothing, inside it.
    case:  a known index leaves one branch, in place; results and operands that nobody needs are removed.

Regions are isolated: every value that they read is an operand. So each change here changes operands and inputs
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo_disc.dynamic_hlo.ir.dependence import backward_slice, live_ops
from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Region, Value, copied, has_effect, is_array, make_op, substitute
from hlo_disc.dynamic_hlo.ops.cost import free_ops, is_expensive
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.dynamic_hlo.sizes.dim import dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth

# Kinds of ops that are worth doing once instead of in every iteration, whatever their size.
_HEAVY = ("reduce", "dot", "sort", "scatter", "assemble")


def tidy(graph: Graph) -> Graph:
    """An equal graph with simpler control flow; the same object when there is nothing to do."""
    if not any(kind(op) == "control" for op in graph.ops):
        return graph
    ops, values, changed = _Remaker(graph.facts).run(graph.ops, graph.roots)
    return graph.with_roots(values, ops=tuple(ops)) if changed else graph


@dataclass
class _Passed:
    """One operand of a control op, with the input that it is in each region."""

    operand: Value
    inputs: list[Value]


@dataclass
class _Draft:
    """A region that is being changed: its inputs are those of the slots."""

    ops: list[Op]
    outputs: list[Value]

    def rename(self, values: dict[Value, Value]) -> None:
        if values:
            self.ops = [substitute(op, values) for op in self.ops]
            self.outputs = [values.get(v, v) for v in self.outputs]

    def prune(self) -> None:
        """Drop the ops that no output needs."""
        self.ops = live_ops(self.ops, self.outputs)

    def reads(self) -> set[Value]:
        return {x for op in self.ops for x in op.operands} | set(self.outputs)


class _Remaker:
    """The ops of a graph or region in order, made new."""

    def __init__(self, facts: ShapeFacts):
        self.facts = facts
        self.changed = False

    def run(self, ops: Sequence[Op], roots: Sequence[Value]) -> tuple[list[Op], dict[Value, Value], bool]:
        """The new ops, what values became, and whether anything changed."""
        values: dict[Value, Value] = {}
        made: list[Op] = []
        self.free = free_ops(ops)
        for op in ops:
            match op.name:
                case "while":
                    self._while(op, made, values)
                case "case":
                    self._case(op, made, values)
                case _:
                    made.append(substitute(op, values))
        made, final = self._shrunk(made, [values.get(v, v) for v in roots])
        return made, {**final, **{old: final.get(new, new) for old, new in values.items()}}, self.changed

    def _inside(self, region: Region) -> _Draft:
        ops, values, changed = _Remaker(self.facts).run(region.ops, region.outputs)
        self.changed |= changed
        return _Draft(ops, [values.get(v, v) for v in region.outputs])

    # Loops.

    def _while(self, op: Op, made: list[Op], values: dict[Value, Value]) -> None:
        """Append the loop and what moves out of it."""
        count = op.attrs["carried"]
        regions = [op.attrs["cond"], op.attrs["body"]]
        bodies = [self._inside(region) for region in regions]
        operands = [values.get(x, x) for x in op.operands]
        slots = [_Passed(x, [r.inputs[i] for r in regions]) for i, x in enumerate(operands)]
        carried, invariant = slots[:count], slots[count:]
        results: dict[Value, Value] = {}
        kept: list[int] = []
        outside = {slot.inputs[1]: slot.operand for slot in invariant}
        for k, slot in enumerate(carried):
            after = bodies[1].outputs[k]
            if after is slot.inputs[1] or outside.get(after) is slot.operand:
                invariant.append(slot)
                results[op.results[k]] = slot.operand
            else:
                kept.append(k)
        bodies[1].outputs = [bodies[1].outputs[k] for k in kept]
        carried = [carried[k] for k in kept]
        invariant = self._outside(invariant, bodies, made, hoist=True)
        self.changed |= len(kept) < count
        new = _rebuilt(op, carried, invariant, bodies)
        made.append(new)
        results.update(zip((op.results[k] for k in kept), new.results, strict=True))
        values.update((old, x) for old, x in results.items() if old is not x)

    def _outside(self, slots: list[_Passed], bodies: list[_Draft], made: list[Op], hoist: bool) -> list[_Passed]:
        """Return the values that regions read from outside, each once, none of a free op, and with what moves out."""
        kept: dict[Value, _Passed] = {}
        renamed: list[dict[Value, Value]] = [{} for _ in bodies]
        for slot in slots:
            first = kept.setdefault(slot.operand, slot)
            if first is not slot:
                for names, old, new in zip(renamed, slot.inputs, first.inputs, strict=True):
                    names[old] = new
        for body, names in zip(bodies, renamed, strict=True):
            body.rename(names)
        for slot in [s for s in kept.values() if s.operand.op in self.free]:
            del kept[slot.operand]
            self._sink(slot, bodies)
        self.changed |= len(kept) < len(slots)
        for number, body in enumerate(bodies):
            self._hoist(number, body, bodies, kept, made, everything=hoist)
        return list(kept.values())

    def _sink(self, slot: _Passed, bodies: list[_Draft]) -> None:
        """Compute an operand that costs nothing where it is read."""
        for body, value in zip(bodies, slot.inputs, strict=True):
            if value in body.reads():
                names: dict[Value, Value] = {}
                chain = [copied(op, names) for op in backward_slice([slot.operand])]
                body.ops[:0] = chain
                body.rename({value: names[slot.operand]})

    def _hoist(
        self,
        number: int,
        body: _Draft,
        bodies: list[_Draft],
        slots: dict[Value, _Passed],
        made: list[Op],
        everything: bool,
    ) -> None:
        """Move ops that only read what is the same for all iterations to before the loop, with the views they need."""
        fixed = {slot.inputs[number]: slot.operand for slot in slots.values()}
        free = free_ops(body.ops)
        movable: set[Op] = set()
        wanted: list[Op] = []
        for op in body.ops:
            if all(x in fixed or x.op in movable for x in op.operands) and _is_pure(op):
                movable.add(op)
                if op not in free and (is_array(op) or (everything and self._is_worth(op, movable))):
                    wanted.append(op)
        if not wanted:
            return
        self.changed = True
        names = dict(fixed)
        moved: dict[Value, Value] = {}
        for op in wanted:
            for link in backward_slice(op.results[:1]):
                if link in movable and link.results[0] not in names:
                    made.append(copied(link, names))
            for value in op.results:
                outside = names[value]
                inputs = [Value(value.dtype, value.shape) for _ in bodies]
                slots[outside] = _Passed(outside, inputs)
                moved[value] = inputs[number]
        body.ops = [op for op in body.ops if op not in wanted]
        body.rename(moved)
        body.prune()

    def _is_worth(self, op: Op, movable: set[Op]) -> bool:
        """Work that is saved, or an elementwise result that takes no more memory than what it is made of."""
        if kind(op) in _HEAVY or is_expensive(op):
            return True
        if kind(op) not in ("elementwise", "gather") or not op.results[0].shape:
            return False
        size = dim_product(op.results[0].shape)
        leaves = (x for link in backward_slice(op.results[:1], movable) for x in link.operands if x.op not in movable)
        return any(self.facts.at_most(size, dim_product(x.shape)) is Truth.YES for x in leaves)

    # Branches.

    def _case(self, op: Op, made: list[Op], values: dict[Value, Value]) -> None:
        branches = op.attrs["branches"]
        index, *operands = (values.get(x, x) for x in op.operands)
        if index.op is not None and index.op.name == "constant":
            self.changed = True
            number = int(index.op.attrs["value"])
            branch = branches[number if 0 <= number < len(branches) else -1]
            names = dict(zip(branch.inputs, operands, strict=True))
            inner = _Remaker(self.facts)
            ops, renamed, _ = inner.run([copied(x, names) for x in branch.ops], [names[v] for v in branch.outputs])
            made += ops
            outputs = [names[v] for v in branch.outputs]
            values.update(zip(op.results, (renamed.get(v, v) for v in outputs), strict=True))
            return
        bodies = [self._inside(branch) for branch in branches]
        slots = [_Passed(x, [b.inputs[i] for b in branches]) for i, x in enumerate(operands)]
        slots = self._outside(slots, bodies, made, hoist=False)
        new = _rebuilt_case(op, index, slots, bodies)
        made.append(new)
        if new is not op:
            values.update(zip(op.results, new.results, strict=True))
        outside = [{s.inputs[i]: s.operand for s in slots} for i in range(len(bodies))]
        for k, result in enumerate(op.results):
            found = {names.get(body.outputs[k]) for names, body in zip(outside, bodies, strict=True)}
            if len(found) == 1 and None not in found:
                values[result] = found.pop()  # type: ignore[assignment]

    # What nobody needs.

    def _shrunk(self, ops: Sequence[Op], roots: Sequence[Value]) -> tuple[list[Op], dict[Value, Value]]:
        """Without results, carried values and operands that nothing depends on; and what values became."""
        needed = set(roots)
        kept: list[tuple[Op, Op, list[int]]] = []
        for op in reversed(ops):
            if needed.isdisjoint(op.results) and not has_effect(op):
                continue
            smaller, live = op, list(range(len(op.results)))
            if kind(op) == "control":
                live = _live(op, needed)
                smaller = (_narrow_while if op.name == "while" else _narrow_case)(op, live)
                self.changed |= smaller is not op
            needed.update(smaller.operands)
            kept.append((op, smaller, live))
        values: dict[Value, Value] = {}
        made = []
        for op, smaller, live in reversed(kept):
            new = substitute(smaller, values)
            made.append(new)
            values.update((op.results[k], x) for k, x in zip(live, new.results, strict=True) if op.results[k] is not x)
        return made, values


def _is_pure(op: Op) -> bool:
    return not has_effect(op) and kind(op) not in ("control", "call")


def _region(slots: Sequence[_Passed], number: int, body: _Draft) -> Region:
    return Region(tuple(s.inputs[number] for s in slots), tuple(body.ops), tuple(body.outputs))


def _same(old: Region, new: Region) -> bool:
    return old.inputs == new.inputs and old.ops == new.ops and old.outputs == new.outputs


def _rebuilt(op: Op, carried: Sequence[_Passed], invariant: Sequence[_Passed], bodies: Sequence[_Draft]) -> Op:
    slots = [*carried, *invariant]
    cond, body = (_region(slots, i, b) for i, b in enumerate(bodies))
    operands = tuple(s.operand for s in slots)
    if _same(op.attrs["cond"], cond) and _same(op.attrs["body"], body) and operands == op.operands:
        return op
    attrs = op.attrs | {"cond": cond, "body": body, "carried": len(carried)}
    return make_op("while", operands, attrs, [(s.operand.dtype, s.operand.shape) for s in carried], op.loc)


def _rebuilt_case(op: Op, index: Value, slots: Sequence[_Passed], bodies: Sequence[_Draft]) -> Op:
    branches = tuple(_region(slots, i, b) for i, b in enumerate(bodies))
    operands = (index, *(s.operand for s in slots))
    if all(map(_same, op.attrs["branches"], branches)) and operands == op.operands:
        return op
    types = [(v.dtype, v.shape) for v in branches[0].outputs]
    return make_op("case", operands, op.attrs | {"branches": branches}, types, op.loc)


def _live(op: Op, needed: set[Value]) -> list[int]:
    """The results that are needed; of a loop also those that the condition and needed ones follow from."""
    live = {k for k, value in enumerate(op.results) if value in needed}
    if op.name == "case":
        return sorted(live)
    cond, body = op.attrs["cond"], op.attrs["body"]
    reads = _dependences(cond, len(op.results), cond.outputs)[0]
    steps = _dependences(body, len(op.results), body.outputs)
    todo = [*live, *reads]
    live = set()
    for region in (cond, body):
        for inner in region.ops:
            if has_effect(inner):
                todo += range(len(op.results))
    while todo:
        k = todo.pop()
        if k not in live:
            live.add(k)
            todo += steps[k]
    return sorted(live)


def _dependences(region: Region, count: int, outputs: Sequence[Value]) -> list[list[int]]:
    """Which of the first `count` inputs each output follows from. Sets of inputs are the bits of a number."""
    bits: dict[Value, int] = {value: 1 << k for k, value in enumerate(region.inputs[:count])}
    for op in region.ops:
        together = 0
        for x in op.operands:
            together |= bits.get(x, 0)
        if together:
            bits.update(dict.fromkeys(op.results, together))
    return [[k for k in range(count) if bits.get(value, 0) >> k & 1] for value in outputs]


def _narrow_while(op: Op, live: Sequence[int]) -> Op:
    """The loop with the carried values `live` alone, and without invariant operands that it does not read."""
    count = op.attrs["carried"]
    cond, body = op.attrs["cond"], op.attrs["body"]
    new_body = _Draft(list(body.ops), [body.outputs[k] for k in live])
    new_cond = _Draft(list(cond.ops), list(cond.outputs))
    new_body.prune()
    new_cond.prune()
    read = new_cond.reads() | new_body.reads()
    rest = [i for i in range(count, len(op.operands)) if cond.inputs[i] in read or body.inputs[i] in read]
    if len(live) == count and len(rest) == len(op.operands) - count:
        return op
    slots = [_Passed(op.operands[i], [cond.inputs[i], body.inputs[i]]) for i in (*live, *rest)]
    return _rebuilt(op, slots[: len(live)], slots[len(live) :], [new_cond, new_body])


def _narrow_case(op: Op, live: Sequence[int]) -> Op:
    branches = op.attrs["branches"]
    bodies = [_Draft(list(b.ops), [b.outputs[k] for k in live]) for b in branches]
    for body in bodies:
        body.prune()
    reads = [body.reads() for body in bodies]
    index, *operands = op.operands
    kept = [i for i in range(len(operands)) if any(b.inputs[i] in r for b, r in zip(branches, reads, strict=True))]
    if len(live) == len(op.results) and len(kept) == len(operands):
        return op
    slots = [_Passed(operands[i], [b.inputs[i] for b in branches]) for i in kept]
    return _rebuilt_case(op, index, slots, bodies)
