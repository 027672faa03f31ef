"""The PyTorch context: torch.Tensor in and out by pointer, through DLPack's C functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch

from hlo_disc.errors import ArgumentError

if TYPE_CHECKING:
    from hlo_disc.ral.contexts import Tensor


_BASE = vars(torch._C.TensorBase)  # where Python need not look for it


def adapter(kind: type) -> _TorchAdapter | None:
    """Return the adapter for plain tensors; None for other objects.

    Raises ArgumentError for subclasses, such as those that trace: their memory does not have their contents.
    """
    if not issubclass(kind, torch.Tensor) or not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        return None  # tensors of a torch before 2.10 are like any other with DLPack
    if kind in (torch.Tensor, torch.nn.Parameter):
        return _TorchAdapter()
    raise ArgumentError(
        f"an argument is a {kind.__module__}.{kind.__qualname__}: of tensors, an executable takes plain "
        "torch.Tensors and Parameters"
    )


class _TorchAdapter:
    """Implements `hlo_disc.ral.contexts.Exchanged`."""

    immutable = False

    def __init__(self) -> None:
        self.threads: Callable[[], int] = torch.get_num_threads
        self.recording: Callable[[], bool] = torch.is_grad_enabled
        self.recorded = _BASE["requires_grad"]
        self.lazy = (_BASE["is_neg"], _BASE["is_conj"])

    def resolve(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.resolve_conj().resolve_neg()

    def give(self, tensor: torch.Tensor) -> object:
        return tensor.__dlpack__()

    def type(self, tensor: torch.Tensor) -> None:
        """Return None: no object determines a tensor's type."""

    def weak(self, tensor: torch.Tensor) -> bool:
        """Return False: tensors have no weak types, as JAX has."""
        return False

    def deleted(self, tensor: torch.Tensor) -> bool:
        """Return False: nothing takes a tensor's memory away."""
        return False

    def wrap(self, array: np.ndarray, like: torch.Tensor | None, weak: bool = False) -> np.ndarray:
        """Return numpy's array as it is: torch does not have its dtype."""
        return array

    def take(self, tensor: Tensor, like: torch.Tensor | None, weak: bool) -> torch.Tensor:
        return torch.from_dlpack(tensor)
