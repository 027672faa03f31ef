"""Complex numbers as pairs of real ones: a graph in which only memory that others see is complex.

Every complex value becomes two real ones, its parts. Inputs, outputs and library calls keep complex memory, which is
real memory with a last axis of 2: `bitcast_convert` says so and costs nothing. Behind this pass no op computes on
complex numbers. One row an op, of `RULES` or `FORMULAS`, says how its parts are made; ops that move data, and sums,
work on each part alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hlo_disc.dynamic_hlo.complex_math import FORMULAS, Complex
from hlo_disc.dynamic_hlo.dim import ONE, ZERO, Dim
from hlo_disc.dynamic_hlo.facts import ShapeFacts
from hlo_disc.dynamic_hlo.graph import Graph, GraphBuilder, Op, Region, Value, isolated, make_op, make_region, regions
from hlo_disc.dynamic_hlo.inference import part_dtype
from hlo_disc.dynamic_hlo.reals import Real
from hlo_disc.errors import UnsupportedOpError


class Pair(NamedTuple):
    """The real and the imaginary part of a value."""

    re: Value
    im: Value


def is_complex(value: Value) -> bool:
    return value.dtype.kind == "c"


def has_complex(op: Op) -> bool:
    """Whether the op, or an op of its regions, has to do with complex numbers."""
    return any(map(is_complex, (*op.operands, *op.results))) or any(
        any(map(is_complex, region.inputs)) or any(map(has_complex, region.ops)) for region in regions(op)
    )


def expand_complex(graph: Graph) -> Graph:
    """An equal graph that computes on real numbers alone; the same graph when it has no complex ones.

    Raises UnsupportedOpError for an op that has no meaning, or no rule, for complex numbers.
    """
    if not any(map(has_complex, graph.ops)):
        return graph
    block = Block(graph.facts)
    block.inputs(zip(graph.inputs, graph.inputs, strict=True))
    for op in graph.ops:
        block.expand(op)
    new = {value: block.whole(value) if is_complex(value) else block.reals[value] for value in graph.roots}
    return graph.with_roots(new, ops=tuple(block.b.ops))


class Block:
    """The expansion of a graph or region under way: what stands for each of its values.

    reals: the value for a real one. pairs: the parts of a complex one. wholes: a complex one in memory. A complex value
    has a pair, or a whole, from which the pair is made when something asks for it.
    """

    def __init__(self, facts: ShapeFacts):
        self.b = GraphBuilder(facts)
        self.reals: dict[Value, Value] = {}
        self.pairs: dict[Value, Pair] = {}
        self.wholes: dict[Value, Value] = {}

    def inputs(self, new: Iterable[tuple[Value, Value]]) -> None:
        """Inputs and what stands for them in memory."""
        for value, memory in new:
            (self.wholes if is_complex(value) else self.reals)[value] = memory

    def expand(self, op: Op) -> None:
        """Append what computes the results of `op`."""
        if not has_complex(op):
            self._keep(op)
        elif op.name in FORMULAS:
            self._set(op, _formula(self, op))
        elif op.name in RULES:
            self._set(op, RULES[op.name](self, op))
        else:
            where = f" at {op.loc}" if op.loc else ""
            types = ", ".join(map(repr, op.operands))
            raise UnsupportedOpError(f"{op.name}({types}){where}: this op is not supported for complex numbers")

    def pair(self, value: Value) -> Pair:
        """The parts of a complex value."""
        found = self.pairs.get(value)
        if found is None:
            parts = self.memory(value)
            found = self.pairs[value] = Pair(*(self._part(parts, k) for k in range(2)))
        return found

    def memory(self, value: Value) -> Value:
        """A complex value as real numbers with a last axis of 2: its memory where it has some, else joined."""
        if value in self.wholes:
            return self.b.op("bitcast_convert", [self.wholes[value]], dtype=part_dtype(value.dtype))
        return self.join(self.pairs[value])

    def join(self, pair: Sequence[Value], axis: int | None = None) -> Value:
        """Two real values side by side along a new axis, by default the last."""
        shape = list(pair[0].shape)
        shape.insert(len(shape) if axis is None else axis, ONE)
        at = len(shape) - 1 if axis is None else axis
        columns = [self.b.op("reshape", [x], shape=tuple(shape)) for x in pair]
        return self.b.op("concatenate", columns, dim=at)

    def whole(self, value: Value) -> Value:
        """A complex value as a library call or a caller wants it."""
        if value not in self.wholes:
            self.wholes[value] = self.b.op("bitcast_convert", [self.memory(value)], dtype=value.dtype)
        return self.wholes[value]

    def part(self, value: Value, k: int) -> Value:
        """Part `k` of a complex value, or the real value that it is."""
        return self.pair(value)[k] if is_complex(value) else self.reals[value]

    def flat(self, values: Sequence[Value]) -> list[Value]:
        """Values with each complex one replaced by its two parts."""
        return [x for v in values for x in (self.pair(v) if is_complex(v) else (self.reals[v],))]

    def set_flat(self, values: Sequence[Value], flat: Sequence[Value]) -> None:
        """The reverse: what stands for `values`."""
        rest = iter(flat)
        for value in values:
            if is_complex(value):
                self.pairs[value] = Pair(next(rest), next(rest))
            else:
                self.reals[value] = next(rest)

    def _keep(self, op: Op) -> None:
        operands = [self.reals[x] for x in op.operands]
        same = op
        if any(new is not old for new, old in zip(operands, op.operands, strict=True)):
            same = make_op(op.name, operands, op.attrs, [(r.dtype, r.shape) for r in op.results], op.loc)
        self.b.ops.append(same)
        self.reals.update(zip(op.results, same.results, strict=True))

    def _set(self, op: Op, results: Any) -> None:
        if results is None:  # the rule has set them
            return
        if isinstance(results, Pair):
            self.pairs[op.result] = results
        else:
            self.reals[op.result] = results

    def _part(self, memory: Value, k: int) -> Value:
        *sizes, _ = memory.shape
        start, limit = (*(ZERO for _ in sizes), Dim.const(k)), (*sizes, Dim.const(k + 1))
        column = self.b.op("slice", [memory], start=start, limit=limit, stride=(1,) * memory.rank)
        return self.b.op("reshape", [column], shape=tuple(sizes))


Rule = Callable[[Block, Op], Pair | Value | None]


def expand_region(facts: ShapeFacts, region: Region, paired: int = 0) -> Region:
    """A region on parts: each complex input and output is two.

    paired: how many inputs come in pairs of one type: the first parts of both stand before their second ones.
    """
    block = Block(facts)
    inputs: list[Value] = []
    at = 0
    while at < len(region.inputs):
        group = region.inputs[at : at + (2 if at < paired else 1)]
        parts: dict[Value, list[Value]] = {value: [] for value in group}
        for _ in range(2 if is_complex(group[0]) else 1):
            for value in group:
                inputs.append(Value(part_dtype(value.dtype), value.shape, None, len(inputs)))
                parts[value].append(inputs[-1])
        for value in group:
            block.set_flat([value], parts[value])
        at += len(group)
    for op in region.ops:
        block.expand(op)
    outputs = block.flat(region.outputs)
    return Region(tuple(inputs), tuple(block.b.ops), tuple(outputs))


# ------------------------------------------------------------------------------------------------------ elementwise


def _formula(e: Block, op: Op) -> Pair | Value:
    """An elementwise op by its formula; one that asks for it computes single precision in double."""
    formula = FORMULAS[op.name]
    parts = [x for v in op.operands for x in e.pair(v)]
    wide = formula.wide and parts[0].dtype == np.float32
    if wide:
        parts = [e.b.op("convert", [x], op.loc, dtype=np.dtype(np.float64)) for x in parts]
    results = formula.build(*_numbers(e.b, parts, op.loc, wide))
    values = [r.value for r in (results if isinstance(results, tuple) else (results,))]
    if wide:
        values = [e.b.op("convert", [x], op.loc, dtype=np.dtype(np.float32)) for x in values]
    return Pair(*values) if len(values) == 2 else values[0]


def _numbers(b: GraphBuilder, parts: Sequence[Value], loc: str, roomy: bool = False) -> list[Complex]:
    reals = [Real(b, x, loc, roomy) for x in parts]
    return [Complex(*reals[i : i + 2]) for i in range(0, len(reals), 2)]


def _complex(e: Block, op: Op) -> Pair:
    re, im = op.operands
    return Pair(e.reals[re], e.reals[im])


def _take(k: int) -> Rule:
    return lambda e, op: e.pair(op.operands[0])[k]


def _convert(e: Block, op: Op) -> Pair | Value:
    (x,), dtype = op.operands, op.attrs["dtype"]
    parts = e.flat([x])[: 2 if is_complex(op.result) else 1]
    converted = [e.b.op("convert", [v], op.loc, dtype=part_dtype(dtype)) for v in parts]
    if not is_complex(op.result):
        return converted[0]
    return Pair(*converted) if len(converted) == 2 else Pair(converted[0], _zeros(e, converted[0], op.loc))


def _zeros(e: Block, like: Value, loc: str) -> Value:
    zero = e.b.op("constant", [], loc, value=np.zeros((), like.dtype))
    return zero if not like.shape else e.b.op("broadcast", [zero], loc, shape=like.shape, dims=())


def _compare(e: Block, op: Op) -> Value:
    x, y = map(e.pair, op.operands)
    same = [e.b.op("compare", [a, b], op.loc, **op.attrs) for a, b in zip(x, y, strict=True)]
    return e.b.op("and" if op.attrs["direction"] == "EQ" else "or", same, op.loc)


# -------------------------------------------------------------------------------------------------- moving data, sums


def _each(e: Block, op: Op) -> Pair:
    """The op on real parts, and on imaginary parts."""
    return Pair(*(e.b.op(op.name, [e.part(x, k) for x in op.operands], op.loc, **op.attrs) for k in range(2)))


def _constant(e: Block, op: Op) -> Pair:
    value = op.attrs["value"]
    parts = (np.ascontiguousarray(part).reshape(value.shape) for part in (value.real, value.imag))
    return Pair(*(e.b.op("constant", [], op.loc, value=part) for part in parts))


def _iota(e: Block, op: Op) -> Pair:
    re = e.b.op("iota", [], op.loc, **{**op.attrs, "dtype": part_dtype(op.result.dtype)})
    return Pair(re, _zeros(e, re, op.loc))


def _reduce(e: Block, op: Op) -> Pair:
    if op.attrs["kind"] == "add":
        return _each(e, op)
    x, init = op.operands
    part = part_dtype(x.dtype)

    def multiply(b: GraphBuilder, values: tuple[Value, ...]) -> tuple[Value, ...]:
        product = FORMULAS["multiply"].build(*_numbers(b, values, op.loc))
        return tuple(r.value for r in product)  # type: ignore[union-attr]

    region = make_region(e.b.facts, [(part, ())] * 4, multiply)
    operands = [*e.pair(x), *e.pair(init)]
    return Pair(*e.b.multi("reduce_with", operands, op.loc, dims=op.attrs["dims"], body=region))


# ------------------------------------------------------------------------------------------------------------ products


def _dot(e: Block, op: Op) -> Pair:
    """One real dot: a complex left operand contracts its parts too, against (re, im) and (-im, re) of the right one.

    So a dot of complex matrices is one of twice the depth and twice the columns, with the left operand and the result
    as they lie in memory. A real operand meets the parts of the other one as more rows or columns.
    """
    x, y = op.operands
    dtype = part_dtype(op.attrs["dtype"])
    attrs = {**op.attrs, "dtype": dtype}
    parts_at = op.result.rank
    left = e.memory(x) if is_complex(x) else e.reals[x]
    if is_complex(x) and is_complex(y):
        attrs["lhs_contract"] += (x.rank,)
        right, moved, contracted = _rows_and_columns(e, op)
        attrs["rhs_contract"] = (*(moved[a] for a in attrs["rhs_contract"]), contracted)
        attrs["rhs_batch"] = tuple(moved[a] for a in attrs["rhs_batch"])
    elif is_complex(y):
        right = e.memory(y)
    else:
        right = e.reals[y]
        parts_at = x.rank - len(attrs["lhs_contract"])
    operands = [v if v.dtype == dtype else e.b.op("convert", [v], op.loc, dtype=dtype) for v in (left, right)]
    result = e.b.op("dot_general", operands, op.loc, **attrs)
    return Pair(*(_at(e, result, parts_at, k) for k in range(2)))


def _rows_and_columns(e: Block, op: Op) -> tuple[Value, list[int], int]:
    """The right operand of a dot as a matrix of reals: (value, where each axis has gone, the new contracted axis).

    The parts of the result stand behind the last free axis, those that are contracted behind the last contracted one.
    """
    _, y = op.operands
    batch, contract = op.attrs["rhs_batch"], op.attrs["rhs_contract"]
    free = [axis for axis in range(y.rank) if axis not in batch + contract]
    column = free[-1] + 1 if free else y.rank
    moved = [axis + (axis >= column) for axis in range(y.rank)]
    row = max((moved[axis] for axis in contract), default=y.rank) + 1
    return _matrix(e, y, column, row), [axis + (axis >= row) for axis in moved], row


def _matrix(e: Block, value: Value, column: int, row: int) -> Value:
    """(re, im) and (-im, re) along new axes: `column` is where the one for the result goes, `row`, then, the other."""
    re, im = e.pair(value)
    minus = e.b.op("negate", [im])
    return e.join([e.join((re, im), column), e.join((minus, re), column)], row)


def _convolution(e: Block, op: Op) -> Pair:
    """Twice the features: as in a dot, the parts of the operand are summed over and those of the result are columns."""
    (x, w), dtype = op.operands, part_dtype(op.attrs["dtype"])
    attrs = {**op.attrs, "dtype": dtype}

    def convolved(x: Value, w: Value) -> Value:
        operands = [v if v.dtype == dtype else e.b.op("convert", [v], op.loc, dtype=dtype) for v in (x, w)]
        return e.b.op("convolution", operands, op.loc, **attrs)

    if not is_complex(w):
        return Pair(*(convolved(part, e.reals[w]) for part in e.pair(x)))
    out, into = attrs["rhs_spec"][:2]
    if is_complex(x):
        channels = attrs["lhs_spec"][1]
        left = e.memory(x) if channels == x.rank - 1 else e.join(e.pair(x), channels + 1)
        left = _merged(e, left, channels)
        moved = into + (into > out)
        right = _merged(e, _merged(e, _matrix(e, w, out + 1, moved + 1), moved), out)
    else:
        left, right = e.reals[x], _merged(e, e.join(e.pair(w), out + 1), out)
    result, features = convolved(left, right), attrs["out_spec"][1]
    shape = list(result.shape)
    shape[features : features + 1] = [w.shape[out], Dim.const(2)]
    split = e.b.op("reshape", [result], op.loc, shape=tuple(shape))
    return Pair(*(_at(e, split, features + 1, k) for k in range(2)))


def _merged(e: Block, x: Value, axis: int) -> Value:
    """An axis and the next one as one."""
    return e.b.op("reshape", [x], shape=(*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :]))


def _at(e: Block, x: Value, axis: int, k: int) -> Value:
    """Element `k` of an axis."""
    start = tuple(Dim.const(k) if a == axis else ZERO for a in range(x.rank))
    limit = tuple(Dim.const(k + 1) if a == axis else size for a, size in enumerate(x.shape))
    one = e.b.op("slice", [x], start=start, limit=limit, stride=(1,) * x.rank)
    return e.b.op("reshape", [one], shape=(*x.shape[:axis], *x.shape[axis + 1 :]))


# ------------------------------------------------------------------------------------------- regions and library calls


def _with_regions(e: Block, op: Op) -> None:
    """Each complex operand, region argument and result is two. What counts operands counts them anew."""
    paired = 2 * op.attrs["count"] if op.name == "sort" else 0
    attrs: dict[str, Any] = {name: _expanded(e.b.facts, attr, paired) for name, attr in op.attrs.items()}
    for name in _COUNTS & attrs.keys():
        attrs[name] += sum(map(is_complex, op.operands[: attrs[name]]))
    e.set_flat(op.results, e.b.multi(op.name, e.flat(op.operands), op.loc, **attrs))


_COUNTS = {"carried", "count"}


def _expanded(facts: ShapeFacts, attr: Any, paired: int) -> Any:
    if isinstance(attr, Region):
        return expand_region(facts, attr, paired)
    if type(attr) is tuple and attr and isinstance(attr[0], Region):
        return tuple(expand_region(facts, region) for region in attr)
    return attr


def _combine(e: Block, op: Op) -> Pair | None:
    """An op with a combining body: on each part alone where no part of the result needs the other one."""
    body = expand_region(e.b.facts, op.attrs["body"])
    if len(op.results) == 1 and is_complex(op.results[0]) and len(body.inputs) == 4:
        alone = [_one_part(body, k) for k in range(2)]
        if None not in alone:
            results = []
            for k, region in enumerate(alone):
                operands = [e.part(x, k) for x in op.operands]
                results.append(e.b.op(op.name, operands, op.loc, **{**op.attrs, "body": region}))
            return Pair(*results)
    return _with_regions(e, op)  # type: ignore[func-returns-value]


def _one_part(body: Region, k: int) -> Region | None:
    """What an expanded body of two sides makes of part `k`, when that is all that it needs."""
    wanted = {body.outputs[k]}
    ops: list[Op] = []
    for op in reversed(body.ops):
        if not wanted.isdisjoint(op.results):
            wanted.update(op.operands)
            ops.insert(0, op)
    if wanted & set(body.inputs) - {body.inputs[k], body.inputs[k + 2]}:
        return None
    return isolated([body.inputs[k], body.inputs[k + 2]], ops, [body.outputs[k]])[0]


def _library(e: Block, op: Op) -> None:
    """A library reads and writes complex memory."""
    operands = [e.whole(x) if is_complex(x) else e.reals[x] for x in op.operands]
    results = e.b.multi(op.name, operands, op.loc, **op.attrs)
    e.inputs(zip(op.results, results, strict=True))


_EACH = (
    "negate add subtract select broadcast reshape transpose slice reverse gather dynamic_slice concatenate pad "
    "dynamic_update_slice"
).split()

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_EACH, _each),
    "complex": _complex,
    "real": _take(0),
    "imag": _take(1),
    "convert": _convert,
    "compare": _compare,
    "constant": _constant,
    "iota": _iota,
    "reduce": _reduce,
    "dot_general": _dot,
    "convolution": _convolution,
    **dict.fromkeys(("reduce_with", "reduce_window", "cumulative", "scatter"), _combine),
    **dict.fromkeys(("while", "case", "sort"), _with_regions),
    **dict.fromkeys(("custom_call", "fft"), _library),
}
