"""The TensorFlow context: eager tensors in and out of the standalone context."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from hlo_disc.ral.contexts import Tensor


def adapter(kind: type) -> _TensorFlowAdapter | None:
    """Return the adapter for eager tensors; None for tensors of graphs and other types."""
    return _TensorFlowAdapter() if kind is type(tf.constant(0)) else None


class _TensorFlowAdapter:
    """Implements `hlo_disc.ral.contexts.Adapter`."""

    immutable = True

    def give(self, array: tf.Tensor) -> np.ndarray:
        """Return the contents of a dtype that the buffer protocol lacks."""
        return np.asarray(array.numpy())  # which is a scalar of numpy's where the rank is 0

    def type(self, array: tf.Tensor) -> object:
        """Return None: no object of TensorFlow's determines dtype and shape at once."""
        return None

    def weak(self, array: tf.Tensor) -> bool:
        """Return False: TensorFlow has no weak types."""
        return False

    def deleted(self, array: tf.Tensor) -> bool:
        """Return False: a tensor keeps its memory."""
        return False

    def wrap(self, array: np.ndarray, like: tf.Tensor | None, weak: bool = False) -> tf.Tensor:
        """Return a tensor over the memory of a result, or with a copy if DLPack lacks the dtype."""
        try:
            return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
        except (BufferError, RuntimeError, tf.errors.OpError):
            return tf.constant(array)

    def take(self, tensor: Tensor, like: tf.Tensor | None, weak: bool) -> tf.Tensor:
        """Return a tensor over a GPU's memory."""
        return tf.experimental.dlpack.from_dlpack(tensor.__dlpack__())
