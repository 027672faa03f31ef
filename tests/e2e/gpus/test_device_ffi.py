"""The XLA FFI handler of programs for GPUs: on memory, a stream and scratch that are XLA's, here a stand-in's."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import emulated
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_disc
from hlo_disc import pipeline, ral, sources
from hlo_disc.options import Options
from hlo_disc.ral import _ral
from hlo_disc.ral.handlers import _address

TYPES = {"float32": 11, "int32": 4, "uint8": 6}  # XLA_FFI_DataType
INVALID, EXHAUSTED, UNIMPLEMENTED, INTERNAL = 3, 8, 12, 13  # XLA_FFI_Error_Code
STREAM = 0x5712EA
SEED = 3  # with which nothing is done before somebody waits for it
ALIGNED = 16  # kEntryParameterAlignBytes: what XLA promises of its memory
INITIALIZE, EXECUTE = 2, 3  # XLA_FFI_ExecutionStage
COMMAND_BUFFER_COMPATIBLE = 1  # XLA_FFI_Handler_TraitsBits


class Context(ctypes.Structure):
    _fields_ = [
        ("stream", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("allocate", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("allocated", ctypes.c_int),
        ("freed", ctypes.c_int),
        ("bytes", ctypes.c_size_t),
    ]


class Failed(Exception):
    pass


@pytest.fixture(autouse=True)
def targets(emulated_targets) -> Iterator[None]:
    emulated.emulator().fake_stream(ctypes.c_void_p(STREAM))
    yield
    emulated.emulator().fake_fail(0, 0)
    emulated.check()


@pytest.fixture(scope="module")
def xla(tmp_path_factory) -> ctypes.CDLL:
    built = tmp_path_factory.mktemp("xla") / "libxla_frame.so"
    source = Path(__file__).parents[2] / "unit" / "ral" / "xla_frame.cc"
    headers = f"-I{jax.ffi.include_dir()}", f"-I{Path(hlo_disc.__file__).parent / 'ral' / 'core'}"
    subprocess.run(["c++", "-std=c++17", "-shared", "-fPIC", *headers, source, "-o", built], check=True)
    return ctypes.CDLL(str(built))


def on_device(size: int) -> int:
    address = ctypes.c_size_t()
    driver = emulated.emulator()
    driver.cuCtxPushCurrent_v2(None)
    assert driver.cuMemAllocAsync(ctypes.byref(address), ctypes.c_size_t(max(size, 1)), None) == 0
    driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
    driver.fake_finish()
    return address.value


def pointer(name: str) -> int:
    return ctypes.cast(getattr(emulated.emulator(), name), ctypes.c_void_p).value or 0


class Xla:
    """Calls an executable as XLA does."""

    def __init__(self, library: ctypes.CDLL, executable: hlo_disc.Executable):
        self.library, self.native = library, executable.native
        self.number = self.native.publish(executable.content)
        self.context = Context(STREAM, 0, pointer("cuMemAllocAsync"), pointer("fake_release"))
        self.handler = _ral.device_ffi_handler()

    def __call__(self, *arrays: np.ndarray, short: int = 0, offset: int = 0) -> list[np.ndarray]:
        with self._placed(arrays, short, offset) as (inferred, types, memory):
            self._copy(arrays, memory)
            self._call(len(arrays), types, memory)
            return self._results(inferred, memory[len(arrays) :])

    @contextlib.contextmanager
    def recorded(
        self, *arrays: np.ndarray, stages: Sequence[int] = (INITIALIZE,), before: Callable[[], object] = int
    ) -> Iterator[Callable]:
        """Record a call; yield a function of arrays of the same types that repeats what it puts into the stream.

        before: called between the stages and what is recorded.
        """
        driver = emulated.emulator()
        with self._placed(arrays) as (inferred, types, memory):
            for stage in stages:
                self._call(len(arrays), types, memory, stage)
            before()
            driver.fake_record(True)
            try:
                self._call(len(arrays), types, memory)
            finally:
                driver.fake_record(False)

            def replay(*arrays: np.ndarray) -> list[np.ndarray]:
                self._copy(arrays, memory)
                assert driver.fake_replay() > 0
                return self._results(inferred, memory[len(arrays) :])

            yield replay

    @contextlib.contextmanager
    def _placed(self, arrays: Sequence[np.ndarray], short: int = 0, offset: int = 0) -> Iterator[tuple]:
        """Yield the types of results, and the types of arguments, results and the arena with memory for them.

        Memory is aligned as XLA's may be, and that of arguments so many bytes behind.
        """
        inferred = self.native.infer([(str(a.dtype), a.shape) for a in arrays])
        arena = ("uint8", [max(inferred.temporary - short, 0)])
        types = [*((str(a.dtype), list(a.shape)) for a in arrays), *inferred.types, arena]
        sizes = [int(np.prod(shape)) * np.dtype(dtype).itemsize for dtype, shape in types]
        blocks = [on_device(size + ALIGNED + offset) for size in sizes]
        memory = [block + ALIGNED + (offset if k < len(arrays) else 0) for k, block in enumerate(blocks)]
        try:
            yield inferred.types, types, memory
        finally:
            driver = emulated.emulator()
            driver.fake_finish()
            driver.cuCtxPushCurrent_v2(None)
            for address in blocks:
                driver.cuMemFreeAsync(ctypes.c_size_t(address), None)
            driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    @staticmethod
    def _copy(arrays: Sequence[np.ndarray], memory: Sequence[int]) -> None:
        for array, address in zip(arrays, memory, strict=False):
            ctypes.memmove(address, np.ascontiguousarray(array).ctypes.data, array.nbytes)

    def _results(self, inferred: Sequence[tuple], memory: Sequence[int]) -> list[np.ndarray]:
        found = list(zip(inferred, memory, strict=False))
        return [self._array(dtype, shape, address) for (dtype, shape), address in found]

    def _call(
        self, operands: int, types: Sequence[tuple[str, Sequence[int]]], memory: Sequence[int], stage: int = EXECUTE
    ) -> None:
        dims = [n for _, shape in types for n in shape]
        message = ctypes.create_string_buffer(1000)
        code = self.library.call_handler(
            ctypes.c_void_p(_address(self.handler)),
            stage,
            ctypes.c_int64(self.number),
            operands,
            len(types) - operands,
            (ctypes.c_int32 * len(types))(*(TYPES[dtype] for dtype, _ in types)),
            (ctypes.c_int64 * len(types))(*(len(shape) for _, shape in types)),
            (ctypes.c_int64 * max(len(dims), 1))(*dims),
            (ctypes.c_void_p * len(types))(*memory),
            ctypes.byref(self.context),
            message,
            ctypes.c_size_t(len(message)),
        )
        if code:
            raise Failed(code, message.value.decode())

    @staticmethod
    def _array(dtype: str, shape: Sequence[int], address: int) -> np.ndarray:
        made = np.empty(shape, dtype)
        emulated.emulator().fake_finish()
        ctypes.memmove(made.ctypes.data, address, made.nbytes)
        return made


def turns(x):
    return lax.while_loop(lambda s: (s[1].sum() < 100) & (s[0] < 20), lambda s: (s[0] + 1, s[1] * 2), (0, x))


TABLE = np.arange(12, dtype=np.float32)
PROGRAMS: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "map": (lambda x: jnp.tanh(x) * 2, ("f32[n]",)),
    "softmax": (jax.nn.softmax, ("f32[n, 5]",)),
    "product, with memory between": (lambda x, y: jnp.sum(jax.nn.softmax(x @ y + 1), 0), ("f32[n, 4]", "f32[4, m]")),
    "what is read back": (turns, ("f32[n]",)),
    "constant": (lambda i: jnp.asarray(TABLE)[i], ("i32[n]",)),
    "two results, one of which is an argument": (lambda x: (x, x.sum()), ("f32[n]",)),
}  # fmt: skip


def arguments(specs: Sequence[str], n: int) -> list[np.ndarray]:
    made = []
    for spec in specs:
        shape = [{"n": n, "m": 7}.get(d.strip()) or int(d.replace("n", "0")) for d in spec[4:-1].split(",")]
        values = np.random.default_rng(n).integers(0, 9, shape)
        made.append(values.astype(np.float32) / 8 if spec.startswith("f32") else values.astype(np.int32))
    return made


@pytest.mark.parametrize("target", ["emulated-cuda", "emulated-rocm"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, target, xla):
    function, specs = PROGRAMS[name]
    call = Xla(xla, hlo_disc.compile(function, *specs, target=target))
    blocks = None
    for n in (7, 1, 0, 100):
        xs = arguments(specs, n)
        expected = jax.tree.leaves(jax.jit(function)(*xs))
        for result, right in zip(call(*xs), expected, strict=True):
            assert result.dtype == right.dtype
            np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-6)
        emulated.check()
        blocks = blocks or ral.device_blocks()
        assert ral.device_blocks() == blocks  # constants alone: all else is XLA's
    assert call.native.count.in_jit == 4


@pytest.mark.parametrize("target", ["emulated-cuda", "emulated-rocm"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_operands_at_any_address(name, target, xla):
    """Operands begin at any address: JAX takes over others' tensors, which may be parts of larger ones."""
    function, specs = PROGRAMS[name]
    call = Xla(xla, hlo_disc.compile(function, *specs, target=target))
    for offset, n in itertools.product((4, 20), (7, 100)):
        xs = arguments(specs, n)
        for result, right in zip(call(*xs, offset=offset), jax.tree.leaves(jax.jit(function)(*xs)), strict=True):
            np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-6)
        emulated.check()
    assert call.context.allocated == call.context.freed and call.context.bytes == 0


