"""Kernels that a program lacks when it is called first: made when they are launched, or before by a thread."""

import gc
import logging
import subprocess
import sys
import threading
import time

import depth
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc
from hlo_disc import ral
from hlo_disc.compiled import deferred
from hlo_disc.errors import CompileError
from hlo_disc.unmade import UnmadeFunctions

pytestmark = pytest.mark.usefixtures("all_kernels_built")  # kernels that are found are not deferred


@pytest.fixture
def on_demand(monkeypatch):
    """Let no thread make what is deferred."""
    monkeypatch.setattr(deferred.background, "add", lambda kernels: kernels.packs_inputs.open())


def draw(*shape):
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


def columns(options=None, **overrides):
    """Return a jitted function of four kernels: for few or many columns, for few or many rows."""
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
    assert counts(whole) == (0, 0)


def run(text, *arguments, timeout=120):
    return subprocess.run([sys.executable, "-c", text, *arguments], capture_output=True, text=True, timeout=timeout)


def test_a_thread_makes_the_others():
    f = columns()
    x = draw(8, 5)
    f(x)
    wait_for(f)
    assert counts(f) == (0, 3)
    for shape in ((513, 5), (512, 17), (513, 17)):
        y = draw(*shape)
        np.testing.assert_array_equal(f(y), columns(defer_kernels=False)(y))
    assert counts(f) == (0, 3)


def test_what_is_saved_and_shown_is_whole(on_demand, tmp_path):
    f = columns()
    f(draw(8, 5))
    (flat,) = next(iter(f._by_settings.values())).functions.values()
    (executable,) = flat.executables()
    assert counts(f) == (3, 0)
    executable.save(tmp_path / "it")
    assert counts(f) == (0, 3)
    x = draw(513, 17)
    np.testing.assert_array_equal(hlo_disc.load(tmp_path / "it")(x), f(x))
    assert "ral_launch_deferred" in executable.linked.object.decode("latin1")
    assert "ral_launch_deferred" not in executable.program.object.decode("latin1")
    assert [row.launches for row in executable.profile(x, seconds=0.01).kernels]


def test_programs_in_jax_jit_are_whole(on_demand):
    f = columns()
    x = draw(513, 17)
    np.testing.assert_array_equal(jax.jit(f)(x), columns(defer_kernels=False)(x))
    assert counts(f) == (0, 0)
    f = columns()
    f(draw(8, 5))
    np.testing.assert_array_equal(jax.jit(f)(x), columns(defer_kernels=False)(x))
    assert counts(f) == (0, 3)


def test_the_cache_gets_the_program_when_it_is_whole(tmp_path, on_demand):
    f = columns(cache=str(tmp_path))
    f(draw(8, 5))
    assert not list(tmp_path.glob("*.disc"))
    (flat,) = next(iter(f._by_settings.values())).functions.values()
    (executable,) = flat.executables()
    assert executable.program.object
    again = columns(cache=str(tmp_path))
    x = draw(513, 17)
    np.testing.assert_array_equal(again(x), f(x))
    assert "codegen" not in again.stats().records[0].stages_ms
    assert counts(again) == (0, 0)


