"""Memory, streams, events and kernels of a GPU go when they are needed no more, and not before; with threads, too."""

from __future__ import annotations

import ctypes
import gc
import itertools
import threading
from collections.abc import Callable, Iterator

import emulated
import frameworks
import jax.numpy as jnp
import numpy as np
import pytest
from frameworks import Framework, Streamed, Streamless, Taken, call

import hlo_disc
from hlo_disc import ral
from hlo_disc.errors import DeviceError, OutOfMemoryError
from hlo_disc.ral import contexts

LATE = 3
KINDS = {"emulated-cuda": frameworks.CUDA, "emulated-rocm": frameworks.ROCM}
X = np.arange(1000, dtype=np.float32)
TABLE = X[::-1].copy()


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch, emulated_targets) -> Iterator[None]:
    monkeypatch.setattr(contexts, "_STREAMS", dict(contexts._STREAMS))
    contexts.register_stream(frameworks.MODULE, frameworks.current_stream)
    with frameworks.nothing_is_left(LATE):
        yield


@pytest.fixture
def framework() -> Iterator[Framework]:
    made = Framework()
    yield made
    gc.collect()
    made.close()


def looked_up(x, y):
    return jnp.cumsum(x) * 0 + x * 2 + y + TABLE


def compiled(target: str = "emulated-cuda") -> hlo_disc.Executable:
    return hlo_disc.compile(looked_up, "f32[1000]", "f32[1000]", target=target)


RIGHT = X * 3 + TABLE


def settle() -> None:
    """Let all be done, and what was kept for that go."""
    gc.collect()
    emulated.emulator().fake_finish()
    ral.device_blocks()
    emulated.emulator().fake_finish()


@pytest.mark.parametrize("kind", [Streamed, Streamless, None])
@pytest.mark.parametrize("target", KINDS)
def test_what_a_program_makes_goes_with_it(target, kind, tmp_path):
    """Constants, kernels and results; streams and events are used again by others."""
    compiled(target).save(tmp_path / "x.disc")
    framework = Framework(kind=KINDS[target])
    tensor = framework.put(X, kind) if kind else X
    counts = []
    for _ in range(6):
        f = hlo_disc.load(tmp_path / "x.disc")
        for _ in range(3):
            f(tensor, X)
        del f
        settle()
        counts.append(emulated.alive())
    for name in ("blocks", "modules"):
        assert {count[name] for count in counts} == {counts[0][name]}, counts
    for name in ("streams", "events"):  # as many as are needed at once
        assert counts[-1][name] <= counts[1][name] + 2, counts
    del tensor
    gc.collect()
    framework.close()


def test_what_calls_keep_goes_while_others_come(framework):
    """Results that consumers of another stream have let go of, and copies of arguments: nobody asks for that."""
    f, (a, b) = compiled(), framework.streams[1:]
    tensor = framework.put(X)
    most = dict.fromkeys(("blocks", "events"), 0)
    framework.switch(a)
    start = emulated.alive()
    for _ in range(40):
        held = Taken(framework, f(tensor, X.copy()), b)
        held.read(b)
        held.drop()
        call("cuStreamSynchronize", b)
        call("cuStreamSynchronize", a)
        most = {name: max(most[name], emulated.alive()[name] - start[name]) for name in most}
    assert most["blocks"] <= 8 and most["events"] <= 8, most


@pytest.mark.parametrize("target", KINDS)
def test_what_a_failed_call_has_made_goes(target):
    """Failures of the driver, one after the other, leave nothing behind."""
    framework, driver = Framework(kind=KINDS[target]), emulated.emulator()
    tensor, large = framework.put(X, offset=4), np.tile(X, 30)
    f = hlo_disc.compile(lambda x, y: x.sum() + y + TABLE[:1], "f32[n]", "f32[m]", target=target)
    right, failed = X.sum() + large + TABLE[0], 0
    counts = []
    for n in itertools.chain.from_iterable([n] * 4 for n in range(1, 13)):
        driver.fake_fail(n, 719)
        result = None
        try:
            result = f(tensor, large)
        except DeviceError:
            failed += 1
        driver.fake_fail(0, 0)
        driver.fake_failure()
        del result
        result = f(tensor, large)
        np.testing.assert_allclose(Taken(framework, result, framework.current).copy(), right)
        del result
        settle()
        counts.append(emulated.alive())
    assert failed > 20
    assert {count["blocks"] for count in counts[4:]} == {counts[-1]["blocks"]}, counts
    assert counts[-1]["events"] <= counts[4]["events"] + 2, counts  # as many as are needed at once
    del tensor, f
    gc.collect()
    framework.close()


