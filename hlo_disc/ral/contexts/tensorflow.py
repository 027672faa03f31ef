"""The TensorFlow context: eager tensors in and out of the standalone context."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def adapter(kind: type) -> _TensorFlowAdapter | None:
    """The adapter for eager tensors; None for tensors of graphs and other types."""
    return _TensorFlowAdapter() if kind is type(tf.constant(0)) else None


class _TensorFlowAdapter:
    """Implements `hlo_disc.ral.contexts.Adapter`."""

    immutable = True

    def give(self, array: Any) -> Any:
        """The contents of a dtype that the buffer protocol lacks."""
        return np.asarray(array.numpy())  # which is a scalar of numpy's where the rank is 0

    def type(self, array: Any) -> object:
        """Nothing says dtype and shape at once."""
        return None

    def weak(self, array: Any) -> bool:
        """TensorFlow has no weak types."""
        return False

    def deleted(self, array: Any) -> bool:
        """A tensor keeps its memory."""
        return False

    def wrap(self, array: np.ndarray, like: Any, weak: bool = False) -> Any:
        """A tensor over the memory of a result, or with a copy where DLPack lacks the dtype."""
        try:
            return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
        except (BufferError, RuntimeError, tf.errors.OpError):
            return tf.constant(array)

    def take(self, tensor: Any, like: Any, weak: bool) -> Any:
        """A tensor over a GPU's memory."""
        return tf.experimental.dlpack.from_dlpack(tensor.__dlpack__())
