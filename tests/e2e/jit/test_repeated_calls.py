"""Calls that come often with the same types are made by XLA programs of their own: nothing but time changes."""

from __future__ import annotations

import concurrent.futures
import gc
import importlib
import os
import pickle
import textwrap
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import child
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import hlo_disc
from hlo_disc.compiled import deferred
from hlo_disc.ral.contexts import jax as context

OFTEN = 3


def module() -> Any:
    return importlib.import_module("hlo_disc.jitted.repeated")


class Made:
    """A count of the XLA programs that were compiled, and of their calls."""

    def __init__(self) -> None:
        self.programs, self.calls = 0, 0


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    """Let calls come often from the third time on, and programs be complete at their first call. Yield the counts."""
    monkeypatch.setenv("HLO_DISC_DEFER_KERNELS", "0")
    seen = Made()
    compiled_with = context.compiled_with

    def watched(*args: Any) -> Callable[..., Any]:
        program = compiled_with(*args)
        seen.programs += 1

        def call(*arrays: Any) -> Any:
            results = program(*arrays)
            seen.calls += 1
            return results

        return call

    monkeypatch.setattr(context, "compiled_with", watched)
    monkeypatch.setattr(module(), "_OFTEN", OFTEN)
    monkeypatch.setattr(module(), "_MADE", 0)
    yield seen


def four(x, y):
    return x * 2, x + y, (y - 1, {"z": x.sum(0)})


def arrays(n: int = 5, seed: int = 0) -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(seed)
    return tuple(jnp.asarray(rng.standard_normal(n), jnp.float32) for _ in range(2))


def known(x: jax.Array) -> tuple[Any, ...]:
    return type(x), x.aval, x.committed, x.sharding, x.format, np.asarray(x).tobytes()


def assert_same(got: Any, want: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert known(x) == known(y)


def test_results_stay_what_they_were(made):
    f = hlo_disc.jit(four)
    for seed in range(2 * OFTEN):
        assert_same(f(*arrays(seed=seed)), hlo_disc.jit(four)(*arrays(seed=seed)))
    assert made.programs == 1 and made.calls == OFTEN
    assert f.stats().calls == 2 * OFTEN and f.stats().calls_in_jit == 0 and f.stats().compilations == 1


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint16", "int32", "float16", "bfloat16", "float8_e4m3fn", "float32", "complex64"],
)
@pytest.mark.parametrize("shape", [(), (3, 2), (0, 4)])
def test_every_type(made, dtype, shape):
    def fn(x, y):
        return y, x, jnp.where(x == y, x, y), jnp.stack([x, y])

    x = jnp.asarray(np.arange(np.prod(shape)).reshape(shape), getattr(ml_dtypes, dtype, dtype))
    f = hlo_disc.jit(fn)
    want = f(x, x.T.T)
    for _ in range(OFTEN):
        assert_same(f(x, x), want)
    assert made.calls == 1


def test_double_precision(made):
    with jax.enable_x64(True):
        f = hlo_disc.jit(lambda x: (x + 1, x * 0.1, x.astype(int), x.sum()))
        x = jnp.arange(3.0)
        for _ in range(2 * OFTEN):
            assert_same(f(x), hlo_disc.jit(f.__wrapped__)(x))
        assert f(x)[2].dtype == jnp.int64
    single = f(x.astype(jnp.float32))  # under other settings other programs serve it
    assert single[2].dtype == jnp.int32 and f.stats().compilations == 2
    assert made.programs == 1


def test_the_smallest_numbers_are_no_zeros(made):
    f = hlo_disc.jit(lambda x: (x * 2, x * 0.5, x + x, x - 1))
    x = jnp.asarray(np.full(1000, 3e-42, np.float32))
    want = f(x)
    for _ in range(OFTEN):
        assert_same(f(x), want)
    assert made.calls == 1 and np.asarray(want[1])[0] > 0


def test_weak_types(made):
    f = hlo_disc.jit(lambda x, y: (x, x * 2, y + 1, x * y))
    weak, strong = jnp.asarray(2.0), jnp.asarray([2.0], jnp.float32)[0]
    assert weak.weak_type and not strong.weak_type
    for x, y in [(weak, strong), (strong, weak), (weak, weak)] * (2 * OFTEN):
        got = f(x, y)
        assert_same(got, hlo_disc.jit(f.__wrapped__)(x, y))
        assert [r.weak_type for r in got] == [x.weak_type, x.weak_type, y.weak_type, x.weak_type and y.weak_type]
    assert made.programs == 3