@pytest.mark.parametrize("error", [209, 719])
def test_a_program_whose_kernels_cannot_be_loaded(error, tmp_path):
    """The next call tells it again, and there is nothing to unload."""
    driver, failed = emulated.emulator(), 0
    compiled().save(tmp_path / "x.disc")
    settle()
    before = emulated.alive()["modules"]
    for n, again in itertools.product(range(1, 13), (False, True)):
        f = hlo_disc.load(tmp_path / "x.disc")
        driver.fake_fail(n, error)
        try:
            f(X, X)
        except (DeviceError, OutOfMemoryError):
            failed += 1
        driver.fake_fail(0, 0)
        driver.fake_failure()
        if again:
            np.testing.assert_array_equal(f(X, X), RIGHT)
        del f
        settle()
        emulated.check()
        assert emulated.alive()["modules"] == before
    assert failed > 8


def test_what_one_stream_has_yet_to_read_stays_when_another_is_done():
    """Copies of arguments of the host, which calls make, and later ones would write over."""
    with emulated.hostile(LATE, strict=True):
        framework, f = Framework(), compiled()
        (a, b), x = framework.streams[1:], framework.put(X)
        for k in range(6):
            framework.switch(a)
            first = f(x, X + k)
            framework.current = b
            others = [f(framework.put(X), X + 99)]
            call("cuStreamSynchronize", b)
            ral.device_blocks()  # lets go of what may go
            others += [f(framework.put(X), X + 99) for _ in range(4)]
            np.testing.assert_array_equal(Taken(framework, first, a).copy(), RIGHT + k)
            del first, others
            settle()
        del x
        gc.collect()
        framework.close()


def test_a_result_stays_until_the_last_stream_has_read_it(framework):
    """Streams that have nothing left to do say nothing of it."""
    f, (a, reader), x = compiled(), framework.streams[1:], framework.put(X)
    framework.switch(a)

    def wait_for_others() -> None:
        for stream in (0, a):
            call("cuStreamSynchronize", stream)
        ral.device_blocks()  # lets go of what may go

    for k in range(4):
        held = Taken(framework, f(x, X + k), reader)
        found = held.read(reader)
        held.drop()
        wait_for_others()
        others = [f(given, X + 99) for given in (X, x) * 3]
        wait_for_others()
        call("cuStreamSynchronize", reader)
        np.testing.assert_array_equal(found, RIGHT + k)
        del others


# Threads


