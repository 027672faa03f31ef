"""Tensors in a GPU's memory, in and out by DLPack, in their framework's stream or in one of ours."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator, Sequence

import emulated
import jax
import numpy as np
import pytest
from frameworks import CUDA, ROCM, Raw, api

import hlo_disc
from hlo_disc import ral
from hlo_disc.errors import ArgumentError
from hlo_disc.ral import contexts

KINDS = {"emulated-cuda": CUDA, "emulated-rocm": ROCM}
THEIRS, OTHERS = 0x7E50, 0x0E50


class Tensor:
    """A framework's tensor on a GPU."""

    def __init__(self, array: np.ndarray, kind: int = CUDA, ordinal: int = 0, strides: Sequence[int] = ()):
        driver, address = emulated.emulator(), ctypes.c_size_t()
        driver.cuCtxPushCurrent_v2(None)
        assert driver.cuMemAllocAsync(ctypes.byref(address), ctypes.c_size_t(max(array.nbytes, 1)), None) == 0
        driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        driver.fake_finish()
        ctypes.memmove(address.value, np.ascontiguousarray(array).ctypes.data, array.nbytes)
        self.address, self.kind, self.ordinal, self.dtype = address.value, kind, ordinal, array.dtype
        self._shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self._strides = (ctypes.c_int64 * array.ndim)(*strides) if strides else None
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, self.ordinal

    def __dlpack__(self, stream: int | None = None) -> object:
        self.streams.append(stream)
        code = {"f": 2, "i": 0}[self.dtype.kind]
        self.raw = Raw(
            self.address, self.kind, self.ordinal, len(self._shape), code, 8 * self.dtype.itemsize, 1, self._shape,
            self._strides, 0, None, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(),
        )  # fmt: skip
        return api.PyCapsule_New(ctypes.addressof(self.raw), b"dltensor", None)

    def free(self) -> None:
        driver = emulated.emulator()
        driver.fake_finish()
        driver.cuCtxPushCurrent_v2(None)
        assert driver.cuMemFreeAsync(ctypes.c_size_t(self.address), None) == 0
        driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


