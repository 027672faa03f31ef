"""The rules of axes say of views what their functions in numpy do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graphs.dhlo import make_graph, shape

from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.ops.axes import Affine, Axis, Elsewhere, First, Link, Order, Repeated, Same, dot_sides
from hlo_disc.dynamic_hlo.ops.reference import apply
from hlo_disc.dynamic_hlo.ops.table import OPS, links, parts_of
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts

VIEWS: list[tuple[str, str, dict[str, Any]]] = [
    ("broadcast", "3, 1, 2", {"shape": shape("2, 3, 4, 5"), "dims": (1, 3, 0)}),
    ("reshape", "2, 6", {"shape": shape("3, 1, 4")}),
    ("transpose", "2, 3, 4", {"perm": (1, 2, 0)}),
    ("slice", "6, 4, 1", {"start": shape("1, 0, 0"), "limit": shape("6, 4, 1"), "stride": (2, 1, 3)}),
    ("reverse", "2, 3, 1", {"dims": (1, 2)}),
    ("window", "7, 5", {
        "dims": (0, 1), "sizes": shape("2, 2"), "window": shape("2, 3"), "strides": (2, 1), "dilations": (3, 1),
    }),
]  # fmt: skip


def place(entry: Axis, index: tuple[int, ...], size: int) -> int | slice:
    match entry:
        case First():
            return 0
        case Same(axis):
            return index[axis]
        case Repeated(axis):
            return 0 if size == 1 else index[axis]
        case Affine(terms, start):
            return start.value + sum(step * index[axis] for axis, step in terms)
        case Elsewhere():
            return slice(None)
    raise AssertionError(entry)


def source(link: Link, index: tuple[int, ...], x: np.ndarray, result: np.ndarray) -> tuple[Any, ...]:
    if link.along is Order.ELEMENTS:
        return np.unravel_index(np.ravel_multi_index(index, result.shape), x.shape)
    return tuple(place(entry, index, n) for entry, n in zip(link.entries, x.shape, strict=True))


def view(name: str, sizes: str, attrs: dict[str, Any]) -> Op:
    graph = make_graph([("float32", sizes)], lambda g, x: [g.op(name, [x], **attrs)])
    return graph.ops[-1]


@pytest.mark.parametrize(("name", "sizes", "attrs"), VIEWS, ids=[name for name, *_ in VIEWS])
def test_elements_are_where_the_rule_says(name: str, sizes: str, attrs: dict[str, Any]) -> None:
    op = view(name, sizes, attrs)
    (link,) = links(op, ShapeFacts())
    extents = [n.value for n in op.operands[0].shape]
    x = np.arange(np.prod(extents), dtype=np.float32).reshape(extents)
    result = apply(op, [x])
    for index in np.ndindex(*result.shape):
        assert np.isin(result[index], x[source(link, index, x, result)]), index


def test_all_views_with_a_rule_are_tested() -> None:
    assert {name for name, row in OPS.items() if row.kind == "view" and row.axes} == {name for name, *_ in VIEWS}


ASSEMBLED: list[tuple[str, list[tuple[str, str]], dict[str, Any], list[str]]] = [
    ("concatenate", [("float32", "2, 1, 4"), ("float32", "2, 3, 4")], {"dim": 1}, ["SES", "SES"]),
    ("concatenate", [("float32", "2, 0, 4"), ("float32", "2, 3, 4")], {"dim": 1}, ["SES", "SSS"]),
    ("pad", [("float32", "2, 3, 1"), ("float32", "")], {
        "low": shape("0, 1, 0"), "high": shape("0, 2, 0"), "interior": shape("0, 1, 5"),
    }, ["SES"]),
    ("pad", [("float32", "2, 3, 1"), ("float32", "")], {
        "low": shape("1, 0, 0"), "high": shape("0, 0, 1"), "interior": shape("0, 0, 0"),
    }, ["ESE"]),
    ("pad", [("float32", "2, 3, 1"), ("float32", "")], {
        "low": shape("0, 0, 0"), "high": shape("0, -2, 0"), "interior": shape("0, 1, 0"),
    }, ["SES"]),
    ("pad", [("float32", "2, 3, 1"), ("float32", "")], {
        "low": shape("0, 1, 0"), "high": shape("0, -1, 0"), "interior": shape("0, 0, 0"),
    }, ["SES"]),
    ("place", [("float32", "2, 5, 4"), ("float32", "2, 2, 4")], {
        "starts": shape("0, 1, 0"), "steps": shape("1, 3, 1"),
    }, ["SSS", "SES"]),
    ("dynamic_update_slice", [("float32", "2, 5, 4"), ("float32", "2, 2, 3"), *[("int32", "")] * 3], {}, [
        "SSS", "SEE",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "attrs", "entries"), ASSEMBLED, ids=[name for name, *_ in ASSEMBLED])
def test_parts_are_where_the_rule_says(
    name: str, inputs: list[tuple[str, str]], attrs: dict[str, Any], entries: list[str]
) -> None:
    """Later parts are on top of earlier ones, and scalars at which a part starts are clamped."""
    op = make_graph(inputs, lambda g, *xs: [g.op(name, xs, **attrs)]).ops[-1]
    found = ["".join(type(entry).__name__[0] for entry in link.entries) for link in links(op, ShapeFacts())]
    assert found == entries
    arrays = {x: np.full([n.value for n in x.shape], 9, x.dtype) for x in op.operands}
    for x in [x for x in op.operands if x.rank]:
        arrays[x] = np.arange(1, arrays[x].size + 1, dtype=np.float32).reshape(arrays[x].shape)
    result = np.full([n.value for n in op.result.shape], 9, np.float32)
    for x, starts, steps in parts_of(op):
        at, inside = [], []
        for n, m, start, step in zip(arrays[x].shape, result.shape, starts, steps, strict=True):
            first = start.value if isinstance(start, Dim) else min(arrays[start].item(), m - n)
            rows = first + np.arange(n) * step.value
            inside.append(rows < m)  # padding may be negative
            at.append(rows[rows < m])
        result[np.ix_(*at)] = arrays[x][np.ix_(*inside)]
    np.testing.assert_array_equal(apply(op, [arrays[x] for x in op.operands]), result)


def test_all_ops_that_assemble_are_tested() -> None:
    assert {name for name, row in OPS.items() if row.kind == "assemble"} == {name for name, *_ in ASSEMBLED}


@pytest.mark.parametrize(
    ("sizes", "result", "dims", "entries"),
    [("n, 1, m", "n, k, m", (0, 1, 2), (Same(0), First(), Same(2))), ("n, m", "m, k", (1, 0), (Repeated(1), Same(0)))],
)
def test_a_broadcast_repeats_what_is_not_known_to_be_as_long(sizes: str, result: str, dims: Any, entries: Any) -> None:
    (link,) = links(view("broadcast", sizes, {"shape": shape(result), "dims": dims}), ShapeFacts())
    assert repr(link.entries) == repr(entries)


def test_a_slice_that_may_be_shorter_is_not_the_same() -> None:
    attrs = {"start": shape("k, 0"), "limit": shape("n, m"), "stride": (1, 1)}
    (link,) = links(view("slice", "n, m", attrs), ShapeFacts())
    assert repr(link.entries) == repr((Affine(((0, 1),), Dim.symbol("k")), Same(1)))


def test_an_axis_that_indices_point_into_is_elsewhere_though_the_window_is_as_long() -> None:
    attrs = {
        "offset_dims": (1, 2), "collapsed_slice_dims": (), "operand_batching_dims": (), "index_vector_dim": 1,
        "start_indices_batching_dims": (), "start_index_map": (0,), "slice_sizes": shape("n, m"),
    }  # fmt: skip
    graph = make_graph([("float32", "n, m"), ("int32", "b, 1")], lambda g, *xs: [g.op("gather", xs, **attrs)])
    of_operand, of_indices = links(graph.ops[-1], ShapeFacts())
    assert repr(of_operand.entries) == repr((Elsewhere(1), Same(2)))
    assert repr(of_indices.entries) == repr((Same(0), Elsewhere()))


def test_axes_of_a_dot() -> None:
    numbers = {"lhs_batch": (2, 0), "lhs_contract": (3,), "rhs_batch": (1, 3), "rhs_contract": (0,)}
    operands = [("float32", "2, 13, 3, 7, 5"), ("float32", "7, 3, 11, 2")]
    dtype = np.dtype(np.float32)
    graph = make_graph(operands, lambda g, *xs: [g.op("dot_general", xs, dtype=dtype, tf32=False, **numbers)])
    dot = graph.ops[-1]
    for x, side, kept in zip(dot.operands, dot_sides(dot), ([0, 1, 2, 4], [1, 2, 3]), strict=True):
        assert sorted(side.in_result) == kept
        assert all(dot.result.shape[place] is x.shape[axis] for axis, place in side.in_result.items())
