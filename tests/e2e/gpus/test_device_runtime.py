"""Programs on a GPU's driver that the tests bring: memory of its own, launches, copies, and all that may fail."""

from __future__ import annotations

import ctypes
import gc
import re
import subprocess
import threading
import timeit
from collections.abc import Callable, Iterator

import depth
import emulated
import jax
import jax.numpy as jnp
import launches
import numpy as np
import pytest
from jax import lax

import hlo_disc
from hlo_disc import ral
from hlo_disc.errors import DeviceError, OutOfMemoryError, ShapeError, UnsupportedOpError
from hlo_disc.targets import registry
from hlo_disc.targets.gpu.cuda import NVIDIA
from hlo_disc.targets.gpu.rocm import AMD
from hlo_disc.targets.target import Driver

OUT_OF_MEMORY, OTHER = 2, 719
TARGETS = ("emulated-cuda", "emulated-rocm")
TABLE = np.arange(40, dtype=np.float32).reshape(10, 4)


@pytest.fixture(autouse=True)
def no_leak(emulated_targets) -> Iterator[None]:
    before = ral.device_blocks(), ral.live_bytes()
    yield
    emulated.emulator().fake_fail(0, 0)
    emulated.check()
    after = ral.device_blocks(), ral.live_bytes()
    assert all(a <= b for a, b in zip(after, before, strict=True))  # what is freed meanwhile is another file's


def compiled(function: Callable, *specs: str, target: str = TARGETS[0]) -> hlo_disc.Executable:
    return hlo_disc.compile(function, *specs, target=target)


def turns(x):
    """Conditions that follow from data, and a counter; a carried array and a scalar that kernels read."""

    def step(state):
        i, x, most = state
        return i + 1, x * 2 + i.astype(np.float32), jnp.maximum(most, x.max())

    return lax.while_loop(lambda s: (s[1].sum() < 100) & (s[0] < 20), step, (jnp.int32(0), x, jnp.float32(0)))


PROGRAMS: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "loop": (turns, ("f32[n]",)),
    "branches": (lambda i, x: lax.switch(i, [jnp.sin, lambda x: x * 3, lambda x: -x], x), ("i32[]", "f32[n]")),
    "scalars": (lambda a, b: (a + b, (a > b) & (b > 1), a), ("f32[]", "f32[]")),
    "slice": (lambda x, i: lax.dynamic_slice(x, (i, 0), (1, 3)) + i, ("f32[n, 3]", "i32[]")),
    "constant": (lambda i: jnp.asarray(TABLE)[i] * 2, ("i32[n]",)),
    "scan": (lambda x: lax.scan(lambda c, row: (c + row, c.sum()), x[0] * 0, x), ("f32[n, 3]",)),
    "product": (lambda x, y: x @ y, ("f32[n, 5]", "f32[5, m]")),
    "sort": (lambda x: jnp.sort(x)[::-1], ("f32[n]",)),
    "sizes alone": (lambda x: jnp.arange(x.shape[0]), ("f32[n]",)),
    "itself": (lambda x: x, ("f32[n]",)),
    "bf16": (lambda x: jnp.cumsum(x * 2), ("bf16[n]",)),
}  # fmt: skip
SIZES = ({"n": 7, "m": 3}, {"n": 1, "m": 1}, {"n": 100, "m": 2})


def arguments(specs: tuple[str, ...], sizes: dict[str, int]) -> list[np.ndarray]:
    rng = np.random.default_rng(sum(sizes.values()))
    made = []
    for spec in specs:
        name, shape = spec.rstrip("]").split("[")
        dims = [sizes.get(d.strip()) or int(d) for d in shape.split(",") if d.strip()]
        made.append(rng.integers(0, 3, dims).astype({"f32": "f4", "i32": "i4", "bf16": jnp.bfloat16}[name]))
    return made


@depth.sampled(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, target):
    function, specs = PROGRAMS[name]
    executable = compiled(function, *specs, target=target)
    for sizes in SIZES:
        xs = arguments(specs, sizes)
        expected = jax.tree.leaves(jax.jit(function)(*xs))
        for result, right in zip(jax.tree.leaves(executable(*xs)), expected, strict=True):
            assert result.dtype == right.dtype
            np.testing.assert_allclose(result, right, rtol=1e-5)
        emulated.check()


