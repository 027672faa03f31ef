"""The thread pool: every block runs once, concurrent callers, forked children, a pool that has ended."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cases import ral_programs as programs
from forked import holds_in_child

from hlo_disc.errors import ShapeError
from hlo_disc.ral import pool_threads, stop_pool

pytestmark = pytest.mark.usefixtures("no_leak")


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_every_block_runs_once(threads: int) -> None:
    exe = programs.add_one(scratch=64, threads=threads)
    for size in (2, 3, 7, 8, 9, 64, 1000, 20011):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(exe(x)[0], x + 1)
    assert pool_threads() >= threads - 1


def test_many_launches_in_one_call() -> None:
    exe = programs.add_one(scratch=64, threads=2, launches=500)
    x = np.arange(100, dtype=np.float32)
    for _ in range(20):
        np.testing.assert_array_equal(exe(x)[0], x + 1)


def test_concurrent_callers_of_one_executable() -> None:
    exe = programs.add_one(scratch=64, threads=3)

    def calls(seed: int) -> int:
        random = np.random.default_rng(seed)
        for i in range(400):
            size = 13 if i % 50 == 49 else int(random.integers(0, 300))
            x = np.full(size, i, np.float32)
            if size == 13:
                with pytest.raises(ShapeError):
                    exe(x)
            else:
                (y,) = exe(x)
                assert y.shape == (size,) and (y == i + 1).all()
        return 400

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(calls, range(8))) == 3200


def test_other_threads_run_while_one_computes() -> None:
    exe = programs.add_one(scratch=64, threads=1, launches=3000)
    x = np.ones(10000, np.float32)
    started, done = threading.Event(), threading.Event()

    def compute() -> None:
        started.set()
        exe(x)
        done.set()

    thread = threading.Thread(target=compute)
    thread.start()
    started.wait()
    turns = 0
    while not done.is_set():
        turns += 1
    thread.join()
    assert turns > 10  # with the interpreter lock held while computing, the loop would not turn


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_child_has_a_pool_of_its_own() -> None:
    exe = programs.add_one(scratch=64, threads=4)
    x = np.arange(5000, dtype=np.float32)
    exe(x)
    assert holds_in_child(lambda: all((exe(x)[0] == x + 1).all() for _ in range(20)) and pool_threads() == 3)
    np.testing.assert_array_equal(exe(x)[0], x + 1)


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_pool_that_has_ended_starts_no_threads() -> None:
    exe = programs.add_one(scratch=64, threads=3)
    x = np.arange(5000, dtype=np.float32)

    def check() -> bool:
        before = (exe(x)[0] == x + 1).all() and pool_threads() == 2
        stop_pool()
        return before and (exe(x)[0] == x + 1).all() and pool_threads() == 0

    assert holds_in_child(check)


@pytest.mark.skipif(sys.flags.dev_mode, reason="dev mode changes the output")
def test_calls_work_after_the_pool_has_ended_and_the_interpreter_exits_cleanly(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--native"):
        pytest.skip("the child would load the installed native module")
    code = """
import numpy as np, hlo_disc.ral as ral
from cases import ral_programs
exe = ral_programs.add_one(scratch=64, threads=3)
x = np.arange(1000, dtype=np.float32)
exe(x)
assert ral.pool_threads() == 2
ral.stop_pool()
ral.stop_pool()
assert ral.pool_threads() == 0
assert (exe(x)[0] == x + 1).all()
print("fine")
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=300)
    assert (child.returncode, child.stdout, child.stderr) == (0, "fine\n", "")


def test_library_calls_at_once() -> None:
    """Plans of transforms are shared and dropped while others use them."""
    exe = programs.fft(threads=2)
    lengths = [5, 64, 131, 600, 1009, 5000, *range(7, 50)]
    arrays = [
        np.random.default_rng(n).standard_normal((n, 2)).astype(np.float32).view(np.complex64)[:, 0] for n in lengths
    ]

    def run(k: int) -> None:
        for x in arrays[k:] + arrays[:k]:
            (y,) = exe(x)
            np.testing.assert_allclose(y, np.fft.fft(x), atol=1e-5 * np.abs(y).max())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))
