"""Complex numbers as pairs of real ones: a graph in which only memory that others see is complex.

Every complex value that is computed becomes two real ones, its parts. Inputs, outputs and library calls keep complex
memory, which is real memory with a last axis of 2: `bitcast_convert` says so and costs nothing. Behind this pass the
ops on complex numbers are `real` and `imag`, which take memory apart, `complex`, which makes some, and those that move
data. One row an op, of `EXPANSIONS` or `FORMULAS`, says how its parts are made; sums work on each part alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import part_dtype
from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Region, Value, all_ops, isolated
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, make_region
from hlo_disc.dynamic_hlo.ops.expr import Array
from hlo_disc.dynamic_hlo.passes.complex import products as complex_products
from hlo_disc.dynamic_hlo.passes.complex.block import Block, Expansion, Pair, is_complex
from hlo_disc.dynamic_hlo.passes.complex.formulas import FORMULAS, Complex, multiply
from hlo_disc.dynamic_hlo.passes.complex.reals import RealMaker
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts


def expand_complex(graph: Graph) -> Graph:
    """An equal graph that computes on real numbers alone; the same graph when it has no complex ones.

    Raises UnsupportedOpError for an op that has no meaning, or no expansion, for complex numbers.
    """
    made = (value for op in all_ops(graph.ops) for value in op.results)
    if not any(map(is_complex, (*graph.inputs, *made))):
        return graph
    block = Block(graph.facts, EXPANSIONS)
    block.inputs(zip(graph.inputs, graph.inputs, strict=True))
    for op in graph.ops:
        block.expand(op)
    new = {value: block.whole(value) if is_complex(value) else block.reals[value] for value in graph.roots}
    return graph.with_roots(new, ops=tuple(block.b.ops))


def expand_region(facts: ShapeFacts, region: Region, paired: int = 0) -> Region:
    """A region on parts: each complex input and output is two.

    paired: how many inputs come in pairs of one type: the first parts of both stand before their second ones.
    """
    block = Block(facts, EXPANSIONS)
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
    r = RealMaker(b, loc, roomy)
    reals = [Array(r, x) for x in parts]
    return [Complex(*reals[i : i + 2]) for i in range(0, len(reals), 2)]


def _complex(e: Block, op: Op) -> Pair:
    re, im = op.operands
    return Pair(e.reals[re], e.reals[im])


def _take(k: int) -> Expansion:
    return lambda e, op: e.pair(op.operands[0])[k]


def _convert(e: Block, op: Op) -> Pair | Value:
    (x,), dtype = op.operands, op.attrs["dtype"]
    parts = e.flat([x])[: 2 if is_complex(op.result) else 1]
    converted = [e.b.op("convert", [v], op.loc, dtype=part_dtype(dtype)) for v in parts]
    if not is_complex(op.result):
        return converted[0]
    return Pair(*converted) if len(converted) == 2 else Pair(converted[0], e.zeros(converted[0], op.loc))


def _compare(e: Block, op: Op) -> Value:
    x, y = map(e.pair, op.operands)
    same = [e.b.op("compare", [a, b], op.loc, **op.attrs) for a, b in zip(x, y, strict=True)]
    return e.b.op("and" if op.attrs["direction"] == "EQ" else "or", same, op.loc)


# -------------------------------------------------------------------------------------------------- moving data, sums


def _each(e: Block, op: Op) -> Pair:
    """The op on real parts, and on imaginary parts."""
    return Pair(*(e.b.op(op.name, [e.part(x, k) for x in op.operands], op.loc, **op.attrs) for k in range(2)))


def _move(e: Block, op: Op) -> Pair | None:
    """Complex memory is moved whole; else each part on its own."""
    if not all(x in e.wholes for x in op.operands if is_complex(x)):
        return _each(e, op)
    operands = [e.wholes[x] if is_complex(x) else e.reals[x] for x in op.operands]
    e.wholes[op.result] = e.b.op(op.name, operands, op.loc, **op.attrs)
    return None


def _constant(e: Block, op: Op) -> Pair:
    value = op.attrs["value"]
    parts = (np.ascontiguousarray(part).reshape(value.shape) for part in (value.real, value.imag))
    return Pair(*(e.b.op("constant", [], op.loc, value=part) for part in parts))


def _iota(e: Block, op: Op) -> Pair:
    re = e.b.op("iota", [], op.loc, **op.attrs | {"dtype": part_dtype(op.result.dtype)})
    return Pair(re, e.zeros(re, op.loc))


def _reduce(e: Block, op: Op) -> Pair:
    if op.attrs["kind"] == "add":
        return _each(e, op)
    x, init = op.operands
    part = part_dtype(x.dtype)

    def body(b: GraphBuilder, values: tuple[Value, ...]) -> tuple[Value, ...]:
        product = multiply(*_numbers(b, values, op.loc))
        return tuple(r.value for r in product)

    region = make_region(e.b.facts, [(part, ())] * 4, body)
    operands = [*e.pair(x), *e.pair(init)]
    return Pair(*e.b.multi("reduce_with", operands, op.loc, dims=op.attrs["dims"], body=region))


# ------------------------------------------------------------------------------------------- regions and library calls


def _with_regions(e: Block, op: Op) -> None:
    """Each complex operand, region argument and result is two. What counts operands counts them anew."""
    paired = 2 * op.attrs["count"] if op.name == "sort" else 0
    attrs: dict[str, Any] = {name: _expanded(e.b.facts, attr, paired) for name, attr in op.attrs.items()}
    for name in _COUNTS & attrs.keys():
        attrs[name] += sum(map(is_complex, op.operands[: attrs[name]]))
    e.set_flat(op.results, e.b.multi(op.name, e.flat(op.operands), op.loc, **attrs))


_COUNTS = {"carried", "count"}


def _expanded(facts: ShapeFacts, attr: object, paired: int) -> object:
    if isinstance(attr, Region):
        return expand_region(facts, attr, paired)
    if type(attr) is tuple and attr and isinstance(attr[0], Region):
        return tuple(expand_region(facts, region) for region in attr)
    return attr


def _combine(e: Block, op: Op) -> Pair | None:
    """An op with a combining body: on each part alone where no part of the result needs the other one."""
    body = expand_region(e.b.facts, op.attrs["body"])
    if len(op.results) == 1 and is_complex(op.results[0]) and len(body.inputs) == 4:
        alone = [part for k in range(2) if (part := _one_part(body, k)) is not None]
        if len(alone) == 2:
            results = []
            for k, region in enumerate(alone):
                operands = [e.part(x, k) for x in op.operands]
                results.append(e.b.op(op.name, operands, op.loc, **op.attrs | {"body": region}))
            return Pair(*results)
    return _with_regions(e, op)  # type: ignore[func-returns-value]


def _one_part(body: Region, k: int) -> Region | None:
    """Return the region that computes part `k` of an expanded body of two sides; None where it needs the other part."""
    wanted = {body.outputs[k]}
    ops: list[Op] = []
    for op in reversed(body.ops):
        if not wanted.isdisjoint(op.results):
            wanted.update(op.operands)
            ops.insert(0, op)
    if wanted & set(body.inputs) - {body.inputs[k], body.inputs[k + 2]}:
        return None
    return isolated([body.inputs[k], body.inputs[k + 2]], ops, [body.outputs[k]])[0]


def _in_memory(e: Block, op: Op) -> None:
    """Expand an op on complex memory: a library call, or a bitcast, which gives memory another type."""
    operands = [e.whole(x) if is_complex(x) else e.reals[x] for x in op.operands]
    results = e.b.multi(op.name, operands, op.loc, **op.attrs)
    e.inputs(zip(op.results, results, strict=True))


# By the names of ops, and the kinds of those that only move data.
EXPANSIONS: Mapping[str, Expansion] = {
    **dict.fromkeys(FORMULAS, _formula),
    **dict.fromkeys(("negate", "add", "subtract", "select"), _each),
    **dict.fromkeys(("view", "gather", "assemble"), _move),
    "complex": _complex,
    "real": _take(0),
    "imag": _take(1),
    "convert": _convert,
    "compare": _compare,
    "constant": _constant,
    "iota": _iota,
    "reduce": _reduce,
    **complex_products.EXPANSIONS,
    **dict.fromkeys(("reduce_with", "reduce_window", "cumulative", "scatter"), _combine),
    **dict.fromkeys(("while", "case", "sort"), _with_regions),
    **dict.fromkeys(("custom_call", "fft", "bitcast_convert"), _in_memory),
}
