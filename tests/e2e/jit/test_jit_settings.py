"""JAX's settings: hlo_disc.jit keeps its programs by what jax.jit keeps its own by; and the settings for debugging."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import warnings

import child
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.config import random_seed_offset

import hlo_disc


def ones(*shape):
    return jnp.ones(shape, jnp.float32)


def test_64_bit_types_on_and_off():
    f, g = hlo_disc.jit(lambda x: x + 1), jax.jit(lambda x: x + 1)
    x = np.ones(2)
    seen = []
    for x64 in (False, True, False, True):
        with jax.enable_x64(x64):
            seen.append((f(x).dtype, g(x).dtype))
    assert seen == [(np.float32, np.float32), (np.float64, np.float64)] * 2
    assert [r.reason for r in f.stats().records] == ["first call", "first call with these settings of JAX"]
    assert f.stats().calls == 4


def test_64_bit_types_inside_jax_jit():
    f = hlo_disc.jit(lambda x: x + jnp.arange(2.0))
    for x64, dtype in ((False, jnp.float32), (True, jnp.float64), (False, jnp.float32)):
        with jax.enable_x64(x64):
            assert jax.jit(f)(ones(2)).dtype == dtype
    assert f.stats().compilations == 2


def test_each_thread_has_its_own():
    f = hlo_disc.jit(lambda x: x + 1)
    x = np.ones(2)
    start = threading.Barrier(2)
    wrong = []

    def loop(x64):
        start.wait()
        with jax.enable_x64(x64):
            wrong.extend(d for _ in range(500) if (d := f(x).dtype) != (np.float64 if x64 else np.float32))

    threads = [threading.Thread(target=loop, args=(x64,)) for x64 in (False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert (f.stats().calls, f.stats().compilations) == (1000, 2)


@pytest.mark.parametrize(
    ("setting", "fn", "args"),
    [
        (lambda: jax.numpy_dtype_promotion("strict"), lambda x, y: x + y, (ones(2), jnp.ones(2, jnp.int32))),
        (lambda: jax.numpy_rank_promotion("raise"), lambda x, y: x + y, (ones(2, 2), ones(2))),
    ],
    ids=["dtype promotion", "rank promotion"],
)
def test_what_is_forbidden_is_an_error_then(setting, fn, args):
    f = hlo_disc.jit(fn)
    expected = f(*args)
    with setting():
        with pytest.raises((TypeError, ValueError)) as theirs:
            jax.jit(fn)(*args)
        with pytest.raises(type(theirs.value)) as ours:
            f(*args)
        assert str(ours.value).splitlines()[0] == str(theirs.value).splitlines()[0]
    assert np.array_equal(f(*args), expected)


@pytest.mark.parametrize(
    "setting",
    [
        lambda: jax.threefry_partitionable(not jax.config.jax_threefry_partitionable),
        lambda: random_seed_offset(7),
    ],
    ids=["partitionable", "offset"],
)
def test_what_changes_results(setting):
    fn = lambda seed: jax.random.bits(jax.random.PRNGKey(seed), (4,))  # noqa: E731
    f = hlo_disc.jit(fn)
    before = f(np.int32(3))
    with setting():
        changed = f(np.int32(3))
        assert np.array_equal(changed, jax.jit(fn)(np.int32(3)))
    assert np.array_equal(f(np.int32(3)), before)


def test_the_precision_of_products_is_the_one_of_the_call():
    f = hlo_disc.jit(jnp.matmul)
    f(ones(2, 2), ones(2, 2))
    with jax.default_matmul_precision("highest"):
        f(ones(2, 2), ones(2, 2))
    assert [r.reason for r in f.stats().records][1:] == ["first call with these settings of JAX"]


def test_a_context_of_the_users():
    context = jax.make_user_context("one")
    f = hlo_disc.jit(lambda x: x + len(context.value))
    assert f(ones(2)).tolist() == [4, 4]
    with context("three"):
        assert f(ones(2)).tolist() == [6, 6]
    assert f(ones(2)).tolist() == [4, 4]


def test_without_jit_the_function_itself_runs():
    seen = []

    @hlo_disc.jit(static_argnames="k")
    def f(x, k=1):
        seen.append(isinstance(x, jax.core.Tracer))
        return [x + k] if isinstance(x, jax.core.Tracer) or x.sum() > 1 else None

    assert f(ones(2))[0].tolist() == [2, 2]
    with jax.disable_jit():
        assert f(ones(2), k=2)[0].tolist() == [3, 3]
        assert f(jnp.zeros(2)) is None
    assert seen == [True, False, False]
    assert f(ones(2))[0].tolist() == [2, 2]
    assert len(seen) == 3


@pytest.mark.parametrize(("setting", "x"), [(jax.debug_nans, 0.0), (jax.debug_infs, 1.0)])
def test_looking_for_nans_and_infinities(setting, x):
    fn = lambda x: jnp.divide(x, 0).sum()  # noqa: E731
    f = hlo_disc.jit(fn)
    x = np.full(3, x, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(x)
        with setting(True):
            for jitted in (jax.jit(fn), f, f):
                with pytest.raises(FloatingPointError, match="encountered in div"):
                    jitted(x)
            assert isinstance(hlo_disc.jit(lambda x: x + 1)(x), np.ndarray)
        f(x)
    (fallback,) = f.stats().fallbacks
    assert "jax_debug_nans or jax_debug_infs is set" in fallback.reason and fallback.calls == 2
    assert (f.stats().calls, f.stats().compilations) == (4, 1)


def test_a_device_and_a_mesh():
    """Results lie where jax.jit puts them."""
    code = """if True:
        import jax, numpy as np, jax.numpy as jnp, hlo_disc
        jax.config.update("jax_num_cpu_devices", 2)
        first, second = jax.devices()
        fn = lambda x: x + 1
        f, g, x = hlo_disc.jit(fn), jax.jit(fn), jnp.ones(4)
        def check():
            a, b = f(x), g(x)
            assert (a.sharding, a.committed) == (b.sharding, b.committed), (a.sharding, b.sharding)
            assert np.array_equal(a, b)
        check()
        for device in (first, second, "cpu"):
            with jax.default_device(device):
                check()
        assert [fallback.calls for fallback in f.stats().fallbacks] == [1]
        with jax.set_mesh(jax.make_mesh((2,), ("x",))):
            check()
        check()
        assert f.stats().calls == 6 and f.stats().compilations == 3, str(f.stats())
    """
    child.python("-W", "error", "-c", code)


def test_compilations_are_logged_as_those_of_jax(caplog):
    with caplog.at_level(logging.INFO, "hlo_disc"):
        for context, level in ((contextlib.nullcontext(), "INFO"), (jax.log_compiles(), "WARNING")):
            with context:
                f = hlo_disc.jit(lambda x: x + 1)
                for _ in range(2):
                    f(ones(2))
            (record,) = [r for r in caplog.records if r.name == "hlo_disc"]
            assert record.levelname == level
            assert re.fullmatch(r"Finished compilation of <lambda> in \d+\.\d\d s: first call", record.getMessage())
            caplog.clear()
