"""Prints a DHLO graph as it is: symbolic sizes, and ops that StableHLO does not have. Nothing reads the text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Region, Value, regions


def to_text(graph: Graph) -> str:
    """Return an op a line: results, name, operands, attributes. The lines of its regions follow, indented."""
    names: dict[Value, str] = dict(zip(graph.inputs, (f"%{name}" for name in graph.input_names), strict=True))
    numbers = itertools.count()

    def typed(values: Iterable[Value]) -> str:
        names.update((v, f"%{next(numbers)}") for v in values if v not in names)
        return ", ".join(f"{names[v]}: {v}" for v in values)

    def lines(inputs: Sequence[Value], ops: Iterable[Op], outputs: Iterable[Value]) -> Iterator[str]:
        yield f"inputs  {typed(inputs)}"
        for op in ops:
            results = f"{typed(op.results)} = " if op.results else ""
            yield f"{results}{op.name}({', '.join(names[v] for v in op.operands)}){_attributes(op)}"
            for region in regions(op):
                yield from (f"    {line}" for line in lines(region.inputs, region.ops, region.outputs))
        yield f"outputs {', '.join(names[v] for v in outputs)}"

    return "\n".join(lines(graph.inputs, graph.ops, graph.outputs))


def _attributes(op: Op) -> str:
    left_out = ("shape", "dtype", "tf32", "branches")  # the first two are in the result's type
    shown = [(name, x) for name, x in op.attrs.items() if name not in left_out and not isinstance(x, Region)]
    text = ", ".join(f"{name}={' '.join(str(x).split())}" for name, x in shown if str(x) != "()")
    return f" {{{text}}}" if text else ""