def test_sizes_that_depend_on_data():
    text = """
      func.func @main(%n: tensor<i32>, %x: tensor<4xf32>) -> tensor<?x4xf32> {
        %f = stablehlo.constant dense<4> : tensor<1xi32>
        %r = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
        %s = stablehlo.concatenate %r, %f, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
        %y = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [1] : (tensor<4xf32>, tensor<2xi32>) -> tensor<?x4xf32>
        %z = stablehlo.add %y, %y : tensor<?x4xf32>
        return %z : tensor<?x4xf32>
      }"""
    executable = hlo_disc.compile(text, target="emulated-cuda")
    x = np.arange(4, dtype=np.float32)
    for n in (3, 0, 1):
        np.testing.assert_array_equal(executable(np.int32(n), x), np.tile(2 * x, (n, 1)))


@pytest.mark.parametrize(("error", "raised"), [(OTHER, DeviceError), (OUT_OF_MEMORY, OutOfMemoryError)])
@pytest.mark.parametrize(
    ("name", "target"), [*((name, TARGETS[0]) for name in ("loop", "constant", "product")), ("constant", TARGETS[1])]
)
def test_every_call_of_the_driver_may_fail(name, target, error, raised):
    function, specs = PROGRAMS[name]
    xs = arguments(specs, SIZES[0])
    right = jax.tree.leaves(jax.jit(function)(*xs))
    failed, passed, n, program = 0, 0, 0, compiled(function, *specs, target=target).program
    while passed < 3:
        n += 1
        executable = hlo_disc.Executable(program)  # the first call of one does more than others
        emulated.emulator().fake_fail(n, error)
        try:
            executable(*xs)
            passed += 1
        except raised as exception:
            failed += 1
            assert f"(error {error})" in str(exception)
        emulated.emulator().fake_fail(0, 0)
        for result, x in zip(jax.tree.leaves(executable(*xs)), right, strict=True):
            np.testing.assert_allclose(result, x, rtol=1e-6)
    assert failed > 10


@pytest.mark.parametrize("target", TARGETS)
def test_many_calls_leak_nothing_and_launches_are_cheap(target):
    program = launches.compiled(target)
    addition = min(timeit.repeat("n += 1", "n = 0", number=100_000, repeat=9)) / 100_000
    assert launches.idle(launches.of_a_launch, program) < 30 * addition  # measured: 6
    gc.collect()
    assert launches.idle(launches.leaked, program, launches.CALLS) <= 0


def test_an_error_names_the_kernel():
    executable = compiled(lambda x: jnp.tanh(x) * 2, "f32[n]")
    executable(np.ones(3, np.float32))
    messages = []
    for n in range(1, 12):
        emulated.emulator().fake_fail(n, OTHER)
        try:
            executable(np.ones(3, np.float32))
        except DeviceError as error:
            messages.append(str(error))
    assert any(re.match(r"cannot launch the kernel k\d_map\w* of 1 blocks", message) for message in messages), messages


@pytest.mark.parametrize("target", TARGETS)
def test_only_what_runs_is_loaded(target):
    gc.collect()
    before = emulated.alive()["modules"]
    executable = compiled(lambda x: jax.nn.softmax(x), "f32[m, n]", target=target)
    assert emulated.alive()["modules"] == before
    loaded = []
    for n in (8, 12, 8, 9, 2000):
        executable(np.zeros((3, n), np.float32))
        loaded.append(emulated.alive()["modules"] - before)
    assert loaded == [1, 1, 1, 2, 3]
    del executable
    gc.collect()
    assert emulated.alive()["modules"] == before


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (209, "the program is for other GPUs than this one"),
        (221, 'its compiler of PTX .*: install it, or compile .* as for the target "cuda:sm_90"'),
        (222, "the driver is too old: update it"),
    ],
)
def test_an_error_that_a_user_can_do_something_about(error, why):
    messages, program = [], compiled(lambda x: x + 1, "f32[n]").program
    for n in range(1, 20):
        executable = hlo_disc.Executable(program)
        emulated.emulator().fake_fail(n, error)
        try:
            executable(np.ones(3, np.float32))
        except DeviceError as failure:
            messages.append(str(failure))
    loading = [message for message in messages if message.startswith("cannot load the kernel")]
    assert loading
    for message in loading:
        assert re.search(rf"{why}: a planted failure \(error {error}\)", message), message


@pytest.mark.parametrize("target", TARGETS)
def test_many_threads(target):
    executable = compiled(turns, "f32[n]", target=target)
    right = {n: jax.jit(turns)(np.full(n, 0.5, np.float32)) for n in range(1, 9)}
    wrong: list[object] = []

    def call(n: int) -> None:
        for _ in range(20):
            for result, x in zip(executable(np.full(n, 0.5, np.float32)), right[n], strict=True):
                if not np.allclose(result, x):
                    wrong.append((n, result, x))
        try:
            emulated.check()  # each thread has its own
        except emulated.SimtError as error:
            wrong.append(error)

    threads = [threading.Thread(target=call, args=[n]) for n in right]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_device_of_a_thread_stays_what_it_was():
    driver, device = emulated.emulator(), ctypes.c_int()
    assert driver.hipSetDevice(1) == 0
    compiled(lambda x: x + 1, "f32[n]", target="emulated-rocm")(np.ones(3, np.float32))
    assert driver.hipGetDevice(ctypes.byref(device)) == 0
    assert device.value == 1


