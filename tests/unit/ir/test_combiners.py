"""Identities of monoids, for every element type: some small floats have no infinities, one has no zero."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, FLOATS, INTEGERS, bit_width, element_type, int_limits, is_float
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.ops.families.combiners import absorbs, identity, identity_number, monoid_region
from hlo_disc.dynamic_hlo.ops.reference import Function
from hlo_disc.dynamic_hlo.ops.table import REDUCERS
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts

WITHOUT_ZERO = np.dtype(ml_dtypes.float8_e8m0fnu)


def elements(dtype: np.dtype) -> np.ndarray:
    """Return all elements of a type in order, NaN last; of a wide one a few."""
    if dtype == BOOL:
        return np.array([False, True])
    if not is_float(dtype):
        low, high = int_limits(dtype)
        return np.array([low, low + 1, high - 1, high], object).astype(dtype)
    if dtype.itemsize > 1:
        most = float(ml_dtypes.finfo(dtype).max)
        return np.array([-np.inf, -most, -1, 0, 1, most, np.inf, np.nan], dtype)
    line = np.arange(1 << bit_width(dtype), dtype=np.uint8).view(dtype)
    return line[np.argsort(line.astype(np.float64))]


def kinds(dtype: np.dtype) -> set[str]:
    return REDUCERS.keys() - ({"and", "or", "xor"} if is_float(dtype) else set())


def start(x: np.ndarray | np.generic) -> Value:
    return GraphBuilder(ShapeFacts()).op("constant", value=np.asarray(x))


@pytest.mark.parametrize("dtype", (BOOL, *FLOATS, *INTEGERS), ids=element_type)
def test_combining_with_the_identity_changes_no_element(dtype):
    xs = elements(dtype)
    for kind in kinds(dtype) - ({"add"} if dtype == WITHOUT_ZERO else set()):
        body, neutral = monoid_region(kind, dtype), identity(kind, dtype)
        assert neutral.dtype == dtype and neutral.item() == identity_number(kind, dtype), kind
        (made,) = Function(body, {})(np.broadcast_to(neutral, xs.shape), xs)
        np.testing.assert_array_equal(made.astype(np.float64), xs.astype(np.float64), kind)
        assert absorbs(body, [start(neutral)]), kind


@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS), ids=element_type)
def test_the_element_next_to_an_identity_is_none(dtype):
    xs = elements(dtype)
    xs = xs[xs == xs]
    assert not absorbs(monoid_region("max", dtype), [start(xs[1])])
    assert not absorbs(monoid_region("min", dtype), [start(xs[-2])])


def test_a_sum_without_zero_has_an_identity_in_registers_only():
    assert identity_number("add", WITHOUT_ZERO) == 0
    assert not absorbs(monoid_region("add", WITHOUT_ZERO), [start(identity("add", WITHOUT_ZERO))])