def test_a_kernel_that_many_threads_want_is_made_once(on_demand, monkeypatch):
    f, made, results = columns(), [], []
    f(draw(8, 5))
    make = UnmadeFunctions.make

    def slowly(self, name, known):
        made.append(name)
        time.sleep(0.1)
        return make(self, name, known)

    monkeypatch.setattr(UnmadeFunctions, "make", slowly)
    x = draw(513, 17)
    threads = [threading.Thread(target=lambda: results.append(f(x))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and len(results) == 8
    for result in results:
        np.testing.assert_array_equal(result, columns(defer_kernels=False)(x))


def test_a_call_that_needs_a_kernel_does_not_wait_for_others(monkeypatch):
    f, make, go = columns(), UnmadeFunctions.make, threading.Event()

    def held(self, name, known):
        if threading.current_thread().name == "hlo_disc-deferred":
            go.wait(60)
        return make(self, name, known)

    monkeypatch.setattr(UnmadeFunctions, "make", held)
    f(draw(8, 5))  # the thread has the first kernel
    time.sleep(0.1)
    x = draw(512, 17)  # this takes the last one
    np.testing.assert_array_equal(f(x), columns(defer_kernels=False)(x))
    assert counts(f) == (2, 1)
    go.set()
    wait_for(f)


def test_a_kernel_that_cannot_be_made_is_an_error_of_the_call(on_demand, monkeypatch):
    f = columns()
    f(draw(8, 5))

    def fails(self, name, known):
        raise CompileError(f"no {name}")

    before = ral.live_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(UnmadeFunctions, "make", fails)
        for _ in range(2):
            with pytest.raises(CompileError, match="no k0_reduce_across_narrow_sliced"):
                f(draw(513, 5))
        assert ral.live_bytes() <= before
        f(draw(9, 6))  # others run
    assert counts(f) == (3, 0)
    x = draw(513, 5)
    np.testing.assert_array_equal(f(x), columns(defer_kernels=False)(x))
    assert counts(f) == (2, 1)


def test_a_kernel_in_a_loop_that_cannot_be_made_ends_the_loop(on_demand, monkeypatch):
    def loop(x, n):
        return jax.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + (c[1] * 0.5).sum(0)), (0, x))[1]

    f = hlo_disc.jit(loop, dims={"x": "n, m"}, cache="")
    x, y = draw(8, 5), draw(513, 17)
    whole = hlo_disc.jit(loop, dims={"x": "n, m"}, cache="", defer_kernels=False)
    np.testing.assert_array_equal(f(x, 3), whole(x, 3))
    assert counts(f)[0]
    with monkeypatch.context() as patch:
        patch.setattr(UnmadeFunctions, "make", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            f(y, 1 << 30)
    np.testing.assert_array_equal(f(y, 3), whole(y, 3))


def test_the_thread_goes_on_after_a_kernel_that_cannot_be_made(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "hlo_disc")
    f, make = columns(), UnmadeFunctions.make

    def some(self, name, known):
        if name.startswith("k0"):
            raise CompileError("planted")
        return make(self, name, known)

    monkeypatch.setattr(UnmadeFunctions, "make", some)
    f(draw(8, 5))
    end = time.monotonic() + 60
    while counts(f) != (1, 2):
        assert time.monotonic() < end
        time.sleep(0.01)
    with pytest.raises(CompileError, match="planted"):
        f(draw(513, 5))
    assert "could not be made" in caplog.text


def test_an_interrupt_in_a_call_leaves_the_kernel_to_the_next_one(on_demand, monkeypatch):
    f = columns()
    f(draw(8, 5))
    x = draw(513, 5)
    with monkeypatch.context() as patch:

        def interrupted(*_):
            raise KeyboardInterrupt

        patch.setattr(UnmadeFunctions, "make", interrupted)
        with pytest.raises(KeyboardInterrupt):
            f(x)
    np.testing.assert_array_equal(f(x), columns(defer_kernels=False)(x))


def test_a_function_that_goes_takes_its_kernels_with_it(monkeypatch):
    make, go, begun = UnmadeFunctions.make, threading.Event(), threading.Event()
    made = []

    def held(self, name, known):
        made.append(name)
        begun.set()
        go.wait(60)
        return make(self, name, known)

    monkeypatch.setattr(UnmadeFunctions, "make", held)
    f = columns()
    f(draw(8, 5))
    assert begun.wait(60)
    del f
    gc.collect()
    go.set()
    end = time.monotonic() + 60
    while deferred.background._thread is not None:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert len(made) == 1


PROGRAM = """
import sys, numpy as np, hlo_disc, os
f = hlo_disc.jit(lambda x: x.sum(0), dims={"x": "n, m"}, cache="")
g = hlo_disc.jit(lambda x: (x @ x.T).sum(0), dims={"x": "n, m"}, cache="")
print(f(np.ones((8, 5), np.float32))[0], g(np.ones((8, 5), np.float32))[0])
"""


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "1 / 0", "os._exit(3)"])
def test_a_process_may_end_right_after_its_first_call(end):
    for _ in range(depth.examples(1, 10)):
        done = run(PROGRAM + end)
        assert done.stdout == "8.0 40.0\n"
        assert done.returncode == {"": 0, "1 / 0": 1}.get(end, 3), done.stderr
        assert "Error" not in done.stderr.replace("ZeroDivisionError", "") and "Fatal" not in done.stderr


