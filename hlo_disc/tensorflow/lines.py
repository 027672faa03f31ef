"""The user's line of an op of a graph."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

_HERE = os.path.dirname(tf.__file__)
_OURS = os.path.dirname(os.path.dirname(__file__))


def line_of(op: Any) -> str:
    """The user's line that made an op, else what the graph calls it."""
    for frame in reversed(op.traceback or ()):
        if not frame.filename.startswith((_HERE, _OURS)) and "site-packages" not in frame.filename:
            return f"{frame.filename}:{frame.lineno}"
    return op.name


def at_line(op: Any) -> str:
    """Return " at " and the line of `line_of`, for messages; "" where there is none."""
    line = line_of(op)
    return f" at {line}" if line else ""
