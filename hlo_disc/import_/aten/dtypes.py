"""PyTorch's element types as numpy's."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

# Those that both have; ml_dtypes names what numpy has not.
_NAMES = (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu",
)  # fmt: skip

DTYPES: dict[torch.dtype, np.dtype] = {
    getattr(torch, name): np.dtype(getattr(ml_dtypes, name, None) or name) for name in _NAMES if hasattr(torch, name)
}
