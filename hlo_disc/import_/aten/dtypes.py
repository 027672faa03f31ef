"""PyTorch's element types as numpy's."""

from __future__ import annotations

import numpy as np
import torch

from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, COMPLEX_PARTS, FLOATS, INTEGERS, bit_width

# Those that both have, by the same names. What has fewer than 8 bits is packed in PyTorch.
DTYPES: dict[torch.dtype, np.dtype] = {
    getattr(torch, dtype.name): dtype
    for dtype in (BOOL, *INTEGERS, *FLOATS, *COMPLEX_PARTS)
    if hasattr(torch, dtype.name) and (dtype == BOOL or bit_width(dtype) >= 8)
}