def test_other_sizes_and_questions(made):
    def fn(x, y):
        return (x, y, x + y, x - y) if x.shape[0] > 3 else (x * 2, y * 2, x, y)

    f = hlo_disc.jit(fn)
    for n in (5, 6, 5, 5, 5, 3, 3, 3, 3, 6, 6, 6, 1, 0):
        assert_same(f(*arrays(n)), jax.tree.map(jnp.asarray, fn(*arrays(n))))
    assert made.programs == 3
    with pytest.raises(TypeError, match="incompatible shapes"):
        f(arrays(5)[0], arrays(6)[0])


def test_sizes_that_break_the_users_dims(made):
    f = hlo_disc.jit(four, dims={"x": "(n)", "y": "(n)"}, constraints="n <= 5")
    for _ in range(2 * OFTEN):
        f(*arrays())
    for n in (5, 6):
        if n == 6:
            with pytest.raises(hlo_disc.ShapeError, match="n <= 5"):
                f(*arrays(n))
    with pytest.raises(hlo_disc.ShapeError, match="disagree|is"):
        f(arrays(4)[0], arrays(5)[0])
    assert_same(f(*arrays(4)), hlo_disc.jit(four)(*arrays(4)))
    assert made.programs == 1


def test_so_many_programs_and_no_more(made):
    f = hlo_disc.jit(four, dims={"x": "(n)", "y": "(n)"})
    for n in range(2, 14):
        for _ in range(2 * OFTEN):
            assert_same(f(*arrays(n)), hlo_disc.jit(four)(*arrays(n)))
    assert made.programs == 8


def test_arguments_that_are_no_arrays(made):
    f = hlo_disc.jit(four)
    x, y = arrays()
    for _ in range(2 * OFTEN):
        f(x, y)
    calls = made.calls
    assert isinstance(f(np.asarray(x), np.asarray(y))[0], np.ndarray)
    assert_same(f(x, np.asarray(y)), f(x, y))
    assert made.calls == calls + 1


def test_random_keys(made):
    def fn(key, x):
        new, use = jax.random.split(key)
        return new, jax.random.normal(use, (3,)), x + 1, x * 2

    f = hlo_disc.jit(fn)
    key = want = jax.random.key(0)
    for _ in range(2 * OFTEN):
        key, *rest = f(key, jnp.ones(2))
        want, *others = jax.jit(fn)(want, jnp.ones(2))
        assert jax.random.key_data(key).tolist() == jax.random.key_data(want).tolist()
        np.testing.assert_array_almost_equal(rest[0], others[0])
    assert made.calls == OFTEN


def test_donated_arrays(made):
    f = hlo_disc.jit(four, donate_argnums=0)
    for seed in range(2 * OFTEN):
        x, y = arrays(seed=seed)
        want = hlo_disc.jit(four)(x, y)
        assert_same(f(x, y), want)
        assert x.is_deleted() and not y.is_deleted()
        with pytest.raises(RuntimeError, match="deleted"):
            f(x, y)
    assert made.calls == OFTEN and f.stats().calls == 2 * OFTEN
    x, y = arrays()
    with pytest.raises(hlo_disc.ArgumentError, match="passed a second time"):
        f(x, x)


def test_a_deleted_array_is_told_as_before(made):
    f = hlo_disc.jit(four)
    texts = set()
    for _ in range(2 * OFTEN):
        x, y = arrays()
        f(x, y)
        y.delete()
        with pytest.raises(RuntimeError) as raised:
            f(x, y)
        texts.add((type(raised.value), str(raised.value)))
    assert len(texts) == 1 and made.calls > 1


def test_committed_arrays(made):
    f = hlo_disc.jit(four)
    device = jax.devices()[0]
    free, bound = arrays(), jax.device_put(arrays(), device)
    for args in (free, bound, (bound[0], free[1]), (free[0], bound[1])) * (2 * OFTEN):
        assert_same(f(*args), hlo_disc.jit(four)(*args))
    assert made.programs == 2 and made.calls >= 2 * OFTEN


def test_arrays_of_which_some_are_committed(made):
    free, bound = arrays(), jax.device_put(arrays(), jax.devices()[0])
    for args in ((bound[0], free[1]), (free[0], bound[1])):
        f = hlo_disc.jit(four)
        for _ in range(2 * OFTEN):
            assert_same(f(*args), hlo_disc.jit(four)(*args))
    assert made.programs == 0


def test_static_arguments(made):
    f = hlo_disc.jit(lambda x, k: (x * k, x + k, x, -x), static_argnums=1)
    x = arrays()[0]
    for k in (1, 2, 3) * (2 * OFTEN):
        assert_same(f(x, k), hlo_disc.jit(f.__wrapped__, static_argnums=1)(x, k))
    assert made.programs == 3


