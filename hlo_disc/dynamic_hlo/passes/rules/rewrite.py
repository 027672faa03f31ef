"""The rewrite engine: a graph and a table of rules in, an equal and simpler graph out. Also DCE and CSE.

Ops are rebuilt in order, and a rule is tried the moment an op is built: it sees operands that are final already, and
what a rule builds is simplified at once, so one pass reaches the point where nothing fires. Sizes in attributes and
inputs become their canonical representatives, so that later stages may compare shapes by identity. All passes are pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Unpack, cast

import numpy as np

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.dependence import live_ops
from hlo_disc.dynamic_hlo.ir.graph import (
    Graph,
    Op,
    Region,
    Value,
    attribute_key,
    has_effect,
)
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.ops.table import OPS
from hlo_disc.dynamic_hlo.passes.rules.rule import Rule, build
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.dynamic_hlo.sizes.shapes import canonical_shape, same_shape
from hlo_disc.errors import CompileError

_DEPTH = 64  # rules that may fire inside each other's results


def rewrite(graph: Graph, rules: Sequence[Rule], fired: Counter[str] | None = None) -> Graph:
    """`graph` with all `rules` applied, and DCE. `fired` counts each rule's applications by its name."""
    builder = _RuleBuilder(graph.facts, rules)
    values: dict[Value, Value] = {}
    for value in graph.inputs:
        shape = canonical_shape(graph.facts, value.shape)
        values[value] = value if shape is value.shape else replace(value, shape=shape)
    for op in graph.ops:
        rebuilt = _rebuild(builder, op, tuple([values[v] for v in op.operands]), _canonical(op.attrs, graph.facts))
        results = (builder.simplify(rebuilt),) if len(op.results) == 1 else rebuilt.results
        values.update(zip(op.results, results, strict=True))
    if fired is not None:
        fired.update(builder.fired)
    inputs = tuple(values[v] for v in graph.inputs)
    return dce(graph.with_roots(values, inputs=inputs, ops=tuple(builder.ops)))


def dce(graph: Graph) -> Graph:
    """`graph` without ops that no output needs and that have no effect, and without checks that always hold."""
    ops = (op for op in graph.ops if op.name != "check" or not _always_holds(op, graph.facts))
    return replace(graph, ops=tuple(live_ops(tuple(ops), graph.roots)))


def _always_holds(check: Op, facts: ShapeFacts) -> bool:
    return facts.holds(check.attrs["lhs"], check.attrs["relation"], check.attrs["rhs"]) is Truth.YES


def cse(graph: Graph) -> Graph:
    """`graph` with one op in place of several that compute the same."""
    builder = GraphBuilder(graph.facts)
    values: dict[Value, Value] = {}
    seen: dict[Hashable, Op] = {}
    for op in graph.ops:
        operands = tuple([values.get(value, value) for value in op.operands])
        key = (op.name, operands, tuple(sorted([(name, _key(value)) for name, value in op.attrs.items()])))
        same = None if has_effect(op) else seen.get(key)
        if same is None:
            same = seen[key] = _rebuild(builder, op, operands, op.attrs)
        values.update(zip(op.results, same.results, strict=True))
    return graph.with_roots(values, ops=tuple(builder.ops))


def _key(attribute: object) -> Hashable:
    # Weights are large: only arrays that share their memory count as equal there.
    if isinstance(attribute, np.ndarray):
        content = attribute.tobytes() if attribute.nbytes <= 4096 else attribute.__array_interface__["data"]
        return str(attribute.dtype), attribute.shape, attribute.strides, content
    if isinstance(attribute, Region) or (type(attribute) is tuple and Region in map(type, attribute)):
        return attribute_key(attribute)
    # 1 == True == Dim.const(1) in Python, but not as attributes
    return type(attribute).__name__, attribute


def _rebuild(builder: GraphBuilder, op: Op, operands: tuple[Value, ...], attrs: Attributes) -> Op:
    """Append `op` with new operands and attributes; the same object when they are the same."""
    known = attrs is op.attrs and all([canonical_shape(builder.facts, x.shape) is x.shape for x in op.results])
    if known and operands == op.operands:
        builder.ops.append(op)
    elif known and [(x.dtype, x.shape) for x in operands] == [(x.dtype, x.shape) for x in op.operands]:
        builder.ops.append(op.with_operands(operands))
    else:
        GraphBuilder.multi(builder, op.name, operands, op.loc, **attrs)
    return builder.ops[-1]


def _canonical(attrs: Attributes, facts: ShapeFacts) -> Attributes:
    changed = {}
    for name, value in attrs.items():
        new = value
        if isinstance(value, Dim):
            new = facts.canonical(value)
        elif type(value) is tuple and Dim in map(type, value):
            new = canonical_shape(facts, value)
        if new is not value:
            changed[name] = new
    return cast("Attributes", {**attrs, **changed}) if changed else attrs


class _RuleBuilder(GraphBuilder):
    """A builder whose `op` gives the simplified value."""

    def __init__(self, facts: ShapeFacts, rules: Sequence[Rule]):
        super().__init__(facts)
        self.fired: Counter[str] = Counter()
        self._depth = 0
        self._rules: dict[str, list[Rule]] = {}
        for rule in rules:
            for root in rule.roots or OPS:
                self._rules.setdefault(root, []).append(rule)

    def op(self, name: str, operands: Sequence[Value] = (), loc: str = "", **attrs: Unpack[Attributes]) -> Value:
        super().multi(name, operands, loc, **attrs)
        return self.simplify(self.ops[-1])

    def simplify(self, op: Op) -> Value:
        """The value for the op that was built last, which stays only when no rule replaces it."""
        for rule in self._rules.get(op.name, ()) if self._depth < _DEPTH else ():
            instead = rule.look(self.facts, op)
            if instead is None:
                continue
            self.ops.pop()
            end = len(self.ops)
            self._depth += 1
            value = build(self, instead, op.loc)
            self._depth -= 1
            if value.dtype != op.result.dtype or value.rank != op.result.rank:
                raise CompileError(f"rewrite '{rule.name}' turns {op.result!r} into {value!r} at {op.loc or op.name}")
            if same_shape(self.facts, value.shape, op.result.shape):
                self.fired[rule.name] += 1
                return value
            # Sizes that only a guard relates: the op that states their relation must stay.
            self.ops[end:] = [op]
        return op.result
