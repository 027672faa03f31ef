"""Programs on a driver that is as hostile as a GPU's: work is done late, and memory is handed out again at once."""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import mmap
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

import depth
import emulated
import frameworks
import jax.numpy as jnp
import numpy as np
import pytest
from emulated import SimtError
from frameworks import Framework, Streamed, Streamless, Taken, call, made
from jax import lax

import hlo_disc
from hlo_disc import ral
from hlo_disc.errors import DeviceError
from hlo_disc.ral import contexts

SIZE = 1000
LATE = 3  # a seed with which nothing is done before somebody waits for it


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch, emulated_targets) -> Iterator[None]:
    monkeypatch.setattr(contexts, "_STREAMS", dict(contexts._STREAMS))
    contexts.register_stream(frameworks.MODULE, frameworks.current_stream)
    for name, target in itertools.product(PROGRAMS, KINDS):
        program(name, target)
    gc.collect()
    before = ral.device_blocks(), ral.live_bytes()
    yield
    emulated.emulator().fake_fail(0, 0)
    emulated.emulator().fake_kind()
    gc.collect()
    emulated.check()
    assert ral.device_blocks() == before[0] and ral.live_bytes() <= before[1]  # JAX gives back late what others had


@pytest.fixture
def late() -> Iterator[ctypes.CDLL]:
    with emulated.hostile(LATE) as driver:
        yield driver


@pytest.fixture
def framework(late) -> Iterator[Framework]:
    made = Framework()
    yield made
    gc.collect()
    made.close()


def numbers(start: float = 0, size: int = SIZE) -> np.ndarray:
    return np.arange(start, start + size, dtype=np.float32)


def told() -> str:
    """Let all work that waits finish, and return the driver's report of what went wrong."""
    emulated.emulator().fake_finish()
    return emulated.emulator().fake_failure().decode()


def failing(what: str, *arguments: object) -> str:
    """Check that the driver refuses a call, and return its message."""
    with pytest.raises(frameworks.DriverError):
        call(what, *arguments)
    return emulated.emulator().fake_failure().decode()


# What the driver does


def test_work_waits_and_pinned_memory_is_read_late(framework):
    source = framework.pinned(numbers())
    address = made("cuMemAllocAsync", source.nbytes, framework.current)
    call("cuMemcpyHtoDAsync_v2", address, source.ctypes.data, source.nbytes, framework.current)
    source[:] = 5
    found = framework.read(address, source, framework.current)
    call("cuMemFreeAsync", address, framework.current)
    assert (found == 77).all()
    framework.finish()
    assert (found == 5).all()


@pytest.mark.parametrize("strict", [False, True])
def test_other_memory_is_read_late_where_the_driver_is_strict(strict):
    with emulated.hostile(LATE, strict):
        framework, source = Framework(), numbers()
        address, found = made("cuMemAllocAsync", source.nbytes, 0), np.full_like(source, 77)
        call("cuMemcpyHtoDAsync_v2", address, source.ctypes.data, source.nbytes, 0)
        source[:] = 5
        call("cuMemcpyDtoHAsync_v2", found.ctypes.data, address, source.nbytes, 0)
        assert np.array_equal(found, source if strict else numbers())  # it is not pinned, and written at the call
        call("cuMemFreeAsync", address, 0)
        framework.close()


def test_memory_of_the_host_that_is_gone_is_an_error():
    with emulated.hostile(LATE, strict=True):
        framework, source = Framework(), mmap.mmap(-1, 1 << 20)
        view = ctypes.c_char.from_buffer(source)
        where = ctypes.addressof(view)
        address = made("cuMemAllocAsync", 1 << 20, 0)
        call("cuMemcpyHtoDAsync_v2", address, where, 1 << 20, 0)
        del view
        source.close()
        emulated.emulator().fake_finish()
        with pytest.raises(SimtError, match="memory of the host that is gone"):
            emulated.check()
        call("cuMemFreeAsync", address, 0)
        framework.close()


