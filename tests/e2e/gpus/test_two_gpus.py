"""A driver with two GPUs, of which programs run on the first: nothing is done on the other one without a word."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import threading
from collections.abc import Callable, Iterator

import emulated
import frameworks
import jax.numpy as jnp
import numpy as np
import pytest
from emulated import SimtError
from frameworks import Framework, Streamed, Streamless, Taken, call, made

import hlo_disc
from hlo_disc import ral
from hlo_disc.errors import ArgumentError, DeviceError
from hlo_disc.ral import contexts

LATE = 3
KINDS = {"emulated-cuda": frameworks.CUDA, "emulated-rocm": frameworks.ROCM}
X = np.arange(1000, dtype=np.float32)
EVERYWHERE = [pytest.param(device, id=f"on GPU {device}") for device in (0, 1)]


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch, emulated_targets) -> Iterator[None]:
    monkeypatch.setattr(contexts, "_STREAMS", dict(contexts._STREAMS))
    contexts.register_stream(frameworks.MODULE, frameworks.current_stream)
    with frameworks.nothing_is_left(LATE):
        yield


@contextlib.contextmanager
def current(device: int, target: str) -> Iterator[None]:
    """Make a GPU the thread's, which it still has to be afterwards."""
    driver = emulated.emulator()
    if target == "emulated-rocm":
        assert driver.hipSetDevice(device) == 0
        yield
        assert driver.fake_current() == device
    else:
        with frameworks.context(device):
            pushed = driver.fake_pushed()
            yield
            assert (driver.fake_pushed(), driver.fake_current()) == (pushed, device)


@pytest.fixture
def frameworks_of() -> Iterator[Callable[[int], Framework]]:
    """Frameworks by GPU."""
    made: list[Framework] = []

    def framework(device: int, kind: int = frameworks.CUDA) -> Framework:
        made.append(Framework(kind=kind, device=device))
        return made[-1]

    yield framework
    gc.collect()
    for one in made:
        one.close()


def told() -> str:
    emulated.emulator().fake_finish()
    return emulated.emulator().fake_failure().decode()


# The driver


@pytest.mark.parametrize(
    ("name", "what", "message"),
    [
        ("cuMemFreeAsync", "memory", "memory is freed that is not there, or of another GPU"),
        ("cuEventRecord", "event", "an event of another GPU is recorded"),
        ("cuCtxRecordEvent", "event of all", "an event of another GPU is recorded"),
        ("cuMemAllocAsync", "stream", "a stream of another GPU"),
    ],
)
def test_what_is_of_one_gpu_is_refused_by_the_other(name, what, message):
    address, event = made("cuMemAllocAsync", 100, 0, device=1), made("cuEventCreate", 2, device=1)
    stream = made("cuStreamCreate", 1, device=1)
    given = {
        "memory": (address, 0),
        "event": (event, 0),
        "event of all": (0, event),
        "stream": (ctypes.byref(ctypes.c_size_t()), 100, stream),
    }[what]
    with pytest.raises(frameworks.DriverError):
        call(name, *given)
    assert message in told()
    call("cuStreamWaitEvent", 0, event, 0)  # that may be anywhere
    call("cuEventSynchronize", event)
    call("cuStreamSynchronize", stream)
    call("cuMemFreeAsync", address, stream, device=1)
    call("cuStreamDestroy_v2", stream, device=1)


def test_a_copy_in_one_gpus_stream_reaches_no_memory_of_the_other():
    address, source = made("cuMemAllocAsync", X.nbytes, 0, device=1), X.copy()
    call("cuCtxSynchronize", device=1)
    call("cuMemcpyHtoDAsync_v2", address, source.ctypes.data, X.nbytes, 0)
    assert "what is no memory of the GPU" in told()
    call("cuMemcpyHtoDAsync_v2", address, source.ctypes.data, X.nbytes, 0, device=1)
    assert not told()
    call("cuMemFreeAsync", address, 0, device=1)


def test_each_gpu_has_a_default_stream_and_waits_for_its_own_streams():
    found = []
    for device in (0, 1):
        address, memory = made("cuMemAllocAsync", X.nbytes, 0, device=device), np.full_like(X, 77)
        emulated.emulator().fake_pinned(ctypes.c_size_t(memory.ctypes.data), ctypes.c_size_t(memory.nbytes))
        call("cuMemcpyHtoDAsync_v2", address, X.ctypes.data, X.nbytes, 0, device=device)
        call("cuMemcpyDtoHAsync_v2", memory.ctypes.data, address, X.nbytes, 0, device=device)
        call("cuMemFreeAsync", address, 0, device=device)
        found.append(memory)
    for done, other in ((0, 1), (1, 0)):
        assert (found[done] == 77).all()
        call("cuCtxSynchronize", device=done)
        assert np.array_equal(found[done], X) and (done == 1 or (found[other] == 77).all())
    for memory in found:
        emulated.emulator().fake_pinned(ctypes.c_size_t(memory.ctypes.data), ctypes.c_size_t(0))


def test_a_kernel_reaches_no_memory_of_the_other_gpu(frameworks_of):
    """Memory that is said to be the first GPU's has to be there."""
    other = frameworks_of(1)
    tensor = other.put(X, Streamless)
    other.finish()
    other.device = 0
    tensor.prepare = lambda stream: None
    with pytest.raises(DeviceError, match="no memory of the GPU"):
        program("emulated-cuda")(tensor, tensor)
    emulated.emulator().fake_failure()
    other.device = 1


