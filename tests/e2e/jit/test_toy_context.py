"""A context of the tests' own: tensors in an `array.array`, which have neither DLPack nor the buffer protocol.

A real one touches, beside its own file in `ral/contexts/`: the table in `ral/contexts/__init__.py`, and
`docs/architecture.md`. Nothing else may have to change.
"""

from __future__ import annotations

import array
import math

import numpy as np
import pytest

import hlo_disc
from hlo_disc.errors import ArgumentError, ShapeError
from hlo_disc.ral import contexts


class Grid:
    """A tensor of f32."""

    def __init__(self, shape: tuple[int, ...], values: list[float]):
        assert len(values) == math.prod(shape)
        self.shape, self.values = shape, array.array("f", values)


class Picture:
    """An object of the same package that is no tensor."""


class GridAdapter:
    """Implements `hlo_disc.ral.contexts.Adapter`."""

    immutable = False

    def give(self, grid: Grid) -> np.ndarray:
        return np.frombuffer(grid.values, np.float32).reshape(grid.shape)

    def type(self, grid: Grid) -> None:
        """Return None: nothing tells the type of grids."""

    def weak(self, grid: Grid) -> bool:
        """Return False: grids have no weak types, as JAX has."""
        return False

    def deleted(self, grid: Grid) -> bool:
        """Return False: nobody takes a grid's memory from it."""
        return False

    def take(self, tensor: object, like: object, weak: bool) -> Grid:
        raise AssertionError("there are no grids on a GPU")

    def wrap(self, result: np.ndarray, like: Grid | None, weak: bool = False) -> Grid:
        assert isinstance(like, Grid) and not weak
        return Grid(result.shape, result.ravel().tolist())


@pytest.fixture(autouse=True, scope="module")
def registered():
    contexts.register(__name__, lambda kind: GridAdapter() if kind is Grid else None)
    yield
    del contexts._CONTEXTS[__name__]


@pytest.fixture(scope="module")
def scaled():
    return hlo_disc.compile(lambda x, y: (x * y + 1, x.sum(1)), "f32[n, m]", "f32[n, m]")


def test_tensors_in_and_out(scaled):
    for n, m in ((2, 3), (1, 1), (0, 4), (33, 65)):
        x, y = (np.random.default_rng(k).standard_normal((n, m)).astype(np.float32) for k in range(2))
        product, total = scaled(*(Grid((n, m), a.ravel().tolist()) for a in (x, y)))
        assert type(product) is type(total) is Grid
        assert (product.shape, total.shape) == ((n, m), (n,))
        np.testing.assert_allclose(product.values, (x * y + 1).ravel(), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(total.values, x.sum(1), rtol=1e-4, atol=1e-5)


def test_a_tensor_beside_a_numpy_array_decides_what_comes_out(scaled):
    ones = np.ones((1, 2), np.float32)
    assert type(scaled(ones, Grid((1, 2), [1, 2]))[0]) is Grid
    assert type(scaled(ones, ones)[0]) is np.ndarray


def test_what_does_not_fit_is_refused(scaled):
    grid = Grid((1, 2), [1, 2])
    with pytest.raises(ShapeError, match="'y'"):
        scaled(grid, Grid((2, 1), [1, 2]))
    with pytest.raises(ArgumentError, match="rank|dimensions"):
        scaled(grid, Grid((2,), [1, 2]))
    with pytest.raises(ArgumentError, match="float32"):
        hlo_disc.compile(lambda x: x, "i32[n]")(Grid((2,), [1, 2]))
    with pytest.raises(ArgumentError, match="Picture"):
        scaled(grid, Picture())


def test_a_tensor_may_change_between_calls():
    """A grid may change between calls, so no packed form of it is kept."""
    executable = hlo_disc.compile(lambda x, w: x @ w, "f32[m, 4]", "f32[4, 4]")
    w = Grid((4, 4), np.eye(4).ravel().tolist())
    for factor in (1, 2, 3, 4):
        w.values[0] = factor
        assert executable(Grid((1, 4), [1, 1, 1, 1]), w).values.tolist() == [factor, 1, 1, 1]