def test_events(framework):
    driver, (a, b) = emulated.emulator(), framework.streams[1:]
    in_a, everywhere, before = framework.event(a), made("cuEventCreate", 2), framework.event(b)
    call("cuEventSynchronize", before)
    call("cuCtxRecordEvent", 0, everywhere)
    x = framework.put(numbers())  # in stream b, later

    def happened(event: int) -> bool:
        with frameworks.context():
            return {0: True, 600: False}[driver.cuEventQuery(ctypes.c_size_t(event))]

    assert happened(before) and not happened(in_a) and not happened(everywhere)
    call("cuStreamSynchronize", a)
    assert happened(in_a) and happened(everywhere)
    call("cuStreamWaitEvent", a, framework.event(b), 0)
    found = framework.read(x.address, x.array, a)
    call("cuStreamSynchronize", a)  # and what it waits for
    assert np.array_equal(found, x.array)


def test_memory_is_there_behind_its_allocation_and_before_it_is_freed(framework):
    a, b = framework.streams[1:]
    early = []
    for _ in range(10):
        address = made("cuMemAllocAsync", 4 * SIZE, a)
        framework.read(address, numbers(), b)
        early.append(told())
        framework.read(address, numbers(), b)
        assert not told()
        call("cuMemFreeAsync", address, a)
        emulated.emulator().fake_finish()
        framework.read(address, numbers(), b)
        assert "no memory of the GPU" in told()
    assert 2 < sum("no memory of the GPU" in x for x in early) < 10  # by chance it was read in time
    assert "memory is freed that is not there" in failing("cuMemFreeAsync", address, b)


def test_memory_goes_to_others_when_it_is_freed_and_to_its_own_stream_before(framework):
    def again(stream: int) -> bool:
        """Return whether one of a few allocations gets the block again. Not each one does."""
        got = []
        while len(got) < 20 and address not in got:
            got.append(made("cuMemAllocAsync", 4 * SIZE, stream))
        for one in got:
            call("cuMemFreeAsync", one, stream)
        return address in got

    a, b = framework.streams[1:]
    address = made("cuMemAllocAsync", 4 * SIZE, a)
    call("cuMemFreeAsync", address, a)
    assert not again(b)
    assert again(a)
    framework.finish()
    assert again(b)


def test_a_free_in_an_idle_stream_lets_another_one_write_what_a_third_reads(framework):
    """The runtime must not free results at once in a stream of its own: another stream writes what a third reads."""
    a, b, idle = *framework.streams[1:], framework.new_stream()
    wrong = 0
    for k in range(10):
        framework.switch(a)
        address = made("cuMemAllocAsync", 4 * SIZE, a)
        call("cuMemcpyHtoDAsync_v2", address, framework.pinned(numbers(k)).ctypes.data, 4 * SIZE, a)
        call("cuStreamSynchronize", a)
        found = framework.read(address, numbers(), a)
        call("cuMemFreeAsync", address, idle)
        call("cuStreamSynchronize", idle)
        other = made("cuMemAllocAsync", 4 * SIZE, b)
        call("cuMemcpyHtoDAsync_v2", other, framework.pinned(numbers(-k)).ctypes.data, 4 * SIZE, b)
        wrong += bool(told()) or not np.array_equal(found, numbers(k))
        call("cuMemFreeAsync", other, b)
    assert wrong > 2


def test_a_stream_that_is_gone(framework):
    x, gone = framework.put(numbers()), framework.new_stream()
    framework.order(gone, framework.current)
    found = framework.read(x.address, x.array, gone)
    framework.destroy(gone)
    assert "a stream that is not there" in failing("cuStreamSynchronize", gone)
    assert "a stream that is not there" in failing("cuMemFreeAsync", x.base, gone)
    assert "a stream that is not there" in failing("cuMemAllocAsync", ctypes.byref(ctypes.c_size_t()), 8, gone + 8)
    emulated.emulator().fake_failure()
    framework.finish()  # what it had is done
    assert np.array_equal(found, x.array)


