"""The distance between results, and what is wrong with them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hlo_disc.benchmark.run import compare

F = np.float32


@pytest.mark.parametrize(
    ("got", "want", "error", "wrong"),
    [
        ([F([1, 2])], [F([1, 2])], 0.0, ""),
        ([F([1, 4.0001])], [F([1, 4])], 2.5e-5, ""),
        ([F([1, 5])], [F([1, 4])], 0.25, "result 0: like XLA: 1 of 2"),
        ([F([1]), F([1])], [F([1]), F([2])], 0.5, "result 1: "),
        ([F([np.nan, 1])], [F([np.nan, 1])], 0.0, ""),
        ([F([np.inf, -np.inf, 1])], [F([np.inf, -np.inf, 2])], 0.5, "result 0"),
        ([F([np.nan, 1])], [F([0, 1])], np.inf, "result 0"),
        ([F([np.inf, 1])], [F([1, 1])], np.inf, "result 0"),
        ([np.arange(3)], [np.arange(3)], 0.0, ""),
        ([np.array([1, 2])], [np.array([1, 4])], 0.5, "result 0"),
        ([np.array([True])], [np.array([False])], 1.0, "result 0"),
        ([np.array([1 + 1j])], [np.array([1 + 1j])], 0.0, ""),
        ([np.array([3 + 4j])], [np.array([3 + 0j])], 4 / 3, "result 0"),
        ([np.ones(3, F)], [np.ones(4, F)], np.inf, "result 0: like XLA: got float32[3]"),
        ([np.ones(3, F)], [np.ones(3)], 0.0, "result 0: like XLA: got float32[3], expected float64[3]"),
        ([np.ones(2, ml_dtypes.bfloat16)], [np.ones(2, ml_dtypes.bfloat16)], 0.0, ""),
        ([np.zeros((0, 4), F)], [np.zeros((0, 4), F)], 0.0, ""),
        ([], [], 0.0, ""),
    ],
)
def test_compare(got, want, error, wrong):
    found, text = compare(got, want)
    assert found == pytest.approx(error, rel=0.05)
    assert text.startswith(wrong) and bool(text) == bool(wrong)