def test_no_context_is_popped_that_was_not_pushed():
    driver, errors = emulated.emulator(), []
    pop = functools.partial(driver.cuCtxPopCurrent_v2, ctypes.byref(ctypes.c_void_p()))
    thread = threading.Thread(target=lambda: errors.append(pop()))
    thread.start()
    thread.join()
    assert errors == [201]
    with pytest.raises(SimtError, match="popped that was not pushed"):
        emulated.check()


# The runtime

TABLE = np.arange(1000, dtype=np.float32)[::-1].copy()


@functools.cache
def program(target: str) -> hlo_disc.Executable:
    executable = hlo_disc.compile(lambda x, y: jnp.cumsum(x) * 0 + x + y + TABLE[0], "f32[n]", "f32[n]", target=target)
    executable(X, X)
    return executable


@pytest.mark.parametrize("kind", [Streamed, Streamless])
@pytest.mark.parametrize("device", EVERYWHERE)
@pytest.mark.parametrize("target", KINDS)
def test_what_is_on_the_second_gpu_is_refused(target, device, kind, frameworks_of):
    f, other = program(target), frameworks_of(1, KINDS[target])
    blocks = emulated.alive()["blocks"]
    tensor = other.put(X, kind)
    with current(device, target):
        for given in ((tensor, X), (X, tensor)):
            with pytest.raises(ArgumentError, match=r"'[xy]' is on GPU 1, but hlo_disc runs programs on GPU 0; move"):
                f(*given)
    del tensor, given
    gc.collect()
    assert emulated.alive()["blocks"] == blocks + 1  # the framework keeps it
    assert not told()


@pytest.mark.parametrize("target", KINDS)
def test_arguments_on_both_gpus_are_refused(target, frameworks_of):
    other, first = frameworks_of(1, KINDS[target]), frameworks_of(0, KINDS[target])
    f = program(target)
    for kind in (Streamed, Streamless):
        with pytest.raises(ArgumentError, match="'y' is on GPU 1"):
            f(first.put(X, kind), other.put(X, kind))
    assert not told()


@pytest.mark.parametrize("kind", [Streamed, Streamless, None])
@pytest.mark.parametrize("device", EVERYWHERE)
@pytest.mark.parametrize("target", KINDS)
def test_a_call_runs_on_the_first_gpu_whichever_is_current(target, device, kind, frameworks_of):
    """Loading, constants, the call, consumers of its result, and that all of it goes."""
    framework = frameworks_of(0, KINDS[target])
    with current(device, target):
        f = hlo_disc.compile(lambda x, y: x * 2 + y + TABLE, "f32[1000]", "f32[1000]", target=target)
        for stream in (None, framework.streams[1], framework.current):
            given = (X, X) if kind is None else (framework.put(X, kind), X.copy())
            result = f(*given)
            if kind is None:
                np.testing.assert_array_equal(result, X * 3 + TABLE)
                continue
            assert result.__dlpack_device__() == (KINDS[target], 0)
            held = Taken(framework, result, stream)
            del result
            found = held.read(stream or 0)
            held.drop()
            call("cuStreamSynchronize", stream or 0)  # no other one is waited for
            np.testing.assert_array_equal(found, X * 3 + TABLE)
            del given
        unused = f(*((X, X) if kind is None else (framework.put(X, kind), X)))
        del unused, f
        gc.collect()
        ral.trim()
        ral.device_blocks()
    assert not told()


@pytest.mark.parametrize("kind", [Streamed, Streamless, None])
@pytest.mark.parametrize("device", EVERYWHERE)
@pytest.mark.parametrize("target", KINDS)
def test_the_first_call_of_all(target, device, kind, frameworks_of):
    """The runtime finds the GPU, and makes streams and a pool on it."""
    framework = frameworks_of(0, KINDS[target])
    unseen = emulated.register_unseen("cuda" if target == "emulated-cuda" else "hip")
    f = hlo_disc.compile(lambda x: x * 2, "f32[n]", target=unseen)
    given = X if kind is None else framework.put(X, kind)
    with current(device, target):
        result = f(given)
    if kind is not None:
        result = Taken(framework, result, framework.current).copy()
    np.testing.assert_array_equal(result, X * 2)
    assert not told()


@pytest.mark.parametrize("device", EVERYWHERE)
@pytest.mark.parametrize("target", KINDS)
def test_a_call_that_fails_leaves_the_current_gpu(target, device, frameworks_of, tmp_path):
    framework, driver = frameworks_of(0, KINDS[target]), emulated.emulator()
    hlo_disc.compile(lambda x, y: x * 2 + y + TABLE, "f32[1000]", "f32[1000]", target=target).save(tmp_path / "x.disc")
    failed = 0
    for n in range(1, 25):
        f = hlo_disc.load(tmp_path / "x.disc")
        tensor = framework.put(X)
        with current(device, target):
            driver.fake_fail(n, 719)
            try:
                f(tensor, X)
            except DeviceError:
                failed += 1
            driver.fake_fail(0, 0)
            del tensor, f
            gc.collect()
    assert failed > 5 and not told()


def test_a_result_goes_to_no_other_device(frameworks_of):
    framework = frameworks_of(0)
    result = program("emulated-cuda")(framework.put(X), X)
    for device in ((frameworks.CUDA, 1), (frameworks.ROCM, 0), (1, 0)):
        with pytest.raises(BufferError, match="the result is on GPU 0, and goes to no other device"):
            result.__dlpack__(stream=framework.current, dl_device=device)
    with pytest.raises(BufferError, match="handed over without a copy"):
        result.__dlpack__(stream=framework.current, copy=True)
    result.__dlpack__(stream=framework.current, dl_device=(frameworks.CUDA, 0), copy=False)