def test_an_arena_that_is_full_has_room_to_be_aligned(xla):
    """An arena's last slot is that of the sums, of which there are as many as fill it."""
    call = Xla(xla, hlo_disc.compile(lambda x: jnp.sort(jnp.cumsum(x)), "f32[n]", target="emulated-cuda"))
    for n in (16, 64):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(call(x)[0], np.cumsum(x))
        emulated.check()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_driver_that_does_all_late(name, xla):
    """Calls wait only for what is read back: all else is in the order of XLA's stream."""
    function, specs = PROGRAMS[name]
    call = Xla(xla, hlo_disc.compile(function, *specs, target="emulated-cuda"))
    waits = emulated.emulator().fake_waits
    with emulated.hostile(SEED, strict=True):
        call(*arguments(specs, 3))  # constants are copied, kernels loaded
        for n in (7, 100):
            xs, before = arguments(specs, n), waits()
            results = call(*xs)
            assert (waits() > before) == (name == "what is read back")
            for result, right in zip(results, jax.tree.leaves(jax.jit(function)(*xs)), strict=True):
                np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-6)


def test_all_is_put_into_the_stream_of_xla(xla):
    call = Xla(xla, hlo_disc.compile(jax.nn.softmax, "f32[n, 5]", target="emulated-cuda"))
    for stream in (STREAM, STREAM + 16):
        emulated.emulator().fake_stream(ctypes.c_void_p(stream))
        call.context.stream = stream
        call(np.ones((3, 5), np.float32))
        assert emulated.emulator().fake_last_stream() == stream