def test_settings_of_jax(made):
    f = hlo_disc.jit(lambda x: (x + 1, jnp.log(x), x, -x))
    x = jnp.asarray([-1.0, 1.0])
    for _ in range(2 * OFTEN):
        f(x)
    calls = made.calls
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        f(x)
    with jax.disable_jit():
        f(x)
    assert made.calls == calls
    with jax.transfer_guard("disallow"):
        f(x)
    assert made.calls == calls + 1
    jax.clear_caches()
    assert_same(f(x), hlo_disc.jit(f.__wrapped__)(x))
    f.clear_cache()
    f(x)
    assert f.stats().compilations >= 2 and made.programs == 1


def test_a_call_while_jax_traces(made):
    f = hlo_disc.jit(four)
    x, y = arrays()
    for calls in range(2 * OFTEN):

        @jax.jit
        def outer(z, calls=calls):
            return z + f(x, y)[0] + calls

        np.testing.assert_allclose(outer(y), np.asarray(y) + 2 * np.asarray(x) + calls, rtol=1e-6)
    for _ in range(2 * OFTEN):
        f(x, y)
    gradient = jax.grad(lambda z: f(z, y)[1].sum())(x)
    assert gradient.tolist() == [1.0] * 5


def test_threads(made):
    f = hlo_disc.jit(four, dims={"x": "(n)", "y": "(n)"})

    def work(seed: int) -> None:
        for k in range(50):
            args = arrays(5 + k % 2, seed)
            got = f(*args)
            assert np.asarray(got[0]).tolist() == (2 * np.asarray(args[0])).tolist()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
        before = made.calls
        list(pool.map(work, range(8)))
    assert f.stats().calls == 800 and made.programs >= 2 and made.calls == before + 400


def in_a_circle() -> Any:
    circle: list[Any] = []
    circle.append(hlo_disc.jit(lambda x: (x + 1, x * 2, x - 1, x * len(circle))))
    return circle[0]


def test_memory_is_freed_with_the_function(made):
    f, x = in_a_circle(), jnp.ones(1)
    for _ in range(2 * OFTEN):
        f(x)
    programs = [weakref.ref(e.native) for e in _executables(f)]
    assert made.calls and all(p() for p in programs)
    del f
    gc.collect()
    assert not any(p() for p in programs)


def _executables(f: Any) -> list[Any]:
    return [e for p in f._by_settings.values() for flat in p.functions.values() for e in flat.executables()]


def test_a_function_may_go_while_xla_computes(made):
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 40, lambda _, y: jnp.sort(jnp.sin(y * 1e3)), x)[:50])
    f = hlo_disc.jit(lambda x: (x + 1, x * 2, x - 1, x.sum()))
    start = jnp.ones(200_000)
    ready = slow(start)
    for _ in range(2 * OFTEN):
        f(ready)
    (program,) = (weakref.ref(e.native) for e in _executables(f))
    x = slow(start)
    results = f(x)
    del f
    gc.collect()
    assert_same(results, hlo_disc.jit(lambda x: (x + 1, x * 2, x - 1, x.sum()))(x))
    assert made.calls == OFTEN + 1
    del results
    end = time.monotonic() + 60
    while program() is not None and time.monotonic() < end:  # XLA lets go of it on a thread of its own
        gc.collect()
        time.sleep(0.01)
    assert program() is None


def test_pickling(made):
    f = hlo_disc.jit(four)
    for _ in range(2 * OFTEN):
        f(*arrays())
    again = pickle.loads(pickle.dumps(f))
    assert_same(again(*arrays()), f(*arrays()))
    for e in _executables(f):
        assert_same(pickle.loads(pickle.dumps(e))(*arrays())[0], f(*arrays())[0])


def few(x, y):
    return x + 1, x * y, y


def with_many_arguments(x, y):
    return x[0] + y[0], x[1], x[2], sum(x)


def with_large_results(x, y):
    return tuple(jnp.broadcast_to(x, (100_000, 5)) + k for k in range(4))


def with_large_intermediates(x, y):
    z = jnp.broadcast_to(x, (8_000_000, 5)).cumsum(0)
    return z[-1], x, y, z[0]


def with_packed_weight(x, w):
    return x @ w, x + 1, x - 1, x * 2


def with_library_call(x, y):
    return jnp.linalg.cholesky(jnp.eye(3) + x[0]), x, y, x + y


def with_callback(x, y):
    kind = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(lambda x: np.asarray(x) + 1, kind, x), x, y, x + y


def with_four_bits(x, y):
    return x.astype(jnp.int4), x, y, x + y


@pytest.mark.parametrize(
    "fn",
    [few, with_many_arguments, with_large_results, with_large_intermediates, with_packed_weight]
    + [with_library_call, with_callback, with_four_bits],
)
def test_what_stays_direct(made, fn):
    args: Any = arrays()
    if fn is with_many_arguments:
        args = [arrays()[0]] * 20, arrays()
    if fn is with_packed_weight:
        args = jnp.ones((64, 256)), jnp.ones((256, 256))
    f = hlo_disc.jit(fn)
    for _ in range(2 * OFTEN):
        f(*args)
    assert f.stats().calls == 2 * OFTEN and not f.stats().fallbacks
    assert made.programs == 0


