"""The PyTorch context: tensors on the CPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

_BY_BITS = {torch.bfloat16: (torch.uint16, np.uint16, ml_dtypes.bfloat16)}
_BACK = {np.dtype(ml_dtypes.bfloat16): (np.uint16, torch.bfloat16)}


class _TorchAdapter:
    """Implements `hlo_disc.ral.contexts.Adapter`."""

    immutable = False

    def give(self, array: torch.Tensor) -> Any:
        x = array.detach().resolve_conj().resolve_neg()
        if x.dtype in _BY_BITS:
            bits, _, dtype = _BY_BITS[x.dtype]
            return x.contiguous().view(bits).numpy().view(dtype)
        return x.numpy()

    def type(self, array: torch.Tensor) -> object:
        return None

    def weak(self, array: torch.Tensor) -> bool:
        return False

    def deleted(self, array: torch.Tensor) -> bool:
        return False

    def wrap(self, array: np.ndarray, like: Any, weak: bool = False) -> torch.Tensor:
        if array.dtype in _BACK:
            bits, dtype = _BACK[array.dtype]
            return torch.from_numpy(array.view(bits)).view(dtype)
        return torch.from_numpy(array)

    def take(self, tensor: Any, weak: bool) -> torch.Tensor:
        return torch.from_dlpack(tensor)


def adapter(kind: type) -> _TorchAdapter | None:
    """The adapter for tensors."""
    return _TorchAdapter() if issubclass(kind, torch.Tensor) else None