def contents(result: object, **stream: int | None) -> np.ndarray:
    """Return the contents of a result. It is taken over and let go of as a consumer does."""
    capsule = result.__dlpack__(**stream)
    raw = Raw.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor"))
    api.PyCapsule_SetName(capsule, b"used_dltensor")
    assert (raw.type, raw.id) == result.__dlpack_device__() and raw.lanes == 1
    assert tuple(raw.shape[: raw.rank]) == result.shape and not raw.strides
    dtype = np.dtype({2: "f", 0: "i"}[raw.code] + str(raw.bits // 8))
    assert dtype == result.dtype
    made = np.empty(result.shape, dtype)
    emulated.emulator().fake_finish()
    ctypes.memmove(made.ctypes.data, raw.data, made.nbytes)
    raw.deleter(ctypes.addressof(raw))
    return made


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch, emulated_targets) -> Iterator[None]:
    monkeypatch.setattr(contexts, "_STREAMS", dict(contexts._STREAMS))
    for stream in (THEIRS, OTHERS):
        emulated.emulator().fake_stream(ctypes.c_void_p(stream))
    gc.collect()
    before = ral.device_blocks(), ral.live_bytes()
    yield
    gc.collect()
    emulated.check()
    assert ral.device_blocks() == before[0] and ral.live_bytes() <= before[1]  # JAX gives back late what others had


def program(x, w, i):
    return jax.nn.softmax(x @ w) + i, x.sum(), x


SPECS = ("f32[m, 4]", "f32[4, n]", "i32[]")


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("theirs", [False, True])
def test_in_and_out(target, theirs):
    """Some arguments are on the host; all results stay."""
    kind = KINDS[target]
    executable = hlo_disc.compile(program, *SPECS, target=target)
    if theirs:
        contexts.register_stream(Tensor.__module__, lambda: THEIRS)
    for m, n in ((3, 5), (1, 1), (100, 40), (0, 3)):
        x, w = (np.random.default_rng(m).standard_normal(shape).astype(np.float32) for shape in ((m, 4), (4, n)))
        on_gpu = Tensor(x, kind)
        results = executable(on_gpu, w, np.int32(2))
        on_gpu.free()
        (stream,) = on_gpu.streams
        assert (stream == THEIRS) == theirs
        if m:
            assert (emulated.emulator().fake_last_stream() == THEIRS) == theirs
        for result, right in zip(results, jax.jit(program)(x, w, np.int32(2)), strict=True):
            assert result.__dlpack_device__() == (kind, 0)
            np.testing.assert_allclose(contents(result, stream=THEIRS), right, rtol=1e-5, atol=1e-6)
        again = executable(*results[2:], w, np.int32(2))  # what came out goes in
        np.testing.assert_allclose(contents(again[2]), x)
        del results, result, again


def test_a_product_of_a_library_is_in_their_stream():
    library = emulated.products("cuda")
    emulated.register_products(least=64)
    executable = hlo_disc.compile(lambda x, w: x @ w, "f32[m, 4]", "f32[4, n]", target="library-cuda")
    contexts.register_stream(Tensor.__module__, lambda: THEIRS)
    x, w = np.arange(40, dtype=np.float32).reshape(10, 4), np.ones((4, 5), np.float32)
    on_gpu, before = Tensor(x), library.fake_multiplied()
    result = executable(on_gpu, w)
    on_gpu.free()
    assert library.fake_multiplied() == before + 1 and emulated.emulator().fake_last_stream() == THEIRS
    np.testing.assert_array_equal(contents(result, stream=THEIRS), x @ w)


def test_the_default_stream_has_a_number_of_its_own():
    executable = hlo_disc.compile(lambda x: x + 1, "f32[n]", target="emulated-cuda")
    contexts.register_stream(Tensor.__module__, lambda: 0)
    x = Tensor(np.ones(3, np.float32))
    result = executable(x)
    assert x.streams == [1] and emulated.emulator().fake_last_stream() == 0
    np.testing.assert_array_equal(contents(result, stream=1), [2, 2, 2])
    x.free()


def test_another_stream_waits():
    executable = hlo_disc.compile(lambda x: x + 1, "f32[n]", target="emulated-cuda")
    contexts.register_stream(Tensor.__module__, lambda: THEIRS)
    x = Tensor(np.ones(3, np.float32))
    result = executable(x)
    waits = emulated.emulator().fake_waits
    for stream, waited in ((THEIRS, 0), (-1, 0), (THEIRS + 8, 1), (None, 1), (1, 1)):
        before = waits()
        contents(result, stream=stream)
        assert waits() - before == waited, stream
    x.free()


def test_host_arguments_alone_have_results_on_the_host():
    executable = hlo_disc.compile(lambda x: x + 1, "f32[n]", target="emulated-cuda")
    assert isinstance(executable(np.ones(3, np.float32)), np.ndarray)


def test_a_result_that_nobody_takes_is_freed():
    executable = hlo_disc.compile(lambda x: x + 1, "f32[n]", target="emulated-cuda")
    x = Tensor(np.ones(3, np.float32))
    result = executable(x)
    capsule = result.__dlpack__(stream=1, max_version=(1, 0), dl_device=None, copy=None)
    blocks = ral.device_blocks()
    del result
    assert ral.device_blocks() == blocks
    del capsule
    assert ral.device_blocks() == blocks - 1
    x.free()


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda x: Tensor(x, ROCM), "is on device rocm:0, but the executable runs on GPU 0; move it there"),
        (lambda x: Tensor(x, CUDA, 1), "is on GPU 1, but hlo_disc runs programs on GPU 0; move it there"),
        (lambda x: Tensor(x, strides=(1, 2)), "lies on the GPU with gaps or in another order; make it contiguous"),
        (lambda x: Tensor(x.astype(np.int32)), "has dtype int32, but float32 was compiled"),
        (lambda x: Tensor(x[0]), "has rank 1"),
    ],
    ids=["other kind", "second GPU", "transposed", "dtype", "rank"],
)
def test_what_is_refused(made, message):
    executable = hlo_disc.compile(lambda x: x + 1, "f32[m, n]", target="emulated-cuda")
    tensor = made(np.ones((2, 3), np.float32))
    with pytest.raises(ArgumentError, match=message):
        executable(tensor)
    tensor.free()


@pytest.mark.parametrize("way", ["contiguous", "copy"])  # as PyTorch's, as cupy's
@pytest.mark.parametrize("target", KINDS)
def test_a_tensor_with_gaps_is_copied_by_its_framework(way, target):
    whole = np.arange(30, dtype=np.float32)
    view = np.lib.stride_tricks.as_strided(whole, (2, 3), (4, 40))
    copies = []

    def copy(self: Tensor, *order: str) -> Tensor:
        assert order == (() if way == "contiguous" else ("C",))
        copies.append(Tensor(view, KINDS[target]))
        return copies[-1]

    class Copied(Tensor):
        def _shaped(self) -> None:
            self._shape, self._strides = (ctypes.c_int64 * 2)(2, 3), (ctypes.c_int64 * 2)(1, 10)

    setattr(Copied, way, copy)
    x, y = Copied(whole, KINDS[target]), Tensor(np.ones((2, 3), np.float32), KINDS[target])
    x._shaped()
    executable = hlo_disc.compile(lambda x, y: x + y * 2, "f32[m, n]", "f32[m, n]", target=target)
    np.testing.assert_array_equal(contents(executable(x, y)), view + 2)
    np.testing.assert_array_equal(contents(executable(y, x)), view * 2 + 1)
    assert len(copies) == 2
    for tensor in (x, y, *copies):
        tensor.free()


