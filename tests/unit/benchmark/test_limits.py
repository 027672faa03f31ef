"""The machine's limits: fields that can be, loops that compute what they say, and what a machine lacks."""

from __future__ import annotations

import json
import math
import platform

import numpy as np
import pytest

from hlo_disc import ral
from hlo_disc.errors import DeviceError
from hlo_disc.profile import limits, x86_loops
from hlo_disc.profile.limits import Limits

MADE_UP = Limits(100.0, 800.0, {1 << 20: 50.0, 1 << 22: 10.0}, {1 << 20: 20.0, 1 << 22: 12.0})


def test_of_this_machine():
    found = limits.measure()
    rates = [*found.read.values(), *found.copy.values()]
    assert set(found.read) == set(found.copy) == set(limits.SIZES)
    assert all(1e7 < rate < 1e13 for rate in rates)
    assert 1e8 < found.fma_f32 < ral.usable_cores() * 1e12
    assert (found.fma_bf16 is None) == (x86_loops.bf16() is None)
    assert found.fma_bf16 is None or 1e8 < found.fma_bf16 < ral.usable_cores() * 1e14
    again = json.loads(json.dumps(found.as_dict()))
    assert again["fma_f32"] == found.fma_f32 and again["read"] == {str(k): v for k, v in found.read.items()}
    assert "GFLOP/s" in str(found)


def test_seconds():
    assert MADE_UP.seconds(1000, 0) == 10
    assert MADE_UP.seconds(1000, 0, "float64") == 10
    assert MADE_UP.seconds(1000, 0, "bfloat16") == 1.25
    assert MADE_UP.seconds(0, 1 << 20) == (1 << 20) / 50  # the better of both rates
    assert MADE_UP.seconds(0, 1 << 23) == (1 << 23) / 12
    assert MADE_UP.seconds(10**9, 1 << 20) == 10**7
    assert MADE_UP.seconds(0, 0) == 0


def test_rates_that_nobody_measured_bound_nothing():
    assert MADE_UP.rate("int8") == MADE_UP.rate("float16") == MADE_UP.rate("int32") == math.inf


def test_bf16_is_as_fast_as_f32_at_least():
    assert Limits(100.0, None, {1: 1.0}, {1: 1.0}).rate("bfloat16") == 100
    assert Limits(100.0, 50.0, {1: 1.0}, {1: 1.0}).rate("bfloat16") == 100


def test_reading_goes_round():
    loop = x86_loops.read()
    data = np.arange(3 * loop.work // 4, dtype=np.float32)
    per_turn = data.reshape(3, -1, x86_loops._lanes())[:, :, 0].sum(1)
    for turns in (1, 3, 4):
        assert loop.run(data.ctypes.data, data.nbytes, turns) == sum(per_turn[t % 3] for t in range(turns))


def test_f32_multiplies_and_adds():
    loop = x86_loops.f32()
    data = np.full(256, 0.5, np.float32)
    chains = loop.work // (2 * x86_loops._lanes())
    assert loop.run(data.ctypes.data, data.nbytes, 2) == chains * (0.5 * 0.5 + 0.5)


def has(*features):
    return lambda *asked: set(asked) <= set(features)


@pytest.mark.parametrize(
    ("features", "taken"),
    [
        (("amx-tile", "amx-bf16", "avx512f", "avx512bf16"), "tiles"),
        (("avx512f", "avx512bf16"), "pairs"),
        (("avx512f",), None),
        ((), None),
    ],
)
def test_how_bf16_is_multiplied(monkeypatch, features, taken):
    monkeypatch.setattr(x86_loops, "_has", has(*features))
    monkeypatch.setattr(x86_loops, "tiles", lambda: "tiles")
    monkeypatch.setattr(x86_loops, "pairs", lambda: "pairs")
    assert x86_loops.bf16() == taken


def test_pairs_multiply_and_add():
    if not x86_loops._has("avx512f", "avx512bf16"):
        pytest.skip("this machine multiplies no pairs of bf16")
    loop = x86_loops.pairs()
    data = np.full(512, 0x3F00, np.uint16)  # 0.5
    assert loop.run(data.ctypes.data, data.nbytes, 3) == loop.work // 64 * 3 * 2 * 0.25


def test_tiles_run():
    if not x86_loops._has(*x86_loops.x86.TILES):
        pytest.skip("this machine has no tiles, or Linux does not grant them")
    loop = x86_loops.tiles()
    data = np.zeros(512, np.uint16)
    assert loop.run(data.ctypes.data, data.nbytes, 3) == 0
    assert loop.work % (2 * 16 * 16 * 32) == 0


def test_other_machines(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(DeviceError, match="x86-64.*aarch64"):
        limits.measure()


def test_machines_without_fma(monkeypatch):
    monkeypatch.setattr(x86_loops, "_has", has())
    with pytest.raises(DeviceError, match="FMA"):
        limits.measure()
