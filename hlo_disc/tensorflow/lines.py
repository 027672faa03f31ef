"""The user's line of an op of a graph."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from hlo_disc.tensorflow.types import Operation


_HERE = os.path.dirname(tf.__file__)
_OURS = os.path.dirname(os.path.dirname(__file__))


def line_of(op: Operation) -> str:
    """Return the user's line that created an op; the op's name in the graph if no line is known."""
    for frame in reversed(op.traceback or ()):
        if not frame.filename.startswith((_HERE, _OURS)) and "site-packages" not in frame.filename:
            return f"{frame.filename}:{frame.lineno}"
    return op.name


def at_line(op: Operation) -> str:
    """Return " at " and the line of `line_of`, for messages; "" if there is none."""
    line = line_of(op)
    return f" at {line}" if line else ""