def test_a_call_without_a_context(framework):
    told: list[int] = []
    thread = threading.Thread(target=lambda: told.append(emulated.emulator().cuStreamSynchronize(None)))
    thread.start()  # which has none yet
    thread.join()
    assert told == [201]
    with pytest.raises(SimtError, match="without a context"):
        emulated.check()


def test_nothing_but_launches_while_a_stream_is_recorded(framework):
    driver = emulated.emulator()
    driver.fake_record(True)
    try:
        for name in ("cuStreamSynchronize", "cuCtxSynchronize"):
            with pytest.raises(frameworks.DriverError, match="900"):
                call(name, *([framework.current] if "Stream" in name else []))
        with pytest.raises(frameworks.DriverError, match="900"):
            made("cuMemAllocAsync", 8, framework.current)
    finally:
        driver.fake_record(False)


def test_a_seed_says_what_happens():
    def happened(seed: int) -> list[bool]:
        with emulated.hostile(seed):
            framework, done = Framework(), []
            events = [framework.event(stream) for stream in framework.streams * 5]
            with frameworks.context() as driver:
                done = [driver.cuEventQuery(ctypes.c_size_t(event)) == 0 for event in events]
            framework.close()
        return done

    assert happened(LATE) == happened(LATE) == [False] * 15
    assert len({tuple(happened(seed)) for seed in range(30)}) > 5
    assert all(happened(seed) == happened(seed) for seed in range(5))


# The runtime

TABLE = np.arange(8, dtype=np.float32)


def combined(x, y):
    return x * 2 + y, y - x


def counted(x, y):
    """Compute a loop whose condition the host reads, and a result with numbers that the host writes."""
    i, x = lax.while_loop(lambda s: s[1].sum() < 1000, lambda s: (s[0] + 1, s[1] + y * y + 1), (jnp.int32(0), x))
    return x + i.astype(np.float32)


def looked_up(x, y):
    """Compute with constants, and with memory for intermediate values."""
    return (jnp.cumsum(x) * 0 + y)[:, None] + jnp.asarray(TABLE)


KINDS = {"emulated-cuda": frameworks.CUDA, "emulated-rocm": frameworks.ROCM}
PROGRAMS = {f.__name__: f for f in (combined, counted, looked_up)}


def program(name: str, target: str = "emulated-cuda") -> Callable[..., list[object]]:
    return compiled(name, target)


@functools.cache
def compiled(name: str, target: str) -> Callable[..., list[object]]:
    """Compile a function of two arrays and call it once, so that its constants are on the GPU."""
    executable = hlo_disc.compile(PROGRAMS[name], "f32[n]", "f32[n]", target=target)

    def called(x: object, y: object) -> list[object]:
        results = executable(x, y)
        return [*results] if type(results) is tuple else [results]

    called(numbers(0, 3), numbers(0, 3))
    return called


