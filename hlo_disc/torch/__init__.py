"""PyTorch: `torch.compile(model, backend="hlo_disc")`."""

from hlo_disc.torch.backend import backend

__all__ = ["backend"]