def test_calls_are_counted_when_all_kernels_are_there(made, monkeypatch):
    """Calls are counted once all kernels are there. Which bytes are packed is not known before."""
    monkeypatch.delenv("HLO_DISC_DEFER_KERNELS")
    waiting: list[deferred.Deferred] = []
    monkeypatch.setattr(deferred.background, "add", waiting.append)
    f = hlo_disc.jit(lambda x: (x.sum(0), x + 1, x * 2, -x), dims={"x": "n, m"})
    x = jnp.ones((8, 5))
    for _ in range(3 * OFTEN):
        f(x)
    assert f.stats().deferred_kernels and made.programs == 0
    (kernels,) = {*waiting}
    while kernels.advance():
        pass
    for _ in range(2 * OFTEN):
        f(x)
    assert made.programs == 1


def test_programs_of_a_gpu_stay_direct(made, emulated_targets):
    exe = hlo_disc.compile(lambda x: (x + 1, x * 2, x, -x), "f32[n]", target="emulated-cuda")
    assert module().repeated(exe, [False] * 4) is exe.native


def test_what_may_fail_stays_direct(made):
    """A program that may fail stays direct: the slice fits or not, and the data says whether that matters."""
    exe = hlo_disc.compile(
        """
        func.func @main(%x: tensor<?xf32>, %n: tensor<i32>)
            -> (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) {
          %zero = stablehlo.constant dense<0> : tensor<i32>
          %one = stablehlo.constant dense<1> : tensor<i32>
          %r:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<?xf32> cond {
            %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
            stablehlo.return %p : tensor<i1>
          } do {
            %s = stablehlo.dynamic_slice %c, %i, sizes = [3] : (tensor<?xf32>, tensor<i32>) -> tensor<3xf32>
            %d = stablehlo.dynamic_update_slice %c, %s, %zero
              : (tensor<?xf32>, tensor<3xf32>, tensor<i32>) -> tensor<?xf32>
            %j = stablehlo.add %i, %one : tensor<i32>
            stablehlo.return %j, %d : tensor<i32>, tensor<?xf32>
          }
          %y = stablehlo.negate %x : tensor<?xf32>
          return %r#1, %y, %r#1, %y : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
        }"""
    )
    run = module().repeated(exe, [False] * 4)
    for n, programs in ((2, 0), (5, 1)):
        for _ in range(2 * OFTEN):
            assert run(jnp.arange(float(n)), jnp.int32(0))[2].tolist() == list(range(n))
        assert made.programs == programs
    with pytest.raises(hlo_disc.ShapeError, match="the size 3 .* larger than the operand's 2"):
        run(jnp.zeros(2), jnp.int32(1))
    assert run(jnp.arange(5.0), jnp.int32(3))[0].tolist() == [3, 3, 4, 3, 4]


def test_on_another_device(tmp_path: Path) -> None:
    """Calls run on two devices. The process ends while programs are there, and a second one finds them compiled."""
    text = """
        import importlib, jax, jax.numpy as jnp, hlo_disc
        jax.config.update("jax_num_cpu_devices", 2)
        module = importlib.import_module("hlo_disc.jitted.repeated")
        module._OFTEN, module._MADE = 3, 0
        f = hlo_disc.jit(lambda x: (x + 1, x * 2, -x, x.sum()))
        devices = jax.devices()
        for k in range(20):
            for device in (*devices, None):
                x = jnp.arange(3.0) + k
                y = x if device is None else jax.device_put(x, device)
                for r in f(y):
                    assert r.devices() == {device or devices[0]} and r.committed == (device is not None), r
                assert f(y)[1].tolist() == [2 * k, 2 * k + 2, 2 * k + 4]
        assert f.stats().calls == 120 and not f.stats().fallbacks
        with jax.default_device(devices[1]):
            elsewhere = jnp.arange(3.0)
        assert [r.devices() for r in f(elsewhere)] == [{devices[0]}] * 4
        g = hlo_disc.jit(lambda x, y: (x + y, x * 2, -y, x.sum()))
        for k in range(10):
            for args in ((x, x), (x, jax.device_put(x, devices[1])), (jax.device_put(x, devices[1]), x)):
                want = {devices[0] if args[0] is x else devices[1]}
                assert all(r.devices() == want and r.committed == (args[0] is not x) for r in g(*args))
        print("right")
    """
    cached = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    for _ in range(2):
        assert child.python("-c", textwrap.dedent(text), env={**os.environ, **cached}) == "right\n"
    assert any(path.name.startswith("jit_hlo_disc_held") for path in tmp_path.iterdir())