def right(name: str, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """Return the right results of such a program. Numbers are integers, so that results are exact."""
    if name == "combined":
        return [x * 2 + y, y - x]
    if name == "looked_up":
        return [y[:, None] + TABLE]
    x, i = x.copy(), 0
    while x.sum() < 1000:
        x, i = x + y * y + 1, i + 1
    return [x + i]


@pytest.fixture(params=["pinned", "not pinned", "strict"])
def memory(request, emulated_targets) -> Iterator[Callable[[np.ndarray], np.ndarray]]:
    """Yield a function that copies an array to where a hostile driver reads it."""
    with emulated.hostile(LATE, request.param == "strict"):
        framework = Framework()
        yield framework.pinned if request.param == "pinned" else np.copy
        gc.collect()
        framework.close()


def consumed(result: object, stream: int | None, reader: int) -> np.ndarray:
    """Return what a consumer will have read in a stream. It names a stream, and lets go of the result at once."""
    held = Taken(frameworks.here(), result, stream)
    found = held.read(reader)
    held.drop()
    return found


def consumed_alike(results: Iterable[object], expected: Iterable[np.ndarray], stream: int, reader: int) -> None:
    """Check results that are read like this, and that are gone before the reads are done."""
    found = [consumed(result, stream, reader) for result in results]
    call("cuStreamSynchronize", reader)
    for array, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(array, wanted)


@pytest.mark.parametrize("size", [7, 20_000])
@pytest.mark.parametrize("name", PROGRAMS)
def test_arguments_of_the_host_may_change_after_a_call(name, size, memory):
    framework, f = frameworks.here(), program(name)
    x, y = numbers(0, size), numbers(3, size)
    for stream in framework.streams:
        framework.switch(stream)
        given = memory(y)
        results = f(framework.put(x), given)
        given[:] = 99
        del given
        consumed_alike(results, right(name, x, y), stream, stream)
        both = memory(x), memory(y)
        results = f(*both)
        for array in both:
            array[:] = 99
        for result, expected in zip(results, right(name, x, y), strict=True):
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kinds", [*itertools.product((Streamed, Streamless, None), repeat=2)][:-1])
def test_arguments_may_go_after_a_call(name, kinds, framework):
    """Arguments may be freed after a call: what is written to their memory next is not what the call reads."""
    f = program(name)
    x, y = numbers(), numbers(3)
    for stream in framework.streams * 2:
        framework.switch(stream)
        results = f(*(framework.put(v, kind) if kind else v.copy() for v, kind in zip((x, y), kinds, strict=True)))
        others = [framework.put(np.full_like(x, 99)) for _ in range(4)]
        consumed_alike(results, right(name, x, y), stream, stream)
        del others, results


def test_an_argument_of_another_stream_may_go_after_a_call(framework):
    """An argument's framework may know nothing of the call's stream: the call waits."""
    f, (a, b) = program("combined"), framework.streams[1:]
    for first, second in ((Streamed, Streamless), (Streamless, Streamed)):
        framework.switch(b)
        x, y = framework.put(numbers(), first), framework.put(numbers(3), second)
        framework.switch(a)
        results = f(x, y)
        (x if first is Streamless else y).used.clear()
        del x, y
        framework.current = b  # which waits for nothing
        others = [framework.put(np.full_like(numbers(), 99)) for _ in range(4)]
        emulated.emulator().fake_finish()
        framework.switch(a)
        consumed_alike(results, right("combined", numbers(), numbers(3)), a, a)
        del others, results


class Elsewhere(Streamed):
    """A tensor of another framework, with a stream of its own."""

    __module__ = "framework_elsewhere"

    def prepare(self, stream: int) -> None:
        self.framework.order(stream, self.stream)


def test_arguments_of_two_frameworks_may_go_after_a_call(framework):
    """Arguments of two frameworks may be freed after a call. The second one knows nothing of the call's stream."""
    f, (a, b) = program("combined"), framework.streams[1:]
    contexts.register_stream(Elsewhere.__module__, lambda: b)
    for _ in range(5):
        framework.current = b
        y = framework.put(numbers(3), Elsewhere)
        framework.current = a
        results = f(framework.put(numbers()), y)
        del y
        framework.current = b
        others = [framework.put(np.full(SIZE, 99, np.float32)) for _ in range(4)]
        call("cuStreamSynchronize", b)
        consumed_alike(results, right("combined", numbers(), numbers(3)), a, a)
        del others, results


def overwriting(framework: Framework, stream: int, count: int = 4) -> None:
    """Overwrite the free memory of results at once, as other allocations do."""
    for _ in range(count):
        address = made("cuMemAllocAsync", 4 * SIZE, stream)
        source = framework.pinned(np.full(SIZE, 99, np.float32))
        call("cuMemcpyHtoDAsync_v2", address, source.ctypes.data, source.nbytes, stream)
        call("cuMemFreeAsync", address, stream)


@pytest.mark.parametrize("of_default", [False, True])
@pytest.mark.parametrize("kind", [Streamed, Streamless])
@pytest.mark.parametrize("target", KINDS)
def test_a_result_is_read_in_a_stream_that_nobody_named(target, kind, of_default, late):
    """A consumer such as JAX names a stream, reads later in another, and lets go of the result before that ends."""
    framework = Framework(5, KINDS[target])
    f = program("combined", target)
    a, named, reader, other = framework.streams[1:]
    framework.switch(0 if of_default else a)
    for k in range(5):
        results = f(framework.put(numbers(k), kind), framework.put(numbers(), kind))
        found = [consumed(result, named, reader) for result in results]
        del results
        ral.device_blocks()  # lets go of what may go
        f(framework.put(numbers(-k), kind), framework.put(numbers(), kind))
        overwriting(framework, other)
        call("cuStreamSynchronize", other)
        call("cuStreamSynchronize", reader)
        for array, wanted in zip(found, right("combined", numbers(k), numbers()), strict=True):
            np.testing.assert_array_equal(array, wanted)
    framework.close()


@pytest.mark.parametrize("of_default", [False, True])
def test_a_consumer_that_wants_nobody_to_wait(of_default, framework):
    """A consumer that says -1 waits by itself, reads in any stream and lets go of the result at once."""
    f, (a, reader) = program("combined"), framework.streams[1:]
    framework.switch(0 if of_default else a)
    for k in range(5):
        results = f(framework.put(numbers(k)), framework.put(numbers()))
        framework.order(reader, framework.current)
        found = [consumed(result, -1, reader) for result in results]
        del results
        call("cuStreamSynchronize", framework.current)
        overwriting(framework, framework.current)
        call("cuStreamSynchronize", framework.current)
        call("cuStreamSynchronize", reader)
        for array, wanted in zip(found, right("combined", numbers(k), numbers()), strict=True):
            np.testing.assert_array_equal(array, wanted)


def test_a_result_outlives_the_stream_that_it_was_computed_in(framework):
    f = program("combined")
    for _ in range(5):
        framework.switch(framework.new_stream())
        x = framework.put(numbers())
        results = f(x, numbers(3))
        held = Taken(framework, results[0], framework.current)
        del x
        framework.destroy(framework.current)
        consumed_alike(results, right("combined", numbers(), numbers(3)), framework.current, framework.current)
        held.drop()
        del results
        overwriting(framework, framework.current)


def test_arguments_at_any_address(framework):
    for name, (i, j) in itertools.product(PROGRAMS, itertools.product((0, 4, 16, 20), repeat=2)):
        results = program(name)(framework.put(numbers(), offset=i), framework.put(numbers(3), offset=j))
        consumed_alike(results, right(name, numbers(), numbers(3)), framework.current, framework.current)


def test_a_program_may_go_after_a_call(tmp_path, framework):
    """A program's constants and kernels are there until they have been used."""
    hlo_disc.compile(looked_up, "f32[n]", "f32[n]", target="emulated-cuda").save(tmp_path / "x.disc")
    for _ in range(3):
        f = hlo_disc.load(tmp_path / "x.disc")
        result = f(framework.put(numbers()), framework.put(numbers(3)))
        del f
        gc.collect()
        overwriting(framework, framework.streams[1])
        call("cuStreamSynchronize", framework.streams[1])
        consumed_alike([result], right("looked_up", numbers(), numbers(3)), framework.current, framework.current)


@pytest.mark.parametrize("target", KINDS)
def test_a_program_whose_constants_do_not_get_to_the_gpu(target, tmp_path):
    hlo_disc.compile(looked_up, "f32[n]", "f32[n]", target=target).save(tmp_path / "x.disc")
    with emulated.hostile(LATE) as driver:
        failed = 0
        for n in range(1, 15):
            f = hlo_disc.load(tmp_path / "x.disc")
            driver.fake_fail(n, 719)
            try:
                f(numbers(), numbers(3))
            except DeviceError:
                failed += 1
            driver.fake_fail(0, 0)
            emulated.check()
            np.testing.assert_array_equal(f(numbers(), numbers(3)), right("looked_up", numbers(), numbers(3))[0])
        assert failed > 8


def mapped(array: np.ndarray) -> np.ndarray:
    """Return a copy in memory that is no longer the process's when the copy is freed."""
    copy = np.frombuffer(mmap.mmap(-1, array.nbytes), array.dtype)
    copy[:] = array
    return copy


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("target", KINDS)
def test_a_call_that_fails(target, name, strict):
    """Arguments of a call that fails may be freed, what it has made is freed, and the next call is right."""
    with emulated.hostile(LATE + 1, strict) as driver:
        framework = Framework(kind=KINDS[target])
        f = program(name, target)
        failed = 0
        for n in range(1, 40):
            x, large = framework.put(numbers(0, 20_000), offset=4), mapped(numbers(3, 20_000))
            results = []
            driver.fake_fail(n, 719)
            try:
                results = f(x, large)
            except (DeviceError, frameworks.DriverError):
                failed += 1
            driver.fake_fail(0, 0)
            del x, large, results
            framework.put(np.full(20_001, 99, np.float32))
            results = f(framework.put(numbers()), numbers(3))
            consumed_alike(results, right(name, numbers(), numbers(3)), framework.current, framework.current)
        assert failed > 5
        gc.collect()
        framework.close()


# At random


class Interleaving:
    """Calls, consumers and frameworks of one thread in a random order. Numbers are small, so that sums are exact."""

    may_fail = True
    SIZES = ((5, 0.6), (300, 0.3), (17_000, 0.1))  # and how likely; the last is too large for a copy of the runtime's

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.target = self.pick(list(KINDS))
        self.framework = Framework(kind=KINDS[self.target])
        self.size = int(self.random.choice([n for n, _ in self.SIZES], p=[p for _, p in self.SIZES]))
        self.tensors: list[frameworks.Tensor] = []
        self.results: list[tuple[object, int | None, np.ndarray]] = []  # and the framework's stream that computes them
        self.held: list[tuple[Taken, int | None, np.ndarray]] = []  # by consumers, and the only stream that may read
        self.reads: list[tuple[np.ndarray, np.ndarray]] = []  # what comes there, and what has to

    def pick(self, of: Sequence):
        return of[self.random.integers(len(of))]

    def chance(self, of: int) -> bool:
        return self.random.integers(of) == 0

    def array(self) -> np.ndarray:
        return self.random.integers(-9, 9, self.size).astype(np.float32)

    def run(self, steps: int) -> None:
        likely = {self.call: 6, self.make: 4, self.consume: 4, self.read: 4, self.drop: 3, self.switch: 2, self.look: 1}
        actions = [action for action, times in likely.items() for _ in range(times)]
        for _ in range(steps):
            self.pick(actions)()
        self.end()

    def make(self) -> None:
        kind, offset = self.pick([Streamed, Streamed, Streamless]), self.pick([0, 0, 0, 4, 16])
        self.tensors.append(self.framework.put(self.array(), kind, offset))

    def argument(self) -> tuple[object, np.ndarray]:
        """Return an argument of any kind, and what it holds."""
        small = [(x, array) for x, _, array in self.results if array.ndim == 1 and abs(array).max() < 1000]
        if small and self.chance(4):
            return small[self.random.integers(len(small))]
        if self.tensors and not self.chance(4):
            tensor = self.pick(self.tensors)
            return tensor, tensor.array
        array = self.array()
        return (self.framework.pinned(array) if self.chance(2) else array.copy()), array

    def call(self) -> None:
        name = self.pick(["combined", "combined", "looked_up", "counted"])
        (x, in_x), (y, in_y) = self.argument(), self.argument()
        expected = right(name, in_x, in_y)
        resident = [given for given in (x, y) if not isinstance(given, np.ndarray)]
        computes = self.framework.current if resident and isinstance(resident[0], Streamed) else None
        fails = self.may_fail and self.chance(8)
        if fails:
            emulated.emulator().fake_fail(int(self.random.integers(1, 25)), 719)
        results: list[object] = []
        try:
            results = program(name, self.target)(x, y)
        except (DeviceError, frameworks.DriverError):
            if not fails:
                raise
        finally:
            if fails:
                emulated.emulator().fake_fail(0, 0)
        for given in (x, y):
            if isinstance(given, np.ndarray):
                given[:] = 99
            elif self.chance(3):
                self.tensors = [tensor for tensor in self.tensors if tensor is not given]
        del x, y, given, resident
        for _ in range(self.random.integers(3)):  # what was let go is written again at once
            self.make()
        for result, array in zip(results, expected, strict=False):
            if isinstance(result, np.ndarray):
                np.testing.assert_array_equal(result, array)
            elif not self.chance(4):
                self.results.append((result, computes, array))

    def consume(self) -> None:
        """Let a consumer take a result.

        If it names the stream that computes the result, nobody waits. Else the result is finished for all streams.
        """
        if self.results:
            result, computes, array = self.results.pop(self.random.integers(len(self.results)))
            named = self.pick([self.framework.current, *self.framework.streams])
            only = named if named == computes else None
            self.held.append((Taken(self.framework, result, named or self.pick([None, 1])), only, array))
            if self.chance(3):
                self.results.append((result, computes, array))

    def read(self) -> None:
        """Put a read of a consumer's result into a stream, and let go of the result."""
        if self.held:
            held, only, array = self.held.pop(self.random.integers(len(self.held)))
            self.reads.append((held.read(self.pick(self.framework.streams) if only is None else only), array))
            held.drop()

    def drop(self) -> None:
        for one in (self.tensors, self.results):
            if one and self.chance(2):
                del one[self.random.integers(len(one))]

    def switch(self) -> None:
        streams = self.framework.streams
        if len(streams) > 2 and self.chance(6):
            gone = self.pick(streams[1:])
            for held, _, array in [one for one in self.held if one[1] == gone]:  # it was promised to this stream alone
                self.reads.append((held.read(gone), array))
                held.drop()
            self.held = [one for one in self.held if one[1] != gone]
            self.framework.destroy(gone)
        elif self.chance(4):
            self.framework.switch(self.framework.new_stream())
        else:
            self.framework.switch(self.pick(streams))

    def look(self) -> None:
        ral.device_blocks()  # lets go of what may go
        if self.chance(4):
            ral.trim()
        call("cuStreamSynchronize", self.pick(self.framework.streams))

    def end(self) -> None:
        self.tensors.clear()
        self.results.clear()
        while self.held:
            self.read()
        self.framework.finish()
        for found, array in self.reads:
            np.testing.assert_array_equal(found, array)
        self.framework.close()


class Threaded(Interleaving):
    may_fail = False  # planted failures are everybody's


COUNT, PARTS = depth.examples(200, 2000), 8


@pytest.mark.parametrize("part", range(PARTS))
def test_interleavings(part):
    for seed in range(part, COUNT, PARTS):
        with emulated.hostile(seed, strict=seed // 3 % 2 == 1):
            try:
                Interleaving(seed).run(60)
                emulated.check()
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
            gc.collect()
        emulated.check()


@pytest.mark.parametrize("seed", range(3))
def test_threads(seed):
    """Each thread has a framework of its own. Any of them may do work that others have left."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            Threaded(100 * seed + number).run(60)
        except BaseException as error:
            failures.append(error)

    with emulated.hostile(seed):
        threads = [threading.Thread(target=run, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