@pytest.mark.parametrize("target", ["emulated-cuda", "emulated-rocm"])
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "what is read back"])
def test_calls_can_be_recorded(name, target, xla):
    """Calls are recorded as XLA records a command buffer, and repeated with other numbers in the same memory."""
    function, specs = PROGRAMS[name]
    call = Xla(xla, hlo_disc.compile(function, *specs, target=target))
    assert call.native.recordable
    call.handler = _ral.recordable_ffi_handler()
    with call.recorded(*arguments(specs, 7)) as replay:
        for seed in range(3):
            xs = [np.roll(x, seed, 0) for x in arguments(specs, 7)]
            for result, right in zip(replay(*xs), jax.tree.leaves(jax.jit(function)(*xs)), strict=True):
                np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-6)
    emulated.check()


def test_kernels_that_a_first_call_did_not_take_can_be_recorded(xla):
    graph = sources.graph(lambda x: x.sum(0), "f32[n, m]")
    executable = pipeline.build(graph, Options(target="emulated-cuda", cache=""), lambda: [(8, 5)])
    assert executable.tally and executable.tally.waiting
    call = Xla(xla, executable)
    assert not executable.tally.waiting  # the name of a program in XLA is that of all its kernels
    call.handler = _ral.recordable_ffi_handler()
    with call.recorded(np.ones((513, 5), np.float32)) as replay:
        (result,) = replay(np.full((513, 5), 2, np.float32))
    np.testing.assert_array_equal(result, np.full(5, 1026, np.float32))


