"""The relations of shapes, and the numbers of positions of windows: against counting them."""

from __future__ import annotations

import itertools

import pytest

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.dynamic_hlo.sizes.shapes import reshape_segments, same_shape
from hlo_disc.dynamic_hlo.sizes.windows import dilated, padded, positions

B, S = Dim.symbol("b"), Dim.symbol("s")


def dims(*sizes: int | Dim) -> tuple[Dim, ...]:
    return tuple(map(Dim.of, sizes))


def test_same_shape() -> None:
    facts = ShapeFacts()
    assert same_shape(facts, (B, S), (B, S))
    assert not same_shape(facts, (B, S), (S, B))
    assert not same_shape(facts, (B,), (B, S))
    facts.add_equal(B, S)
    assert same_shape(facts, (B, S), (S, B))


@pytest.mark.parametrize(
    "result, operand, segments",
    [
        ((B, S), (B, S), [([0], [0]), ([1], [1])]),
        ((B * S,), (B, S), [([0], [0, 1])]),
        ((B, S), (B * S,), [([0, 1], [0])]),
        ((B, 1, S), (B, S), [([0], [0]), ([1], []), ([2], [1])]),
        ((B, S), (B, 1, S), [([0], [0]), ([], [1]), ([1], [2])]),
        ((B, S), (S, B), [([0, 1], [0, 1])]),
        ((B, 6), (B, 2, 3), [([0], [0]), ([1], [1, 2])]),
        ((B, 2 * S, 6), (B, S, 2, 6), [([0], [0]), ([1], [1, 2]), ([2], [3])]),
        ((B, S, 2, 6), (B, 2 * S, 6), [([0], [0]), ([1, 2], [1]), ([3], [2])]),
        ((4, 3 * B, S), (2, 2, B, 3, S), [([0], [0, 1]), ([1], [2, 3]), ([2], [4])]),
        ((), (), []),
    ],
)
def test_reshape_segments(result: tuple, operand: tuple, segments: list) -> None:
    assert reshape_segments(dims(*result), dims(*operand), ShapeFacts()) == segments


@pytest.mark.parametrize("size, dilation", list(itertools.product((0, 1, 2, 5), (1, 2, 3))))
def test_dilated(size: int, dilation: int) -> None:
    places = range(0, size * dilation, dilation)
    want = places[-1] + 1 if size else 0
    assert dilated(Dim.const(size), dilation, ShapeFacts()) == want
    assert dilated(B, dilation, ShapeFacts()).evaluate({"b": size}) == want
    assert padded(Dim.const(size), dilation, Dim.const(2), Dim.const(-1), ShapeFacts()) == want + 1


@pytest.mark.parametrize("extent, window, stride", list(itertools.product((0, 1, 2, 5, 6), (1, 2, 3), (1, 2, 3))))
def test_positions(extent: int, window: int, stride: int) -> None:
    want = sum(start + window <= extent for start in range(0, extent + 1, stride))
    assert positions(Dim.const(extent), Dim.const(window), stride, ShapeFacts()) == want
    assert positions(B, Dim.const(window), stride, ShapeFacts()).evaluate({"b": extent}) == want
