"""A GPU's memory, a stream of it and tensors there, by its driver alone."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

_DLPACK = {"cuda": 2, "hip": 10}
_CALLS = {
    "cuda": {"create": "cuStreamCreate", "wait": "cuStreamSynchronize", "allocate": "cuMemAllocAsync",
             "free": "cuMemFreeAsync", "to": "cuMemcpyHtoDAsync_v2", "from": "cuMemcpyDtoHAsync_v2"},
    "hip": {"create": "hipStreamCreateWithFlags", "wait": "hipStreamSynchronize", "allocate": "hipMallocAsync",
            "free": "hipFreeAsync", "to": "hipMemcpyHtoDAsync", "from": "hipMemcpyDtoHAsync"},
}  # fmt: skip


class Raw(ctypes.Structure):
    """DLPack's DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("type", ctypes.c_int32), ("id", ctypes.c_int32), ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]  # fmt: skip


_api = ctypes.PyDLL(None)  # others say of the functions of `ctypes.pythonapi` what their arguments are
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Gpu:
    """The first GPU's memory and a stream, by the driver alone."""

    def __init__(self, kind: str, library: str):
        self.kind, self._driver = kind, ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        if kind == "cuda":
            self._check("cuInit", ctypes.c_uint(0))
            device, context = ctypes.c_int(), ctypes.c_void_p()
            self._check("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
            self._check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self._check("cuCtxPushCurrent_v2", context)
        stream = ctypes.c_void_p()
        self._call("create", ctypes.byref(stream), ctypes.c_uint(1))
        self.stream = stream.value or 0

    def _check(self, name: str, *args: Any) -> None:
        if error := getattr(self._driver, name)(*args):
            raise RuntimeError(f"{name}: error {error}")

    def _call(self, name: str, *args: Any) -> None:
        self._check(_CALLS[self.kind][name], *args)

    def wait(self) -> None:
        self._call("wait", ctypes.c_void_p(self.stream))

    def allocate(self, size: int) -> int:
        address = ctypes.c_size_t()
        self._call("allocate", ctypes.byref(address), ctypes.c_size_t(max(size, 1)), ctypes.c_void_p(self.stream))
        return address.value

    def free(self, address: int) -> None:
        self._call("free", ctypes.c_size_t(address), ctypes.c_void_p(self.stream))

    def copy_in(self, address: int, array: np.ndarray) -> None:
        at, size = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
        self._call("to", ctypes.c_size_t(address), at, size, ctypes.c_void_p(self.stream))
        self.wait()

    def copy_out(self, result: Any) -> np.ndarray:
        """Of a tensor on the GPU that the runtime made."""
        capsule = result.__dlpack__(stream=self.stream)
        raw = Raw.from_address(_api.PyCapsule_GetPointer(capsule, b"dltensor"))
        made = np.empty(result.shape, result.dtype)
        at, size = ctypes.c_void_p(made.ctypes.data), ctypes.c_size_t(made.nbytes)
        if made.size:
            self._call("from", at, ctypes.c_size_t(raw.data), size, ctypes.c_void_p(self.stream))
        self.wait()
        return made


class Tensor:
    """An array in the GPU's memory."""

    def __init__(self, gpu: Gpu, array: np.ndarray):
        self.gpu, self.address = gpu, gpu.allocate(array.nbytes)
        gpu.copy_in(self.address, np.ascontiguousarray(array))
        code = 4 if array.dtype.name == "bfloat16" else {"f": 2, "i": 0}[array.dtype.kind]
        self._shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        self._raw = Raw(
            self.address, _DLPACK[gpu.kind], 0, array.ndim, code, 8 * array.dtype.itemsize, 1, self._shape,
            None, 0, None, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(),
        )  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK[self.gpu.kind], 0

    def __dlpack__(self, stream: int | None = None) -> object:
        return _api.PyCapsule_New(ctypes.addressof(self._raw), b"dltensor", None)

    def free(self) -> None:
        self.gpu.free(self.address)


def loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