def test_what_is_loaded_while_a_stream_is_recorded_is_refused(xla):
    """The driver refuses all but launches while a stream is recorded. This is why there is a stage that prepares."""
    call = Xla(xla, hlo_disc.compile(jnp.tanh, "f32[n]", target="emulated-cuda"))
    with pytest.raises(Failed) as failed, call.recorded(np.ones(3, np.float32), stages=()):
        pass
    assert failed.value.args[0] == INTERNAL and "(error 900)" in failed.value.args[1]


def test_only_what_launches_alone_is_said_to_be_recordable(xla):
    read_back, specs = PROGRAMS["what is read back"]
    for program in (hlo_disc.compile(read_back, *specs, target="emulated-cuda"), hlo_disc.compile(jnp.tanh, "f32[n]")):
        assert not program.native.recordable
    branch = hlo_disc.compile(lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), "f32[n]", target="emulated-cuda")
    assert not branch.native.recordable  # it reads, and does nothing else
    assert not hlo_disc.compile(LATE, target="emulated-cuda").native.recordable
    traits = [xla.handler_traits(ctypes.c_void_p(_address(handler()))) for handler in HANDLERS]
    assert traits == [0, 0, COMMAND_BUFFER_COMPATIBLE]


HANDLERS = (_ral.ffi_handler, _ral.device_ffi_handler, _ral.recordable_ffi_handler)
LATE = """
  func.func @main(%n: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> {
    %f = stablehlo.constant dense<4> : tensor<1xi32>
    %r = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %s = stablehlo.concatenate %r, %f, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %y = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [1] : (tensor<4xf32>, tensor<2xi32>) -> tensor<?x4xf32>
    %c = stablehlo.constant dense<0.0> : tensor<f32>
    %o = "stablehlo.sort"(%y) <{dimension = 0 : i64}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %l = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %l : tensor<i1>
    }) : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %z = stablehlo.reduce(%o init: %c) applies stablehlo.add across dimensions = [0]
      : (tensor<?x4xf32>, tensor<f32>) -> tensor<4xf32>
    return %z : tensor<4xf32>
  }"""


def test_memory_of_a_size_that_data_decide_is_of_xla(xla):
    call = Xla(xla, hlo_disc.compile(LATE, target="emulated-cuda"))
    x = np.arange(4, dtype=np.float32)
    before = ral.device_blocks()
    for n in (3, 1, 0):
        np.testing.assert_array_equal(call(np.int32(n), x)[0], n * x)
    assert call.context.allocated == call.context.freed > 0 and ral.device_blocks() - before <= 1
    assert call.context.bytes == 0
    call.context.allocate = None
    with pytest.raises(Failed) as failed:
        call(np.int32(3), x)
    assert failed.value.args[0] == EXHAUSTED and "bytes for intermediate values" in failed.value.args[1]


def test_what_is_refused(xla):
    call = Xla(xla, hlo_disc.compile(lambda x: jnp.sort(jnp.cumsum(x)), "f32[n]", target="emulated-cuda"))
    x = np.ones(3000, np.float32)
    with pytest.raises(Failed) as failed:
        call(x, short=1)
    assert failed.value.args[0] == INVALID and "the custom call's last result must have" in failed.value.args[1]
    call.context.device = 1
    with pytest.raises(Failed) as failed:
        call(x)
    told = "XLA runs this on GPU 1, but hlo_disc runs programs on GPU 0; put the arrays there"
    assert failed.value.args == (UNIMPLEMENTED, told)
    call.context.device, call.context.stream = 0, None
    with pytest.raises(Failed) as failed:
        call(x)
    assert failed.value.args == (UNIMPLEMENTED, "there is no stream here")


def test_each_handler_refuses_what_is_for_other_platforms(xla):
    on_gpu = Xla(xla, hlo_disc.compile(lambda x: x + 1, "f32[n]", target="emulated-cuda"))
    on_cpu = Xla(xla, hlo_disc.compile(lambda x: x + 1, "f32[n]"))
    on_gpu.handler = _ral.ffi_handler()
    for call in (on_gpu, on_cpu):
        with pytest.raises(Failed) as failed:
            call(np.ones(3, np.float32))
        assert failed.value.args == (INVALID, "the executable was compiled for another platform")


