"""What library ops compute, in numpy."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from hlo_disc.errors import UnsupportedOpError


def custom_call(*arrays: np.ndarray, **attrs: Any) -> NoReturn:
    raise UnsupportedOpError(f"custom call @{attrs['target']}: native code has no meaning in numpy")


def fft(x: np.ndarray, *, transform: str, length: tuple[int, ...]) -> np.ndarray:
    """In double precision, rounded once."""
    axes = tuple(range(x.ndim - len(length), x.ndim))
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    half = (*length[:-1], length[-1] // 2 + 1 if length[-1] else 0)
    shape = (*x.shape[: axes[0]], *(half if transform == "RFFT" else length))
    single = x.dtype.itemsize == (4 if transform == "RFFT" else 8)
    kinds = ("float32", "float64") if transform == "IRFFT" else ("complex64", "complex128")
    dtype = np.dtype(kinds[not single])
    if 0 in shape or 0 in x.shape:
        return np.zeros(shape, dtype)
    result: np.ndarray
    match transform:
        case "FFT":
            result = np.fft.fftn(wide, axes=axes)
        case "IFFT":
            result = np.fft.ifftn(wide, axes=axes)
        case "RFFT":
            result = np.fft.rfftn(wide, axes=axes)
        case _:
            result = np.fft.irfftn(wide, s=length, axes=axes)
    return result.astype(dtype)
