"""A digest of a graph, equal in all processes: the cache finds the compiled program of the same graph by it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Graph, Guard, Op, Region, Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim


class _Unknown(Exception):
    """A value that no other process can have."""


def digest(graph: Graph) -> bytes | None:
    """Return SHA-256 of everything that compiling and explaining depend on; None if the program contains Python
    functions."""
    rows = [
        _text((graph.name, graph.input_names, tuple(sorted(graph.facts.stated())))),
        _text((tuple(graph.bindings.items()), graph.guards, graph.asked, tuple(graph.definitions))),
    ]
    try:
        rows += _body(graph.inputs, graph.ops, graph.roots)
    except _Unknown:
        return None
    return hashlib.sha256("\n".join(rows).encode()).digest()


def _body(inputs: Sequence[Value], ops: Sequence[Op], outputs: Sequence[Value]) -> list[str]:
    """Return one line of text for each op. Values are numbered in the order of their definition."""
    numbers = {value: number for number, value in enumerate(inputs)}
    rows = [_types(inputs)]
    for op in ops:
        for result in op.results:
            numbers[result] = len(numbers)
        operands = " ".join(str(numbers[x]) for x in op.operands)
        attributes = " ".join(f"{name}={_text(x)}" for name, x in op.attrs.items())
        rows.append(f"{op.name} {operands} {attributes} {_types(op.results)} {op.loc!r}")
    rows.append(" ".join(str(numbers[x]) for x in outputs))
    return rows


def _types(values: Sequence[Value]) -> str:
    return " ".join(map(repr, values))


def _text(x: object) -> str:
    if isinstance(x, tuple):
        return f"({','.join(map(_text, x))})"
    if isinstance(x, np.ndarray):
        content = hashlib.sha256(np.ascontiguousarray(x).reshape(-1).view(np.uint8).data)
        return f"{x.dtype}{x.shape}{content.hexdigest()}"
    if isinstance(x, Region):
        return f"{{{';'.join(_body(x.inputs, x.ops, x.outputs))}}}"
    if isinstance(x, Guard):
        return _text((x.lhs, x.relation, x.rhs, x.message, x.args))
    if x is None or isinstance(x, (str, int, float, Dim, np.dtype)):
        return repr(x)
    raise _Unknown
