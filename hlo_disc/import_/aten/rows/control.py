"""Ops that call graphs: branches, loops, scans, regions that are traced once, attention with functions of scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops.flex_attention import _math_attention_inner
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_flatten, tree_unflatten

from hlo_disc.dynamic_hlo.ir.graph import Region, Value, isolated, with_captures
from hlo_disc.import_.aten.results import fake_of
from hlo_disc.import_.aten.tensors import BOOL, I32, I64
from hlo_disc.import_.elements import ONE

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _region(
    r: AtenReader, inputs: Sequence[Value], results: Callable[[], Sequence[Any]]
) -> tuple[Region, tuple[Value, ...]]:
    with r.inside():
        return isolated(inputs, r.builder.ops, _tensors(r, results()))


def _tensors(r: AtenReader, values: Sequence[Any]) -> list[Value]:
    if not all(isinstance(x, Value) for x in values):
        r.unsupported("what its graphs take and return must be tensors")
    return list(values)


def _cond(
    r: AtenReader, condition: Any, yes: GraphModule, no: GraphModule, operands: Sequence[Any] = ()
) -> list[Value]:
    if isinstance(condition, bool):
        return r.run(yes if condition else no, operands)
    if any(r.data.is_open(d) for x in r.outs for d in x.shape):
        r.unsupported("branches whose results differ in shape are not supported")
    regions = [_region(r, (), lambda graph=graph: r.run(graph, operands)) for graph in (no, yes)]  # type: ignore[misc]
    for region, _ in regions:
        for made, out in zip(region.outputs, r.outs, strict=True):
            if made.dtype != out.dtype:
                r.unsupported(f"a branch returns {made.dtype} in place of {out.dtype}")
            for axis, (a, b) in enumerate(zip(made.shape, out.shape, strict=True)):
                r.equal(a, b, f"dimension {axis} of a branch's result and what PyTorch says of it")
    branches, captured = with_captures(regions, 0)
    index = r.convert(r.reshape(r.convert(condition, BOOL), ()), I32)
    return list(r.emit_all("case", (index, *captured), branches=branches))


def _loop(
    r: AtenReader,
    initial: Sequence[Value],
    test: Callable[[Sequence[Value]], Any],
    step: Callable[[Sequence[Value]], Sequence[Any]],
) -> tuple[Value, ...]:
    inputs = [Value(x.dtype, x.shape, None, i) for i, x in enumerate(initial)]
    cond = _region(r, inputs, lambda: [r.reshape(r.convert(test(inputs), BOOL), ())])
    body = _region(r, inputs, lambda: step(inputs))
    for before, after in zip(initial, body[0].outputs, strict=True):
        if before.dtype != after.dtype or before.rank != after.rank:
            r.unsupported(f"a turn makes {after!r} of {before!r}")
        for axis, (a, b) in enumerate(zip(before.shape, after.shape, strict=True)):
            r.equal(a, b, f"dimension {axis} before and after a turn")
    regions, captured = with_captures([cond, body], len(initial))
    return r.emit_all("while", (*initial, *captured), cond=regions[0], body=regions[1], carried=len(initial))


def _while_loop(
    r: AtenReader, test: GraphModule, step: GraphModule, carried: Sequence[Any], others: Sequence[Any] = ()
) -> list[Value]:
    def condition(state: Sequence[Value]) -> Any:
        (holds,) = _tensors(r, r.run(test, [*state, *others]))
        return holds

    return list(_loop(r, _tensors(r, carried), condition, lambda state: r.run(step, [*state, *others])))


def _scan(
    r: AtenReader, combine: GraphModule, initial: Sequence[Any], lines: Sequence[Any], others: Sequence[Any] = ()
) -> list[Value]:
    """(what is carried, and what each turn made of it and the next row of the lines)."""
    state, lines = _tensors(r, initial), _tensors(r, lines)
    count = lines[0].shape[0]
    for x in lines[1:]:
        r.equal(x.shape[0], count, "the numbers of rows")
    made = [r.full(0, x.dtype, x.shape) for x in r.outs[len(state) :]]

    def at(x: Value, i: Value) -> list[Value]:
        return [i, *[r.scalar(0, I64)] * (x.rank - 1)]

    def step(values: Sequence[Value]) -> list[Any]:
        i, carried, rows = values[0], values[1 : len(state) + 1], values[len(state) + 1 :]
        taken = [r.emit("dynamic_slice", (x, *at(x, i)), sizes=(ONE, *x.shape[1:])) for x in lines]
        results = _tensors(r, r.run(combine, [*carried, *(r.squeeze(x, 0) for x in taken), *others]))
        put = [
            r.emit("dynamic_update_slice", (x, r.unsqueeze(y, 0), *at(x, i)))
            for x, y in zip(rows, results[len(state) :], strict=True)
        ]
        return [r.op("add", i, 1), *results[: len(state)], *put]

    zero = r.scalar(0, I64)
    found = _loop(r, [zero, *state, *made], lambda x: r.compare(x[0], "LT", r.scalar(count, I64)), step)
    return list(found[1:])


def _retraced(dense: Callable[..., Any]) -> Callable[..., Any]:
    """An op by a formula of PyTorch's ops, traced at the fake tensors of its operands."""

    def handle(r: AtenReader, *_: Any, **__: Any) -> list[Any]:
        leaves, spec = tree_flatten(r.node.args)
        known = [r.value_of(x) if isinstance(x, Node) and x.op == "get_attr" else fake_of(x) for x in leaves]
        places = [i for i, x in enumerate(known) if isinstance(x, torch.Tensor)]

        def formula(*tensors: torch.Tensor) -> Any:
            given = dict(zip(places, tensors, strict=True))
            return dense(*tree_unflatten([given.get(i, x) for i, x in enumerate(known)], spec))

        module = r.traced(formula, [known[i] for i in places])
        return r.run(module, [r.value_of(leaves[i]) for i in places])

    return handle


def _flex_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score: Callable[..., Any],
    blocks: tuple[Any, ...],
    scale: float,
    options: Mapping[str, Any],
    of_score: tuple[Any, ...] = (),
    of_mask: tuple[Any, ...] = (),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The attention, and of each row the logarithm of its sum and its maximum, to the base of 2.

    A row that is hidden as a whole gives zeros. The blocks say what the mask says, where nothing is to be computed.
    """
    each = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(each, 1).expand(query.shape[0], -1, -1, -1) for x in (key, value))
    _, scores = _math_attention_inner(query, key, value, score, blocks, scale, options, of_score, of_mask)
    top = scores.amax(-1, keepdim=True)
    weights = (scores - top.masked_fill(top == -math.inf, 0)).exp()
    total = weights.sum(-1, keepdim=True)
    made = (weights / total.masked_fill(total == 0, 1)).to(query.dtype) @ value
    return made, ((total.log() + top) / math.log(2)).squeeze(-1), (top / math.log(2)).squeeze(-1)


ROWS: dict[str, Callable[..., Any]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": lambda r, f, lines, others=(): _scan(r, f, (), lines, others),
    "invoke_subgraph": lambda r, graph, _, *operands: r.run(graph, operands),
    "flex_attention": _retraced(_flex_attention),
}