def test_what_the_driver_says_is_the_error_of_the_call(xla):
    failed = 0
    for n in range(1, 12):
        call = Xla(xla, hlo_disc.compile(lambda i: jnp.asarray(TABLE)[i] * 2, "i32[n]", target="emulated-cuda"))
        try:
            indices = np.arange(3, dtype=np.int32)
            original = call._call

            def failing(*given, n=n, original=original):
                emulated.emulator().fake_fail(n, 719)
                try:
                    original(*given)
                finally:
                    emulated.emulator().fake_fail(0, 0)

            call._call = failing
            call(indices)
        except Failed as error:
            failed += 1
            assert error.args[0] == INTERNAL and "(error 719)" in error.args[1]
        call._call = original
        np.testing.assert_array_equal(call(indices)[0], TABLE[:3] * 2)
    assert 4 < failed < 11


@pytest.mark.parametrize("recordable", [False, True])
def test_xla_itself_takes_the_handlers(recordable):
    """XLA itself, and not the frame of these tests, checks the versions and sizes of what a handler says and asks for.

    The call comes as far as the stream, which a CPU lacks.
    """
    executable = hlo_disc.compile(jnp.tanh, "f32[n]", target="emulated-cuda")
    x, name = jnp.ones(5), f"handler_of_a_gpu_{recordable}"
    handlers = dict.fromkeys(("initialize", "execute"), _ral.recordable_ffi_handler())
    jax.ffi.register_ffi_target(name, handlers if recordable else _ral.device_ffi_handler(), platform="cpu")
    inferred = executable.native.infer([("float32", x.shape)])
    ((dtype, shape),) = inferred.types
    types = [jax.ShapeDtypeStruct(shape, dtype), jax.ShapeDtypeStruct((inferred.temporary,), np.uint8)]
    number = np.int64(executable.native.publish(executable.content))
    with pytest.raises(jax.errors.JaxRuntimeError, match="UNIMPLEMENTED: XLA FFI GPU context is not available"):
        jax.jit(lambda x: jax.ffi.ffi_call(name, types)(x, executable=number))(x)


@pytest.mark.parametrize("api", ["cuda", "hip"])
def test_products_of_a_library_are_in_their_stream_with_their_memory(api, xla):
    library = emulated.products(api)
    emulated.register_products(least=64)
    executable = hlo_disc.compile(lambda x, y: (x @ y) @ y.T, "f32[m, 8]", "f32[8, n]", target=f"library-{api}")
    call, before = Xla(xla, executable), library.fake_multiplied()
    x, y = arguments(("f32[n, 8]", "f32[8, m]"), 5)
    (result,) = call(x, y)
    np.testing.assert_allclose(result, x @ y @ y.T, rtol=1e-5)
    assert library.fake_multiplied() == before + 2 and emulated.emulator().fake_last_stream() == STREAM
    assert call.context.allocated == 0  # both products use one workspace, which is planned


@pytest.mark.parametrize("api", ["cuda", "hip"])
def test_products_of_a_library_can_be_recorded(api, xla):
    """A library's products can be recorded, around a kernel of ours. If the library declines, ours replace them."""
    library = emulated.products(api)
    emulated.register_products(least=64)
    function, specs = lambda x, y: jnp.tanh(x @ y) @ y.T, ("f32[n, 8]", "f32[8, m]")
    call = Xla(xla, hlo_disc.compile(function, *specs, target=f"library-{api}"))
    assert call.native.recordable
    call.handler = _ral.recordable_ffi_handler()
    for how in (0, 4):
        before = library.fake_multiplied()
        with call.recorded(*arguments(specs, 7), before=lambda how=how: library.fake_decline(how)) as replay:
            assert (library.fake_multiplied() > before) == (how == 0)
            for seed in range(3):
                xs = [np.roll(x, seed, 0) for x in arguments(specs, 7)]
                np.testing.assert_allclose(replay(*xs)[0], function(*xs), rtol=1e-5, atol=1e-6)
    library.fake_decline(0)
    emulated.check()
