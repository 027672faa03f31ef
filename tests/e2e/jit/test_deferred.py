"""Kernels that a call is compiled without: made when they are launched, or by the thread behind it."""

import time

import numpy as np
import pytest

import hlo_disc
from hlo_disc.compiled import deferred

RNG = np.random.default_rng(0)


@pytest.fixture
def on_demand(monkeypatch):
    """No thread makes what is deferred."""
    monkeypatch.setattr(deferred.background, "add", lambda kernels: None)


def draw(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def columns(options=None, **overrides):
    """A function of four kernels: for few or many columns, for few or many rows."""
    return hlo_disc.jit(lambda x: x.sum(0), dims={"x": "n, m"}, options=options, **{"cache": "", **overrides})


def counts(f):
    return f.stats().deferred_kernels, f.stats().later_kernels


def wait_for(f, seconds=60):
    end = time.monotonic() + seconds
    while f.stats().deferred_kernels:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_call_makes_the_kernels_that_it_launches(on_demand):
    f, whole = columns(), columns(defer_kernels=False)
    wanted = [((8, 5), 3, 0), ((513, 5), 2, 1), ((512, 5), 2, 1), ((512, 17), 1, 2), ((513, 17), 0, 3), ((9, 5), 0, 3)]
    for shape, waiting, made in wanted:
        x = draw(*shape)
        np.testing.assert_array_equal(f(x), whole(x))
        assert counts(f) == (waiting, made)
    assert f.stats().compilations == 1 and f.stats().later_seconds > 0
    assert "3 kernels made later" in str(f.stats())
    assert counts(whole) == (0, 0) and "later" not in str(whole.stats())
