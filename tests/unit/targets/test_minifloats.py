"""Floats of 4 to 8 bits: every code, and every rounding, as ml_dtypes has them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hand_written import kernel_runner as kernels

from hlo_disc.targets.translate.types import MINI_FLOATS

EDGES = (0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-45, -1e-45, 464, 480, 248, 256, 31, 61440, 7.25, 5)


def codes(name: str) -> np.ndarray:
    bits = int(name[1])
    return np.resize(np.arange(1 << bits, dtype=np.uint8), 256).view(MINI_FLOATS[name])


@pytest.mark.parametrize("level", kernels.levels())
@pytest.mark.parametrize("lanes", (0, 16))
@pytest.mark.parametrize("name", MINI_FLOATS)
def test_every_code_widens_exactly(name, lanes, level):
    x = codes(name)
    texts = [f"%r = arith.extf %x0 : V({name}) to V({wide})" for wide in ("f32", "f64")]
    for y in kernels.apply_all(texts, [x], [np.float32, np.float64], lanes, level):
        expected = x.astype(np.float32)
        np.testing.assert_array_equal(y, expected)
        assert (np.signbit(y) == np.signbit(expected))[~np.isnan(expected)].all()


@pytest.mark.parametrize("level", kernels.levels())
@pytest.mark.parametrize("lanes", (0, 16))
@pytest.mark.parametrize("name", MINI_FLOATS)
def test_f32_and_f64_are_rounded_once(name, lanes, level):
    values = codes(name).astype(np.float32)
    values = np.unique(values[np.isfinite(values)])
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        random = rng.integers(0, 1 << 32, 4096, np.uint32).view(np.float32)
        ties = (values[1:] + values[:-1]) / 2
        around = [np.nextafter(ties, np.float32(end)) for end in (-np.inf, np.inf)]
        x = np.concatenate([values, ties, *around, random, np.array(EDGES, np.float32)])
        x = np.resize(x, -(-x.size // 64) * 64)
        expected = x.astype(MINI_FLOATS[name])
    single = f"%r = arith.truncf %x0 : V(f32) to V({name})"
    double = f"%w = arith.extf %x0 : V(f32) to V(f64)\n %r = arith.truncf %w : V(f64) to V({name})"
    for y in kernels.apply_all([single, double], [x], [expected.dtype] * 2, lanes, level):
        np.testing.assert_array_equal(y.astype(np.float32), expected.astype(np.float32))
        number = ~np.isnan(x) & ~np.isnan(expected.astype(np.float32))
        assert (np.signbit(y.astype(np.float32)) == np.signbit(expected.astype(np.float32)))[number].all()


def test_f64_is_not_rounded_through_f32():
    above_a_tie = np.full(64, 1 + 2.0**-4 + 2.0**-40)
    y = kernels.apply("%r = arith.truncf %x0 : V(f64) to V(f8E4M3FN)", [above_a_tie], ml_dtypes.float8_e4m3fn, 16)
    assert (y.astype(np.float32) == 1.125).all()
