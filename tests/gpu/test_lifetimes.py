"""Memory and streams of frameworks: what a call reads is there until it has been read."""

from __future__ import annotations

import gc
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc
from hlo_disc import ral

torch = pytest.importorskip("torch")
N = 1 << 22
LONG = 200_000_000  # clock cycles: a tenth of a second


def compiled():
    return hlo_disc.compile(lambda x, y: x * 2 + y, "f32[n]", "f32[n]", target="cuda")


@pytest.mark.parametrize("pinned", [True, False])
def test_a_host_argument_may_change_after_the_call(pinned):
    f = compiled()
    x = torch.ones(N, device="cuda")
    y = torch.ones(N, pin_memory=pinned)
    f(x, y.numpy())
    torch.cuda.synchronize()
    for given in (lambda: y.numpy(), lambda: y):
        for _ in range(3):
            y.fill_(1)
            torch.cuda._sleep(LONG)
            result = torch.from_dlpack(f(x, given()))
            y.fill_(7)
            assert bool((result == 3).all())


def test_an_argument_of_another_stream():
    f = compiled()
    a, b = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(b):
        y = torch.ones(N, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(a):
        x = torch.ones(N, device="cuda")
        torch.cuda._sleep(LONG)
        result = f(x, y)
    with torch.cuda.stream(b):  # its owner takes the memory back, and fills what it gets
        del y
        torch.full((N,), 9.0, device="cuda")
        b.synchronize()
    torch.cuda.synchronize()
    assert bool((torch.from_dlpack(result) == 3).all())


def test_cupy_and_torch():
    cupy = pytest.importorskip("cupy")
    f = compiled()
    for k in range(20):
        x = torch.full((N,), float(k), device="cuda")
        torch.cuda._sleep(LONG // 10)
        with cupy.cuda.Stream(non_blocking=True) as own:
            y = cupy.full((N,), 1.0, cupy.float32)
            y += k
            result = f(x, y)
            again = f(y, x)
            del y
            cupy.full((N,), 99.0, cupy.float32)
        own.synchronize()
        assert bool((torch.from_dlpack(result) == 3 * k + 1).all())
        assert bool((torch.from_dlpack(again) == 3 * k + 2).all())


def test_a_result_outlives_the_stream_of_its_call():
    cupy = pytest.importorskip("cupy")
    f = compiled()
    with cupy.cuda.Stream(non_blocking=True):
        x = cupy.ones(N, cupy.float32)
        result = f(x, x)
    del x
    gc.collect()
    assert bool((torch.from_dlpack(result) == 3).all())
    del result
    ral.device_blocks()  # what can go, goes


def test_jax_reads_a_result_that_was_let_go():
    f = hlo_disc.jit(lambda x: x * 2 + 1, dims={"x": "(n)"})
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda i, s: jnp.sin(s) + x, x))
    x = jnp.ones(N)
    right = np.asarray(slow(x * 2 + 1))
    other = jnp.full(N, 5.0)
    wrong = 0
    for _ in range(30):
        y = f(x)
        z = slow(y)
        del y
        z2 = f(other)
        wrong += not np.array_equal(np.asarray(z), right)
        del z2
    assert wrong == 0


def test_threads():
    f = compiled()
    failures = []

    def run(k: int) -> None:
        try:
            for i in range(50):
                x = torch.full((10_000 + 37 * i,), float(k), device="cuda")
                if not bool((torch.from_dlpack(f(x, x)) == 3 * k).all()):
                    failures.append((k, i))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_host_arrays_alone():
    f = compiled()
    for n in (0, 1, 1000, N):
        x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
        np.testing.assert_allclose(np.asarray(f(x, x)), x * 2 + x, rtol=1e-6)