def test_a_process_may_end_while_its_threads_make_kernels():
    text = """
import threading
def net(ws, x):
    for w in ws:
        x = np.tanh(1) * (x @ w)
        x = x / (1 + x.sum(0) ** 2)
    return x
h = hlo_disc.jit(net, cache="", dims={"ws": None, "x": "n, _"})
ws = [np.ones((24 + i, 25 + i), np.float32) for i in range(12)]
h(ws, np.ones((8, 24), np.float32))
for _ in range(3):
    threading.Thread(target=h, args=(ws, np.ones((2000, 24), np.float32)), daemon=True).start()
"""
    for _ in range(depth.examples(2, 5)):
        done = run(PROGRAM + text)
        assert done.returncode == 0, done.stderr


def test_a_forked_child_makes_what_it_needs():
    text = """
for _ in range(5):
    f = hlo_disc.jit(lambda x: x.sum(0), dims={"x": "n, m"}, cache="")
    f(np.ones((8, 5), np.float32))
    child = os.fork()
    if child == 0:
        f(np.ones((513, 5), np.float32))
        f(np.ones((512, 17), np.float32))
        h = hlo_disc.jit(lambda x: x.sum(0) * 2, dims={"x": "n, m"}, cache="")
        h(np.ones((8, 5), np.float32))
        os._exit(7 if f(np.ones((513, 17), np.float32))[3] == 513 and f.stats().deferred_kernels == 0 else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = run(PROGRAM + text)
    assert done.stdout.split() == ["8.0", "40.0", *["7"] * 5], done.stderr


CASES = [
    ("softmax", lambda x: jax.nn.softmax(x), [(8, 3)], [(300, 700)]),
    ("mlp", lambda x, a, b: jax.nn.gelu(x @ a) @ b, [(3, 16), (16, 32), (32, 8)], [(300, 64), (64, 200), (200, 1)]),
    ("sort", lambda x: jnp.sort(x, axis=0), [(8, 3)], [(1000, 30)]),
    ("scan", lambda x: jax.lax.scan(lambda c, r: (c + r.sum(), c * r), jnp.float32(0), x), [(8, 3)], [(70, 5000)]),
    ("norm", lambda x: (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1), [(8, 3)], [(3000, 40)]),
    ("long sum", lambda x: x.sum(), [(8, 3)], [(3000, 40)]),
]


@pytest.mark.parametrize("function, first, second", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_results_are_the_same_bits(on_demand, function, first, second):
    f, whole = hlo_disc.jit(function, cache=""), hlo_disc.jit(function, cache="", defer_kernels=False)
    for shapes in (first, second, first, second):
        arrays = [jnp.asarray(draw(*shape)) for shape in shapes]
        for _ in range(3):  # then arguments are packed
            for a, b in zip(jax.tree.leaves(f(*arrays)), jax.tree.leaves(whole(*arrays)), strict=True):
                np.testing.assert_array_equal(a, b)


def test_a_convolution_has_the_same_bits(on_demand):
    def net(x, w):
        return jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")).mean((2, 3))

    f, whole = hlo_disc.jit(net, cache=""), hlo_disc.jit(net, cache="", defer_kernels=False)
    w = jnp.asarray(draw(16, 8, 3, 3))
    for shape in ((1, 8, 9, 9), (4, 8, 20, 11), (1, 8, 9, 9)):
        x = jnp.asarray(draw(*shape))
        for _ in range(3):
            np.testing.assert_array_equal(f(x, w), whole(x, w))
    assert sum(counts(f)) > 0


def test_inputs_are_packed_when_the_kernels_for_it_are_there(monkeypatch):
    """Inputs are packed once the kernels for it are there, so the second call with an array waits for nothing."""
    waiting: list[deferred.Deferred] = []
    monkeypatch.setattr(deferred.background, "add", waiting.append)
    f = hlo_disc.jit(lambda x, w: x @ w, dims={"x": "n, 32"}, cache="")
    x, w = draw(64, 32), jnp.asarray(draw(32, 200))
    results = [f(x, w)]
    flats = (flat for programs in f._by_settings.values() for flat in programs.functions.values())
    (program,) = (executable.native for flat in flats for executable in flat.executables())
    before = counts(f)
    results += [f(x, w) for _ in range(3)]
    assert counts(f) == before and before[0] > 0 and program.packed_bytes() == 0
    (kernels,) = {*waiting}
    while kernels.advance():
        pass
    results += [f(x, w) for _ in range(3)]
    assert counts(f) == (0, sum(before)) and program.packed_bytes() > 0
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_calls_that_make_all_kernels_complete_the_program(monkeypatch):
    waiting: list[deferred.Deferred] = []
    f = columns()
    monkeypatch.setattr(deferred.background, "add", lambda kernels: None)
    f(draw(8, 5))
    monkeypatch.setattr(deferred.background, "add", waiting.append)
    for shape in ((513, 5), (8, 17), (513, 17), (70_000, 3)):
        f(draw(*shape))
    if counts(f)[0]:
        pytest.skip("other sizes need other kernels")
    assert waiting and not waiting[0].is_whole
    while waiting[0].advance():
        pass
    assert waiting[0].is_whole


def test_nothing_is_packed_where_a_kernel_for_it_cannot_be_made(monkeypatch):
    """Inputs are not packed where a kernel for it cannot be made. The forms that are there work."""
    waiting: list[deferred.Deferred] = []
    monkeypatch.setattr(deferred.background, "add", waiting.append)
    f = hlo_disc.jit(lambda x, w: x @ w, dims={"x": "n, 32"}, cache="")
    x, w = draw(64, 32), jnp.asarray(draw(32, 200))
    first = f(x, w)
    make = UnmadeFunctions.make

    def fails(self, name, known):
        if "pack" in name:
            raise CompileError(f"no {name}")
        return make(self, name, known)

    monkeypatch.setattr(UnmadeFunctions, "make", fails)
    while waiting[0].advance():
        pass
    for _ in range(3):
        np.testing.assert_array_equal(f(x, w), first)


def test_a_kernel_may_be_asked_for_while_its_thread_makes_it(on_demand, monkeypatch):
    """A kernel may be asked for while its thread makes it, as by a handler of a signal."""
    f, x = columns(), draw(513, 17)
    f(draw(8, 5))
    make, inside = UnmadeFunctions.make, []

    def again(self, name, known):
        if not inside:
            inside.append(None)
            inside.append(f(x))
        return make(self, name, known)

    monkeypatch.setattr(UnmadeFunctions, "make", again)
    result = f(x)
    np.testing.assert_array_equal(result, columns(defer_kernels=False)(x))
    np.testing.assert_array_equal(inside[1], result)


# XLA computes when the interpreter goes, and waits for callbacks before.
AT_EXIT = """
import jax, jax.numpy as jnp, numpy as np, time
from jax.experimental import io_callback
import hlo_disc
from hlo_disc.compiled import deferred
f = hlo_disc.jit(lambda x: x.sum(0), dims={"x": "n, m"}, cache="")
slow = jax.jit(lambda x: jax.lax.fori_loop(0, 100, lambda i, x: jnp.tanh(x @ x), x))
z = jnp.ones((1000, 1000)) * 1e-3
compiled = slow.lower(z).compile()
"""
PROGRAM_OF_XLA = """
f(np.ones((8, 5), np.float32))
while f.stats().deferred_kernels:
    time.sleep(0.01)
