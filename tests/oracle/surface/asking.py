"""The lines that ask about sizes, JAX's own lines included. Statistics name the user's line that called JAX instead."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from unittest import mock

import jax

import hlo_disc
from hlo_disc.import_.jax_edge import size_questions

_JAX = os.path.join(os.path.dirname(jax.__file__), "")
_OURS = os.path.join(os.path.dirname(hlo_disc.__file__), "")
# Where JAX's sizes are computed with and compared: what called it is of interest.
_PLUMBING = ("_src/export/shape_poly.py", "_src/core.py", "_src/util.py")


@contextmanager
def innermost_lines() -> Iterator[None]:
    """Let statistics name the line that asked itself, as "numpy/reductions.py:12 _var"."""
    with mock.patch.object(size_questions, "user_line", _innermost):
        yield


def _innermost() -> str:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_OURS) and not name.endswith(_PLUMBING) and os.sep in name:
            shown = name.removeprefix(_JAX).removeprefix("_src/") if name.startswith(_JAX) else os.path.basename(name)
            return f"{shown}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return ""
