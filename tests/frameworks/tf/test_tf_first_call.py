"""The first eager call compiles the kernels that it takes; ops of TensorFlow's run whole programs."""

import subprocess
import sys
import threading
import time

import depth
import numpy as np
import pytest
import tensorflow as tf

import hlo_disc.tensorflow
from hlo_disc.compiled import deferred

pytestmark = pytest.mark.usefixtures("all_kernels_built")  # kernels that are found are not deferred


@pytest.fixture
def on_demand(monkeypatch):
    """No thread makes what is deferred."""
    monkeypatch.setattr(deferred.background, "add", lambda kernels: kernels.packs_inputs.open())


def draw(*shape):
    return tf.constant(np.random.default_rng(shape).normal(size=shape).astype(np.float32))


def sums(**options):
    """A function of four kernels: for few or many columns, for few or many rows."""
    return hlo_disc.tensorflow.jit(lambda x: tf.reduce_sum(x, 0), **{"cache": "", **options})


def counts(f):
    return f.stats().deferred_kernels, f.stats().later_kernels


def test_a_call_makes_the_kernels_that_it_launches(on_demand):
    f, whole = sums(), sums(defer_kernels=False)
    wanted = [((8, 5), 3, 0), ((513, 5), 2, 1), ((512, 5), 2, 1), ((512, 17), 1, 2), ((513, 17), 0, 3), ((9, 5), 0, 3)]
    for shape, *expected in wanted:
        x = draw(*shape)
        np.testing.assert_array_equal(f(x), whole(x))
        assert counts(f) == tuple(expected)
    assert f.stats().compilations == 1 and f.stats().later_seconds > 0
    assert counts(whole) == (0, 0)


def test_a_thread_makes_the_others():
    f = sums()
    f(draw(8, 5))
    end = time.monotonic() + 300
    while counts(f)[0]:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert counts(f) == (0, 3)


def test_variables_are_inputs_with_sizes(on_demand):
    w, open_ = tf.Variable(draw(5, 40)), tf.Variable(draw(5, 3), shape=tf.TensorShape([5, None]))
    f = hlo_disc.tensorflow.jit(lambda x: tf.reduce_sum(x @ w, 0), cache="")
    g = hlo_disc.tensorflow.jit(lambda x: tf.reduce_sum(x @ open_, 0), cache="")
    for rows in (8, 600):
        x = draw(rows, 5)
        np.testing.assert_allclose(f(x), tf.reduce_sum(x @ w, 0), rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(g(x), tf.reduce_sum(x @ open_, 0), rtol=1e-3, atol=1e-3)
    assert sum(counts(f)) > 0 and sum(counts(g)) == 0


def test_ops_run_whole_programs(on_demand):
    """A thread of TensorFlow's never waits for Python."""
    x = draw(513, 17)
    f = sums()
    tf.function(f)(x)
    assert counts(f) == (0, 0)
    f = sums()
    f(draw(8, 5))
    assert counts(f) == (3, 0)
    np.testing.assert_array_equal(tf.function(f)(x), sums(defer_kernels=False)(x))
    assert counts(f) == (0, 3)
    f = sums()
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    np.testing.assert_array_equal(tape.gradient(y, x), tf.ones_like(x))
    assert counts(f) == (0, 0)
    f = sums()
    f(draw(8, 5))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    np.testing.assert_array_equal(tape.gradient(y, x), tf.ones_like(x))
    assert counts(f) == (0, 3)


def test_what_is_saved_is_whole(on_demand, tmp_path):
    f = sums()
    f(draw(8, 5))
    module = tf.Module()
    module.f = tf.function(lambda x: f(x), input_signature=[tf.TensorSpec([None, None])])
    tf.saved_model.save(module, str(tmp_path))
    assert counts(f) == (0, 3)
    x = draw(513, 17)
    np.testing.assert_array_equal(tf.saved_model.load(str(tmp_path)).f(x), f(x))


def test_a_signature_has_no_call():
    f = hlo_disc.tensorflow.compile(lambda x: tf.reduce_sum(x, 0), [tf.TensorSpec([None, None])], cache="")
    assert f.executable.tally is None


def test_inputs_are_packed_when_the_kernels_for_it_are_there(monkeypatch):
    """Inputs are packed once the kernels for it are there, so the second call with a tensor waits for nothing."""
    waiting: list[deferred.Deferred] = []
    monkeypatch.setattr(deferred.background, "add", waiting.append)
    f = hlo_disc.tensorflow.jit(lambda x, w: x @ tf.ensure_shape(w, [32, 200]), cache="")
    x, w = draw(64, 32), draw(32, 200)
    results = [f(x, w)]
    native = f.programs()[0].executable.native
    before = counts(f)
    results += [f(x, w) for _ in range(3)]
    assert counts(f) == before and before[0] > 0 and native.packed_bytes() == 0 and len(waiting) == 1
    while waiting[0].advance():
        pass
    results += [f(x, w) for _ in range(3)]
    assert counts(f) == (0, sum(before)) and native.packed_bytes() > 0
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_many_threads_call_eagerly_and_in_graphs():
    f, results = sums(), []
    f(draw(8, 5))
    graph = tf.function(f)
    xs = [draw(n, m) for n in (9, 513, 700) for m in (5, 17, 40)]
    calls = [lambda x=x, run=run: results.append((x, run(x))) for x in xs * 2 for run in (f, graph)]
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 36
    for x, found in results:
        np.testing.assert_allclose(found, tf.reduce_sum(x, 0), rtol=1e-4, atol=1e-4)


PROGRAM = """
import os, time
import tensorflow as tf
import hlo_disc.tensorflow
f = hlo_disc.tensorflow.jit(lambda x: tf.reduce_sum(x, 0), cache="")
g = hlo_disc.tensorflow.jit(lambda x: tf.reduce_sum(x @ tf.transpose(x), 0), cache="")
print(float(f(tf.ones([8, 5]))[0]), float(g(tf.ones([8, 5]))[0]), flush=True)
"""
ASYNCHRONOUS = """
graph = tf.function(lambda x: f(tf.linalg.expm(x * 1e-9)))
tf.config.experimental.set_synchronous_execution(False)
x = tf.ones([700, 700])
for _ in range(4):
    x = graph(x) + tf.zeros([700, 1])
"""
FORK = """
x = tf.ones([513, 17])
child = os.fork()
if child == 0:
    os._exit(7 if f(x).numpy()[3] == 513 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(
    ("text", "printed"), [("", []), (ASYNCHRONOUS, []), (FORK, ["7"])], ids=["end", "graph runs", "fork"]
)
def test_a_process_may_end_or_fork_right_after_its_first_call(text, printed):
    for _ in range(depth.examples(1, 2)):
        done = subprocess.run([sys.executable, "-c", PROGRAM + text], capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stdout.split()) == (0, ["8.0", "40.0", *printed]), done.stderr
        assert "Traceback" not in done.stderr and "Fatal" not in done.stderr