inside = jax.jit(f).lower(z).compile()
y = inside(compiled(z))
"""
CALLBACK = """
deferred.background.add = lambda kernels: None
f(np.ones((8, 5), np.float32))
def call(x):
    f(np.ones((8, 5), np.float32))  # a callback has a program of its own
    print(f(np.ones((600, 20), np.float32))[0], flush=True)
@jax.jit
def calls(x):
    io_callback(call, None, x, ordered=True)
    return x + 1
y = calls(compiled(z))
"""


@pytest.mark.parametrize(("text", "printed"), [(PROGRAM_OF_XLA, ""), (CALLBACK, "600.0")], ids=["program", "callback"])
def test_what_runs_at_exit_does_not_wait_for_good(text, printed):
    done = run(AT_EXIT + text, timeout=300)
    assert (done.returncode, done.stdout.strip()) == (0, printed), done.stderr


def test_a_program_of_constants_packs_them_before_the_call(on_demand):
    w = draw(64, 200)
    f, whole = hlo_disc.jit(lambda x: x @ w, cache=""), hlo_disc.jit(lambda x: x @ w, cache="", defer_kernels=False)
    for rows in (3, 300, 1):
        x = draw(rows, 64)
        np.testing.assert_array_equal(f(x), whole(x))


def test_what_is_dumped_is_whole(tmp_path, on_demand):
    f = columns(dump=str(tmp_path))
    f(draw(8, 5))
    assert counts(f) == (0, 0)


def test_the_environment_turns_it_off(monkeypatch, on_demand):
    monkeypatch.setenv("HLO_DISC_DEFER_KERNELS", "0")
    f = columns()
    f(draw(8, 5))
    assert counts(f) == (0, 0)
