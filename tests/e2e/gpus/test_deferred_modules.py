"""Kernels of GPUs that a program lacks when it is called first: modules that are made when a call launches them."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from dataclasses import replace

import emulated
import jax
import numpy as np
import pytest

import hlo_disc
from hlo_disc import pipeline, sources
from hlo_disc.compiled import deferred
from hlo_disc.errors import CompileError
from hlo_disc.options import Options
from hlo_disc.targets import registry
from hlo_disc.targets.gpu.cuda import NVIDIA
from hlo_disc.unmade import UnmadeModules

TARGETS = ("emulated-cuda", "emulated-ptx", "emulated-rocm")
SHAPES = [(8, 5), (513, 5), (512, 17), (5000, 40), (0, 3), (1, 1)]
LOW = 1 << 18


@pytest.fixture(autouse=True)
def on_an_emulated_gpu(emulated_targets):
    yield
    emulated.check()


@pytest.fixture
def on_demand(monkeypatch):
    """Let no thread make what is deferred."""
    monkeypatch.setattr(deferred.background, "add", lambda kernels: kernels.packs_inputs.open())


def columns(target, **options):
    """Return a jitted function of several kernels: for few or many columns, for few or many rows."""
    return hlo_disc.jit(lambda x: x.sum(0), dims={"x": "n, m"}, target=target, cache="", **options)


def draw(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def counts(f):
    return f.stats().deferred_kernels, f.stats().later_kernels


def executable_of(f):
    (flat,) = next(iter(f._by_settings.values())).functions.values()
    (executable,) = flat.executables()
    return executable


@pytest.mark.parametrize("target", TARGETS)
def test_a_call_makes_what_it_launches(target, on_demand):
    f, whole = columns(target), columns(target, defer_kernels=False)
    left = []
    for shape in SHAPES:
        np.testing.assert_array_equal(f(draw(*shape)), whole(draw(*shape)))
        left.append(counts(f))
    total = sum(left[0])
    assert left[0] == (total, 0) and left[0][0] > left[1][0] >= left[3][0] and left[3][1] > left[1][1] > 0
    assert {sum(x) for x in left} == {total} and counts(whole) == (0, 0)
    assert f.stats().compilations == 1


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_saved_is_whole(target, on_demand, tmp_path):
    f = columns(target)
    f(draw(8, 5))
    f(draw(513, 5))
    executable = executable_of(f)
    assert all(counts(f))
    executable.save(tmp_path / "it")
    assert counts(f)[0] == 0
    loaded = hlo_disc.load(tmp_path / "it")
    for shape in SHAPES:
        np.testing.assert_array_equal(loaded(draw(*shape)), f(draw(*shape)))


def test_what_a_thread_has_made_is_found_without_python(monkeypatch):
    f, asked = columns(TARGETS[0]), []
    call = deferred.Deferred.__call__
    monkeypatch.setattr(deferred.Deferred, "__call__", lambda self, name: asked.append(name) or call(self, name))
    f(draw(8, 5))
    assert executable_of(f).program.object  # all kernels are made
    for shape in SHAPES:
        f(draw(*shape))
    assert counts(f)[0] == 0 and not asked


def test_arrays_that_are_too_large_for_32_bits(monkeypatch):
    vendor = replace(NVIDIA, device=replace(NVIDIA.device, narrow=LOW))
    registry.register("low-cuda", functools.partial(emulated.Emulated, vendor, 99 << 10))
    f, whole = columns("low-cuda"), columns("low-cuda", defer_kernels=False)
    for shape in ((8, 5), (4097, 64), (513, 5), (LOW, 1)):
        np.testing.assert_array_equal(f(draw(*shape)), whole(draw(*shape)))
    program, other = executable_of(f).program, executable_of(whole).program
    assert executable_of(f).native.plan([4097, 64])[program.env.wide] == 1
    assert len(program.wide_kernels) > len(other.wide_kernels) == 1  # a module for each kernel that came later


def test_an_error_is_that_of_the_call_which_needs_the_kernel(on_demand, monkeypatch):
    f = columns(TARGETS[0])
    f(draw(8, 5))

    def fails(self, name, known):
        raise CompileError(f"no {name}")

    with monkeypatch.context() as patch:
        patch.setattr(UnmadeModules, "make", fails)
        with pytest.raises(CompileError, match=r"no k\d_reduce"):
            f(draw(513, 5))
        f(draw(9, 5))
    np.testing.assert_array_equal(f(draw(513, 5)), columns(TARGETS[0], defer_kernels=False)(draw(513, 5)))


def test_a_kernel_that_many_threads_want_is_made_once(on_demand, monkeypatch):
    f, made, results = columns(TARGETS[0]), [], []
    f(draw(8, 5))
    make = UnmadeModules.make

    def noted(self, name, known):
        made.append(name)
        return make(self, name, known)

    monkeypatch.setattr(UnmadeModules, "make", noted)
    x = draw(513, 5)

    def call():
        with jax.default_matmul_precision("highest"):  # a setting of this thread: `emulated_targets`
            results.append(f(x))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == len(set(made)) > 0 and len(results) == 8
    for result in results:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.parametrize("target", ["cuda", "cuda:sm_90", "rocm"])
def test_the_whole_program_has_the_same_kernels(target):
    """For GPUs that are not here: what the driver would load."""
    options, graph = Options(target=target, cache=""), sources.graph(lambda x: jax.nn.softmax(x).sum(0), "f32[n, m]")
    program, unmade = pipeline.compile_for_call(graph, options, lambda: [(8, 5)])
    complete = pipeline.compile(graph, options)
    found = registry.find(registry.split(target)[0])
    assert unmade and 0 < len(unmade.names)
    for name in unmade.names:
        assert unmade.make(name, ())
    whole = unmade.whole()
    first, last, wanted = (Counter(found.kernels(x)) for x in (program.object, whole.object, complete.object))
    assert last == wanted and first != wanted and first <= wanted
    assert bool(whole.wide_kernels) == bool(complete.wide_kernels)