def test_a_copy_with_gaps_is_refused():
    tensor = Tensor(np.ones((2, 3), np.float32), strides=(1, 2))
    tensor.contiguous = lambda: tensor
    executable = hlo_disc.compile(lambda x: x + 1, "f32[m, n]", target="emulated-cuda")
    with pytest.raises(ArgumentError, match="lies on the GPU with gaps or in another order; make it contiguous"):
        executable(tensor)
    tensor.free()


def test_a_program_for_the_cpu_refuses_what_is_on_a_gpu():
    executable = hlo_disc.compile(lambda x: x + 1, "f32[n]")
    tensor = Tensor(np.ones(3, np.float32))
    with pytest.raises(ArgumentError, match="is on device cuda:0, but the executable was compiled for the CPU"):
        executable(tensor)
    tensor.free()


class Functions(ctypes.Structure):
    """The C structure DLPackExchangeAPI."""

    LOOK = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
    STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
    MAKE = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("share", ctypes.c_void_p),
        ("make", MAKE),
        ("look", LOOK),
        ("current_stream", STREAM),
    ]


class Exchanged(Tensor):
    """A tensor whose type has DLPack's C functions."""


class ExchangedAdapter:
    """Implements `hlo_disc.ral.contexts.Exchanged`."""

    immutable, lazy = False, ()
    give = type = weak = deleted = wrap = resolve = threads = None

    def recording(self) -> bool:
        return True

    def recorded(self, tensor: Exchanged) -> bool:
        return tensor.dtype == np.float16

    def take(self, tensor: object, like: object, weak: bool) -> tuple[str, object]:
        return "taken", tensor


@pytest.mark.parametrize("target", KINDS)
def test_tensors_by_c_functions(target, monkeypatch):
    """C functions read tensors in place, in their framework's stream, unless the call is in another one."""
    kind = KINDS[target]

    def look(tensor: Exchanged, out: int) -> int:
        api.PyCapsule_GetPointer(Tensor.__dlpack__(tensor), b"dltensor")
        ctypes.memmove(out, ctypes.addressof(tensor.raw), Raw.context.offset)
        tensor.streams.clear()
        return 0

    def current_stream(kind: int, ordinal: int, out) -> int:
        out[0] = THEIRS
        return 0

    functions = Functions(
        1, 2, None, None, None, Functions.MAKE(lambda *_: -1), Functions.LOOK(look), Functions.STREAM(current_stream)
    )
    later = Functions(2, 0, ctypes.addressof(functions))
    capsule = api.PyCapsule_New(ctypes.addressof(later), b"dlpack_exchange_api", None)
    # A type of its own for each case: what is known of a type is known for good.
    made = type("Exchanged", (Exchanged,), {"__module__": f"{__name__}_{kind}", "__dlpack_c_exchange_api__": capsule})
    made.kept = functions, later
    monkeypatch.setitem(contexts._CONTEXTS, f"{__name__}_{kind}", lambda _: ExchangedAdapter())
    executable = hlo_disc.compile(lambda x, y: x * 2 + y, "f32[n]", "f32[n]", target=target)
    x = np.arange(3, dtype=np.float32)
    mine, other = made(x, kind), Tensor(x, kind)
    try:
        name, result = executable(mine, mine)
        assert name == "taken" and mine.streams == []
        np.testing.assert_array_equal(contents(result, stream=THEIRS), x * 3)
        name, result = executable(mine, other)
        assert other.streams == [THEIRS] and mine.streams == []
        np.testing.assert_array_equal(contents(result, stream=THEIRS), x * 3)
        contexts.register_stream(Tensor.__module__, lambda: OTHERS)
        name, result = executable(other, mine)  # in another stream, which has to wait for this one
        assert mine.streams == [OTHERS] and emulated.emulator().fake_last_stream() == OTHERS
        np.testing.assert_array_equal(contents(result, stream=THEIRS), x * 3)
        mine.ordinal = 1
        for given in ((mine, x), (x, mine), (other, mine)):
            with pytest.raises(ArgumentError, match="'[xy]' is on GPU 1, but hlo_disc runs programs on GPU 0"):
                executable(*given)
        mine.ordinal = 0
        made.dtype = np.dtype(np.float16)
        del mine.dtype
        with pytest.raises(hlo_disc.ArgumentError, match="'x' requires gradients"):
            executable(mine, other)
    finally:
        for tensor in (mine, other):
            tensor.free()