def at_once(*functions: Callable[[], None]) -> None:
    """Run functions in threads; each call of the driver takes a while, so that all are there at once."""
    failures: list[BaseException] = []

    def run(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            failures.append(error)

    emulated.emulator().fake_slow(1000)
    try:
        threads = [threading.Thread(target=run, args=[function]) for function in functions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        emulated.emulator().fake_slow(0)
    if failures:
        raise failures[0]


@pytest.mark.parametrize("target", KINDS)
def test_the_first_calls_of_a_program_by_many_threads(target):
    """Constants and kernels are on the GPU once."""
    settle()
    before = emulated.alive()
    for _ in range(2):
        f, wrong = compiled(target), []

        def first(f=f, wrong=wrong) -> None:
            if not np.array_equal(f(X, X), RIGHT):
                wrong.append(1)

        at_once(*[first] * 4)
        settle()
        one = emulated.alive()
        assert not wrong
        assert one["blocks"] == before["blocks"] + 1 and one["modules"] == before["modules"] + 1
        del f, first
        settle()
        assert {name: emulated.alive()[name] for name in ("blocks", "modules")} == {
            name: before[name] for name in ("blocks", "modules")
        }


# Memory


def fresh(target: str, megabytes: int) -> str:
    """A target whose GPU has so much memory, beside what others have taken of it."""
    settle()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    emulated.emulator().fake_memory(ctypes.c_size_t(1 << 34))
    with frameworks.context() as driver:
        driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    emulated.emulator().fake_memory(ctypes.c_size_t(total.value - free.value + (megabytes << 20)))
    return emulated.register_unseen("cuda" if target == "emulated-cuda" else "hip")


@pytest.fixture
def of_memory() -> Iterator[Callable[[str, int], str]]:
    yield fresh
    emulated.emulator().fake_memory(ctypes.c_size_t(0))


@pytest.mark.parametrize("target", KINDS)
def test_memory_of_one_size_is_given_back_for_another(target, of_memory):
    """Memory that the pool keeps, or that waits to be freed, is not lacking."""
    f = hlo_disc.compile(lambda x: x + 1, "f32[n]", target=of_memory(target, 8))
    framework = Framework(kind=KINDS[target])
    tensors = {n: framework.put(np.zeros(n, np.float32)) for n in (600_000, 500_000, 300_000)}
    framework.finish()
    for n in [600_000, 500_000, 300_000] * 4:
        result = f(tensors[n])
        held = Taken(framework, result, framework.streams[1])  # freed behind all
        del result
        held.drop()
    tensors.clear()
    gc.collect()
    framework.close()


def test_too_little_memory_is_told_with_what_there_is(of_memory):
    f = hlo_disc.compile(lambda x: x + 1, "f32[n]", target=of_memory("emulated-cuda", 4))
    with pytest.raises(OutOfMemoryError, match=r"of the GPU's memory, of which \d+ of \d+ are free, for"):
        f(np.zeros(2_000_000, np.float32))
    np.testing.assert_array_equal(f(np.zeros(10, np.float32)), np.ones(10, np.float32))


# What holds the memory of arguments


class Lent(Streamless):
    """Gives a copy, which is of the consumer alone: it goes with the capsule."""

    def __dlpack__(self, stream: int | None = None) -> object:
        number = 0 if stream in (None, 1) else stream
        framework = self.framework
        before, framework.current = framework.current, number if number in framework.streams else framework.current
        copy = framework.put(self.array, Streamless)
        framework.current = before
        capsule = super().__dlpack__(stream)
        self.raw.data = copy.address
        if stream not in (None, 1):
            framework.order(number, copy.stream)
        Holding.of[id(capsule)] = copy
        destroy = Holding.destroy
        frameworks.api.PyCapsule_SetDestructor(ctypes.py_object(capsule), destroy)
        return capsule


class Holding:
    """Copies that capsules hold."""

    of: dict[int, object] = {}  # noqa: RUF012

    @ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
    @staticmethod
    def destroy(capsule: int) -> None:
        del Holding.of[capsule]


@pytest.mark.parametrize("other", [Lent, Streamed, None])
@pytest.mark.parametrize("target", KINDS)
def test_an_argument_that_a_capsule_alone_holds(target, other):
    framework, f = Framework(kind=KINDS[target]), compiled(target)
    for _ in range(5):
        y = framework.put(X + 7, other) if other else X + 7
        result = f(framework.put(X, Lent), y)
        overwritten = [framework.put(np.full_like(X, 99)) for _ in range(4)]
        np.testing.assert_array_equal(Taken(framework, result, framework.current).copy(), RIGHT + 7)
        del overwritten, y, result
    assert not Holding.of
    gc.collect()
    framework.close()


# Library


@pytest.mark.parametrize(("target", "api"), [("library-cuda", "cuda"), ("library-hip", "hip")])
def test_products_that_need_more_and_more_memory(target, api):
    """A later one needs more of it than an earlier one has."""
    library = emulated.products(api)
    emulated.register_products(least=64)
    f = hlo_disc.compile(lambda x, y: (x @ y, y @ x), "f32[m, k]", "f32[k, m]", target=target)
    before = library.fake_multiplied()
    for m, k in ((8, 8), (4, 60), (60, 4)):
        x, y = np.ones((m, k), np.float32), np.ones((k, m), np.float32)
        for result, right in zip(f(x, y), (x @ y, y @ x), strict=True):
            np.testing.assert_array_equal(result, right)
        emulated.check()
    assert library.fake_multiplied() == before + 6


def test_empty_results_and_arguments():
    """A driver allocates no memory of 0 bytes."""
    for target in KINDS:
        framework = Framework(kind=KINDS[target])
        f = hlo_disc.compile(lambda x: (x * 2, x.sum()), "f32[n]", target=target)
        for given in (X[:0], framework.put(X[:0])):
            empty, total = f(given)
            assert empty.shape == (0,) and total.shape == ()
            del empty, total
        del given
        gc.collect()
        framework.close()
