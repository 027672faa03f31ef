"""Frameworks that keep tensors on the emulated GPU, with streams of their own, as hard on a runtime as real ones.

Their memory is handed out again in the stream that it was taken in as soon as a tensor is gone, without a wait: what
other streams do with a tensor has to be told (`Tensor.used`), or waited for. One of them, whose tensors are `Streamed`,
says which stream is the current one of a thread, as PyTorch does; one does not, as JAX does not (`Streamless`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import threading
from collections import defaultdict
from collections.abc import Iterator

import emulated
import numpy as np

CUDA, ROCM = 2, 10  # DLPack's numbers of devices
KINDS = {"emulated-cuda": CUDA, "emulated-ptx": CUDA, "emulated-rocm": ROCM}
MODULE = "streamed_framework"  # that defines the type of the tensors with streams
_here = threading.local()


class DriverError(Exception):
    """An error: a call of the driver that a framework made has failed."""


class Raw(ctypes.Structure):
    """The C structure DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("type", ctypes.c_int32),
        ("id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]


# Of the types that numpy does not have itself; 7 and on are floats of 8 bits.
_CODES = {"bfloat16": 4, "float8_e3m4": 7, "float8_e4m3": 8, "float8_e4m3b11fnuz": 9, "float8_e4m3fn": 10,
          "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13, "float8_e8m0fnu": 14}  # fmt: skip
api = ctypes.PyDLL(None)  # others say of the functions of `ctypes.pythonapi` what their arguments are
api.PyCapsule_New.restype, api.PyCapsule_New.argtypes = (
    ctypes.py_object,
    [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
)
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]


@contextlib.contextmanager
def nothing_is_left(seed: int) -> Iterator[None]:
    """Use a hostile driver. Check that it ends with no failure, and with as many contexts as it began with."""
    driver = emulated.emulator()
    before = driver.fake_pushed()
    with emulated.hostile(seed):
        yield
        driver.fake_fail(0, 0)
        gc.collect()
    emulated.check()
    assert driver.fake_pushed() == before


@contextlib.contextmanager
def context(device: int = 0) -> Iterator[ctypes.CDLL]:
    """Yield the driver, with a GPU's context on this thread."""
    driver = emulated.emulator()
    if driver.cuCtxPushCurrent_v2(ctypes.c_void_p(driver.fake_context(device))):
        raise DriverError("cuCtxPushCurrent_v2")
    try:
        yield driver
    finally:
        driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


def call(name: str, *arguments: object, device: int = 0) -> None:
    """Call a function of the driver in a GPU's context; integers are words."""
    given = [ctypes.c_size_t(x) if isinstance(x, int) else x for x in arguments]
    with context(device) as driver:
        if error := getattr(driver, name)(*given):
            raise DriverError(f"{name}: {error}")


def made(name: str, *arguments: object, device: int = 0) -> int:
    """Call a function that leaves a handle at its first argument, and return the handle."""
    handle = ctypes.c_size_t()
    call(name, ctypes.byref(handle), *arguments, device=device)
    return handle.value


def here() -> Framework:
    """Return this thread's framework."""
    return _here.framework


def current_stream() -> int:
    """Return the current stream of this thread's framework."""
    return here().current


def code_of(dtype: np.dtype) -> int:
    """Return DLPack's number of a kind of elements of whole bytes; -1 where it has none."""
    return _CODES.get(dtype.name, {"f": 2, "i": 0, "u": 1, "c": 5, "b": 6}.get(dtype.kind, -1))


def has(dtype: np.dtype) -> bool:
    """Return whether there are tensors of this type."""
    return code_of(dtype) >= 0


class Framework:
    """A framework of one thread and of one test: `close` it.

    kind, device: the kind of its tensors' memory, and the number of their GPU.
    """

    def __init__(self, streams: int = 3, kind: int = CUDA, device: int = 0):
        self.kind, self.device = kind, device
        self.call, self.made = functools.partial(call, device=device), functools.partial(made, device=device)
        self.streams = [0, *(self.made("cuStreamCreate", 1) for _ in range(streams - 1))]
        self.current = self.streams[-1]
        self._kept = defaultdict[tuple[int, int], list[int]](list)  # by stream and size
        self._events: list[int] = []
        self._pinned: list[np.ndarray] = []
        _here.framework = self

    def pinned(self, array: np.ndarray) -> np.ndarray:
        """Return a copy in memory that is pinned as long as this framework is there."""
        memory = np.zeros(max(array.nbytes, 1), np.uint8)
        emulated.emulator().fake_pinned(ctypes.c_size_t(memory.ctypes.data), ctypes.c_size_t(memory.nbytes))
        self._pinned.append(memory)
        copy = memory[: array.nbytes].view(array.dtype).reshape(array.shape)
        copy[...] = array
        return copy

    def event(self, stream: int) -> int:
        """Record an event behind what the stream has, and return it."""
        event = self._events.pop() if self._events else self.made("cuEventCreate", 2)
        self.call("cuEventRecord", event, stream)
        return event

    def order(self, later: int, earlier: int) -> None:
        """Let one stream wait for another."""
        if later != earlier:
            event = self.event(earlier)
            self.call("cuStreamWaitEvent", later, event, 0)
            self._events.append(event)

    def switch(self, stream: int) -> None:
        """Make a stream the current one. It waits for the one before."""
        self.order(stream, self.current)
        self.current = stream

    def new_stream(self) -> int:
        self.streams.append(self.made("cuStreamCreate", 1))
        return self.streams[-1]

    def destroy(self, stream: int) -> None:
        """Forget a stream, and the memory that is kept in it. The current stream waits for the work of this one."""
        self.streams.remove(stream)
        if self.current == stream:
            self.current = self.streams[0]
        self.order(self.current, stream)
        for (of, _), addresses in self._kept.items():
            while of == stream and addresses:
                self.call("cuMemFreeAsync", addresses.pop(), stream)
        self.call("cuStreamDestroy_v2", stream)

    def take(self, size: int) -> int:
        kept = self._kept[self.current, size]
        return kept.pop() if kept else self.made("cuMemAllocAsync", max(size, 1), self.current)

    def give_back(self, address: int, size: int, stream: int) -> None:
        if stream in self.streams:
            self._kept[stream, size].append(address)
        else:  # of what it was taken in nothing is left: the others are waited for
            self.finish()
            self.call("cuMemFreeAsync", address, self.streams[0])

    def put(self, array: np.ndarray, kind: type[Tensor] | None = None, offset: int = 0) -> Tensor:
        """Return a tensor that begins so many bytes behind its memory's start, and is written in the current stream."""
        tensor = (kind or Streamed)(self, array, offset)
        self.call("cuMemcpyHtoDAsync_v2", tensor.address, self.pinned(array).ctypes.data, array.nbytes, self.current)
        return tensor

    def read(self, address: int, array: np.ndarray, stream: int) -> np.ndarray:
        """Return an array like this one that gets the memory's values when the stream has come to it."""
        memory = self.pinned(np.full_like(array, 77))
        self.call("cuMemcpyDtoHAsync_v2", memory.ctypes.data, address, array.nbytes, stream)
        return memory

    def finish(self) -> None:
        self.call("cuCtxSynchronize")

    def close(self) -> None:
        self.finish()
        for (stream, _), addresses in self._kept.items():
            for address in addresses:
                self.call("cuMemFreeAsync", address, stream)
        self._kept.clear()
        for stream in self.streams[1:]:
            self.call("cuStreamDestroy_v2", stream)
        self.finish()
        for memory in self._pinned:
            emulated.emulator().fake_pinned(ctypes.c_size_t(memory.ctypes.data), ctypes.c_size_t(0))


class Tensor:
    """A tensor of a framework. used: streams besides its own that it was given to."""

    def __init__(self, framework: Framework, array: np.ndarray, offset: int):
        self.framework, self.array, self.stream = framework, array.copy(), framework.current
        self.size = array.nbytes + offset
        self.base = framework.take(self.size)
        self.address = self.base + offset
        self.dtype, self.used = array.dtype, set[int]()
        self._shape = (ctypes.c_int64 * array.ndim)(*array.shape)

    def __del__(self) -> None:
        if hasattr(self, "base"):
            streams = self.framework.streams
            for stream in self.used if self.stream in streams else ():
                self.framework.order(self.stream, stream if stream in streams else self.framework.current)
            self.framework.give_back(self.base, self.size, self.stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.framework.kind, self.framework.device

    def __dlpack__(self, stream: int | None = None) -> object:
        """Return a capsule that is ready for this stream, where the framework takes care of that."""
        self.prepare(0 if stream in (None, 1) else stream)
        code = code_of(self.dtype)
        kind, bits, nothing = self.framework.kind, 8 * self.dtype.itemsize, ctypes.CFUNCTYPE(None, ctypes.c_void_p)()
        place = self.address, kind, self.framework.device
        self.raw = Raw(*place, len(self._shape), code, bits, 1, self._shape, None, 0, None, nothing)
        return api.PyCapsule_New(ctypes.addressof(self.raw), b"dltensor", None)

    def prepare(self, stream: int) -> None:
        raise NotImplementedError


class Streamed(Tensor):
    """A tensor that is used in the framework's current stream, which the consumer knows."""

    __module__ = MODULE

    def prepare(self, stream: int) -> None:
        if stream != self.framework.current:
            self.framework.order(stream, self.framework.current)
        elif stream != self.stream:
            self.used.add(stream)


class Streamless(Tensor):
    """A tensor that is used in any stream, which then waits for the current one.

    Its consumer has to be done with it when it lets go.
    """

    __module__ = "streamless_framework"

    def prepare(self, stream: int) -> None:
        self.framework.order(stream, self.framework.current)


class Taken:
    """A result that a consumer holds: `read` it, and `drop` it."""

    def __init__(self, framework: Framework, result: object, stream: int | None):
        capsule = result.__dlpack__(stream=stream)
        self.raw = Raw.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor"))
        api.PyCapsule_SetName(capsule, b"used_dltensor")
        self.framework, self.shape, self.dtype = framework, result.shape, np.dtype(result.dtype)

    def read(self, stream: int) -> np.ndarray:
        return self.framework.read(self.raw.data, np.empty(self.shape, self.dtype), stream)

    def copy(self) -> np.ndarray:
        """Return a copy of the result after all work is done, and drop the result."""
        self.framework.finish()
        made = np.empty(self.shape, self.dtype)
        ctypes.memmove(made.ctypes.data, self.raw.data, made.nbytes)
        self.drop()
        return made

    def drop(self) -> None:
        self.raw.deleter(ctypes.addressof(self.raw))
