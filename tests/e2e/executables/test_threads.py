"""Many threads on one executable: right results, no memory left behind, no waiting, failures that stay local."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import soak

import hlo_disc
from hlo_disc import ral

THREADS = 8
CALLS = 10_000
SHAPES = ((1, 1), (3, 17), (0, 5), (33, 64), (7, 129), (2, 300), (64, 31), (5, 1), (128, 65))


def network(x, w, b):
    hidden = jax.nn.gelu(x @ w + b, approximate=False)
    return jax.nn.softmax(hidden, axis=-1), (hidden - hidden.mean(-1, keepdims=True)).sum(0)


def build(fn, *specs: str) -> hlo_disc.Executable:
    """The executable of a function whose arguments have these f32 shapes, every dim with a name."""
    names = fn.__code__.co_varnames[: len(specs)]
    jitted = hlo_disc.jit(fn, dims=dict(zip(names, specs, strict=True)))
    return jitted.lower(*(jax.ShapeDtypeStruct((2,) * (spec.count(",") + 1), np.float32) for spec in specs)).compile()


@pytest.fixture(scope="module")
def executable() -> hlo_disc.Executable:
    return build(network, "(n, k)", "(k, m)", "(m)")


def arguments(n: int, m: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1000 * n + m)
    k = m + 2
    return [rng.normal(size=shape).astype(np.float32) for shape in ((n, k), (k, m), (m,))]


def test_ten_thousand_calls_from_eight_threads(executable) -> None:
    work = [(args, [np.array(r) for r in jax.jit(network)(*args)]) for args in (arguments(*shape) for shape in SHAPES)]
    for args, want in work:
        for got, right in zip(executable(*args), want, strict=True):
            np.testing.assert_allclose(got, right, rtol=2e-4, atol=2e-4)
    alone = [[np.array(r) for r in executable(*args)] for args, _ in work]
    gc.collect()
    live = ral.live_bytes()
    start = threading.Barrier(THREADS)

    def loop(thread: int) -> list[int]:
        wrong = []
        start.wait()
        for call in range(CALLS // THREADS):
            i = (call * (thread + 1) + thread) % len(work)
            results = executable(*work[i][0])
            if not all(np.allclose(got, want, 1e-5, 1e-5) for got, want in zip(results, alone[i], strict=True)):
                wrong.append(i)
        return wrong

    with ThreadPoolExecutor(THREADS) as pool:
        assert [wrong for wrong in pool.map(loop, range(THREADS)) if wrong] == []
    gc.collect()
    assert ral.live_bytes() <= live


def test_one_jitted_function_called_first_by_many_threads_compiles_once() -> None:
    jitted = hlo_disc.jit(network, dims={"x": "(n, k)", "w": "(k, m)", "b": "(m)"})
    start = threading.Barrier(THREADS)

    def call(thread: int) -> bool:
        args = arguments(thread, 2 * thread + 1)
        start.wait()
        got, want = jitted(*args), jax.jit(network)(*args)
        return all(np.allclose(g, w, 2e-4, 2e-4) for g, w in zip(got, want, strict=True))

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(call, range(THREADS)))
    assert jitted.stats().compilations == 1


def test_a_short_call_does_not_wait_for_a_long_one() -> None:
    product = build(lambda x, y: jnp.tanh(x @ y), "(n, k)", "(k, m)")
    large = np.ones((1024, 1024), np.float32)
    small = np.ones((2, 3), np.float32)
    number = 0  # odd while a long call is running
    overtaken = threading.Event()

    def long_calls() -> None:
        nonlocal number
        for _ in range(100):
            number += 1
            product(large, large)
            number += 1
            if overtaken.is_set():
                return

    thread = threading.Thread(target=long_calls)
    thread.start()
    while thread.is_alive() and not overtaken.is_set():
        before = number
        product(small, small.T)
        if before % 2 and number == before:
            overtaken.set()
    thread.join()
    assert overtaken.is_set(), "no short call began and ended while a long one was running"


def test_failed_allocations_are_errors_and_leak_nothing(executable) -> None:
    args = arguments(33, 64)
    want = [np.array(r) for r in executable(*args)]

    def right() -> bool:
        return all(map(np.array_equal, executable(*args), want))

    gc.collect()
    live = ral.live_bytes()
    failures = 0
    for nth in range(1, 50):
        ral.fail_next_allocation(nth)
        try:
            executable(*args)
        except hlo_disc.OutOfMemoryError as error:
            failures += 1
            assert "bytes" in str(error)
        else:
            break
        finally:
            ral.fail_next_allocation(0)
        assert ral.live_bytes() <= live
        assert right()
    assert failures, "no allocation was made to fail"
    gc.collect()
    assert ral.live_bytes() <= live


def test_a_failed_allocation_stays_with_its_thread(executable) -> None:
    args = arguments(7, 129)
    want = [np.array(r) for r in executable(*args)]
    gc.collect()
    live = ral.live_bytes()
    counts = {"failed": 0, "wrong": 0}
    lock = threading.Lock()

    def loop(thread: int) -> None:
        for call in range(200):
            if thread == 0 and call % 10 == 0:
                ral.fail_next_allocation(2)
            try:
                right = all(map(np.array_equal, executable(*args), want))
            except hlo_disc.OutOfMemoryError:
                with lock:
                    counts["failed"] += 1
            else:
                with lock:
                    counts["wrong"] += not right

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(loop, range(THREADS)))
    ral.fail_next_allocation(0)
    assert counts["wrong"] == 0
    assert 0 < counts["failed"] <= 20
    gc.collect()
    assert ral.live_bytes() <= live


def test_no_call_is_lost_in_the_count() -> None:
    """Sizes change meanwhile, so that programs are replaced while other threads still run in them."""
    jitted = hlo_disc.jit(lambda x, y: x.sum() + y.sum())
    start = threading.Barrier(THREADS)

    def loop(thread: int) -> None:
        start.wait()
        for call in range(250):
            # The second size changes, then both, then they differ.
            n = 3 + min(call // 50, 2) * (call % 2)
            jitted(np.ones(n, np.float32), np.ones(n + (call > 150) * thread, np.float32))

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(loop, range(THREADS)))
    assert jitted.stats().calls == THREADS * 250
    assert jitted.stats().compilations == 3


def test_threads_that_ask_about_sizes_get_the_programs_for_their_own() -> None:
    before = soak.jax_answers()
    found = soak.soak(2000, THREADS)
    assert not found.wrong and found.kept <= 0
    assert len(soak.FUNCTIONS) < found.programs <= 5 * len(soak.FUNCTIONS)
    assert soak.jax_answers() == before