def test_a_guard_is_checked_before_anything_is_copied():
    executable = compiled(lambda x, y: x + y, "f32[n]", "f32[n]")
    with pytest.raises(ShapeError):
        executable(np.ones(3, np.float32), np.ones(4, np.float32))


def test_a_program_needs_no_driver_until_it_is_called(tmp_path):
    class Nowhere(emulated.Emulated):
        driver = Driver("cuda", ("libno_such_driver.so.1",))

    registry.register("nowhere", lambda: Nowhere(NVIDIA))
    executable = hlo_disc.compile(lambda x: x + 1, "f32[n]", target="nowhere")
    executable.save(tmp_path / "x.disc")
    for exe in (executable, hlo_disc.load(tmp_path / "x.disc")):
        with pytest.raises(DeviceError, match="there is no driver of a GPU: .*libno_such_driver.so.1"):
            exe(np.ones(3, np.float32))


def called_with(api: str, *libraries: str) -> object:
    class Other(emulated.Emulated):
        driver = Driver(api, libraries)

    registry.register("other", lambda: Other(AMD if api == "hip" else NVIDIA))
    return hlo_disc.compile(lambda x: x + 1, "f32[n]", target="other")(np.ones(3, np.float32))


@pytest.mark.parametrize(("api", "symbol"), [("cuda", "cuInit"), ("hip", "hipInit")])
def test_a_driver_that_lacks_a_function_is_too_old(api, symbol):
    with pytest.raises(DeviceError, match=f"the driver libm.so.6 is too old: it has no {symbol}; update it"):
        called_with(api, "libm.so.6")


def test_of_several_libraries_the_first_that_is_there_is_the_driver():
    (built,) = emulated.Emulated(AMD).driver.libraries
    assert np.array_equal(called_with("hip", "libno_such_driver.so", built, "libm.so.6"), [2, 2, 2])


def test_a_library_that_is_loaded_already_is_the_driver(tmp_path):
    """A framework's copy, and not another one that comes before it in the list."""
    (built,) = emulated.Emulated(AMD).driver.libraries
    (tmp_path / "x.c").write_text("int nothing;")
    subprocess.run("cc -shared -fPIC x.c -o libnot_loaded.so".split(), cwd=tmp_path, check=True)
    assert np.array_equal(called_with("hip", str(tmp_path / "libnot_loaded.so"), built), [2, 2, 2])


def test_a_driver_that_lacks_another_library_says_so(tmp_path):
    (tmp_path / "x.c").write_text("int answer(void); int hipInit(unsigned x) { return answer(); }")
    (tmp_path / "y.c").write_text("int answer(void) { return 0; }")
    for command in ("cc -shared -fPIC y.c -o libneeded.so", "cc -shared -fPIC x.c -L. -lneeded -o libbroken.so"):
        subprocess.run(command.split(), cwd=tmp_path, check=True)
    broken = str(tmp_path / "libbroken.so")
    with pytest.raises(DeviceError, match="there is no driver of a GPU: libneeded.so: cannot open"):
        called_with("hip", "libno_such_driver.so", broken, "libno_other_driver.so")


def test_what_the_cpu_alone_can_do_is_refused():
    with pytest.raises(UnsupportedOpError, match="custom_call @lapack_spotrf_ffi.*run on the CPU only"):
        compiled(jnp.linalg.cholesky, "f32[n, n]")


def test_a_write_outside_of_a_block_is_found():
    driver = emulated.emulator()
    driver.cuCtxPushCurrent_v2(None)
    address = ctypes.c_size_t()
    for at, message in ((99, ""), (100, "outside of its memory"), (256, "outside"), (-1, "outside")):
        assert driver.cuMemAllocAsync(ctypes.byref(address), ctypes.c_size_t(100), None) == 0
        driver.fake_finish()
        ctypes.memset(address.value + at, 1, 1)
        assert driver.cuMemFreeAsync(address, None) == 0
        driver.fake_finish()
        if message:
            with pytest.raises(emulated.SimtError, match=message):
                emulated.check()
        else:
            emulated.check()
    driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
