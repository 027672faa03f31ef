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
from hlo_disc.dynamic_hlo.ops.expr import BOOL, I32, I64
from hlo_disc.import_.aten.results import fake_of
from hlo_disc.import_.handlers.arrays import Array, emit_all, loop

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _region(
    r: AtenReader, inputs: Sequence[Value], results: Callable[[], Sequence[object]]
) -> tuple[Region, tuple[Value, ...]]:
    with r.inside():
        return isolated(inputs, r.builder.ops, [x.value for x in _tensors(r, results())])


def _tensors(r: AtenReader, values: Sequence[object]) -> list[Array]:
    tensors = [x for x in values if isinstance(x, Array)]
    if len(tensors) < len(values):
        r.unsupported("what its graphs take and return must be tensors")
    return tensors


def _cond(
    r: AtenReader, condition: Array | bool, yes: GraphModule, no: GraphModule, operands: Sequence[object] = ()
) -> list[Array]:
    if isinstance(condition, bool):
        return r.call(yes if condition else no, operands)
    if any(r.data.is_open(d) for x in r.outs for d in x.shape):
        r.unsupported("branches whose results differ in shape are not supported")
    regions = [_region(r, (), lambda graph=graph: r.call(graph, operands)) for graph in (no, yes)]  # type: ignore[misc]
    for region, _ in regions:
        for made, out in zip(region.outputs, r.outs, strict=True):
            if made.dtype != out.dtype:
                r.unsupported(f"a branch returns {made.dtype} in place of {out.dtype}")
            for axis, (a, b) in enumerate(zip(made.shape, out.shape, strict=True)):
                r.equal(a, b, f"dimension {axis} of a branch's result and what PyTorch says of it")
    branches, captured = with_captures(regions, 0)
    index = condition.cast(BOOL).reshape(()).cast(I32)
    return emit_all(r, "case", (index, *(Array(r, x) for x in captured)), branches=branches)


def _alike(r: AtenReader, before: Sequence[Array], after: list[Array]) -> list[Array]:
    """Return the results of an iteration, converted to the types of its inputs."""
    for x, y in zip(before, after, strict=True):
        if x.dtype != y.dtype or x.rank != y.rank:
            r.unsupported(f"an iteration makes {y.value!r} of {x.value!r}")
        for axis, (a, b) in enumerate(zip(x.shape, y.shape, strict=True)):
            r.equal(a, b, f"dimension {axis} before and after an iteration")
    return after


def _while_loop(
    r: AtenReader, test: GraphModule, step: GraphModule, carried: Sequence[object], others: Sequence[object] = ()
) -> list[Array]:
    def condition(*state: Array) -> Array:
        (holds,) = _tensors(r, r.call(test, [*state, *others]))
        return holds.cast(BOOL).reshape(())

    def body(*state: Array) -> list[Array]:
        return _alike(r, state, _tensors(r, r.call(step, [*state, *others])))

    return loop(r, condition, body, _tensors(r, carried))


def _scan(
    r: AtenReader,
    combine: GraphModule,
    initial: Sequence[object],
    lines: Sequence[Array],
    others: Sequence[object] = (),
) -> list[Array]:
    """Scan. Returns the carried values, and the outputs of all iterations."""
    state, lines = _tensors(r, initial), _tensors(r, lines)
    count = lines[0].shape[0]
    for x in lines[1:]:
        r.equal(x.shape[0], count, "the numbers of rows")
    made = [r.full(0, x.dtype, x.shape) for x in r.outs[len(state) :]]

    def step(*values: Array) -> list[Array]:
        i, carried, rows = values[0], values[1 : len(state) + 1], values[len(state) + 1 :]
        taken = [x.window(0, i) for x in lines]
        results = _tensors(r, r.call(combine, [*carried, *(x.squeeze(0) for x in taken), *others]))
        put = [x.put(0, i, y.expand(0)) for x, y in zip(rows, results[len(state) :], strict=True)]
        return _alike(r, values, [i + 1, *results[: len(state)], *put])

    zero = r.scalar(0, I64)
    return loop(r, lambda i, *_: i < count, step, [zero, *state, *made])[1:]


def _retraced(dense: Callable[..., object]) -> Callable[..., list[object]]:
    """Retrace an op as a formula of PyTorch's ops, with the fake tensors of its operands."""

    def handle(r: AtenReader, *_: object, **__: object) -> list[object]:
        leaves, spec = tree_flatten(r.node.args)
        known = [r.value_of(x) if isinstance(x, Node) and x.op == "get_attr" else fake_of(x) for x in leaves]
        places = [i for i, x in enumerate(known) if isinstance(x, torch.Tensor)]

        def formula(*tensors: torch.Tensor) -> object:
            given = dict(zip(places, tensors, strict=True))
            return dense(*tree_unflatten([given.get(i, x) for i, x in enumerate(known)], spec))

        module = r.traced(formula, [known[i] for i in places])
        return r.run(module, [r.value_of(leaves[i]) for i in places])

    return handle


def _flex_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score: Callable[..., torch.Tensor],
    blocks: tuple[object, ...],
    scale: float,
    options: Mapping[str, object],
    of_score: tuple[object, ...] = (),
    of_mask: tuple[object, ...] = (),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute the attention, and for each row the base-2 logarithm of its sum, and its maximum.

    A fully hidden row gives zeros. The block mask is not needed: it only repeats the mask.
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
    "invoke_subgraph": lambda r, graph, _, *operands: r.call(graph, operands),
    "flex_attention": _retraced(_flex_attention),
}
