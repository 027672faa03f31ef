"""Reads from a Python frame's code what it is doing: who asks, what it calls, whether it uses the result."""

from __future__ import annotations

import dis
import inspect
import os
import sys
from pathlib import Path
from types import CodeType, FrameType

import jax
import jaxlib
from jax._src import core, source_info_util
from jax._src.export import shape_poly

_LIBRARIES = tuple(os.path.dirname(str(module.__file__)) + os.sep for module in (jax, jaxlib))
_OURS = str(Path(__file__).parents[2]) + os.sep
_NOT_USERS = (*_LIBRARIES, _OURS)
_LOWERING = str(Path(__file__).parents[1] / "jax.py")
_COMPARISONS = (dis.opmap["COMPARE_OP"], dis.opmap["CONTAINS_OP"])


def user_line() -> str:
    """Return the innermost line that is neither JAX's nor ours, as "model.py:12"; else ""."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name == _LOWERING:  # all of the user's is above it, but for what JAX noted of the operation
            noted = source_info_util.user_frames(source_info_util.current().traceback)
            found = next((f for f in noted if not f.file_name.startswith(_OURS)), None)
            return f"{os.path.basename(found.file_name)}:{found.start_line}" if found else ""
        if not name.startswith(_NOT_USERS) and not _is_generated(frame.f_code):
            return f"{os.path.basename(name)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def asked_by_user() -> bool:
    """Whether user code asks: the frame that is two below, or the user of the dataclass whose method that frame is."""
    asking = sys._getframe(2)
    if asking.f_code.co_filename.startswith(_NOT_USERS):
        return False
    frame: FrameType | None = asking
    while frame is not None and _is_generated(frame.f_code):
        frame = frame.f_back
    return frame is not None and not frame.f_code.co_filename.startswith(_NOT_USERS)


def _is_generated(code: CodeType) -> bool:
    """Whether it is a method of a dataclass, which Python has written."""
    return code.co_filename == "<string>" and code.co_name.startswith("__")


def is_lookup(frame: FrameType) -> bool:
    """Whether a frame asks for an equality only to find an entry of a table.

    JAX's tables have sizes in their keys, and compare keys whose hashes agree in a few bits. Nobody wants to know then
    whether a size is 3. Such a comparison comes from the `__eq__` of a larger object, or from inside a call, and is not
    written in the running code.
    """
    code = frame.f_code
    if code.co_name == "__ne__" and code.co_filename == shape_poly.__file__:
        return frame.f_back is not None and is_lookup(frame.f_back)
    if code.co_filename.startswith(_LIBRARIES):
        return code.co_name == "__eq__" or code.co_code[frame.f_lasti] not in _COMPARISONS
    return code.co_name == "__eq__" and _is_generated(code)


def asking_frame(frame: FrameType) -> FrameType:
    """Return the frame that asks: this one, or the caller of JAX's comparison of shapes in which it is."""
    while frame.f_code.co_filename == core.__file__ and frame.f_back is not None:
        frame = frame.f_back
    return frame


def is_dropped(frame: FrameType) -> bool:
    """Whether a frame drops the result of its present call."""
    code, at = frame.f_code.co_code, frame.f_lasti + 2
    while code[at] == dis.opmap["CACHE"]:
        at += 2
    return code[at] == dis.opmap["POP_TOP"]


def callee(frame: FrameType) -> object:
    """Return the function that a frame is calling, if names and attributes tell; else None."""
    *before, call = (i for i in dis.get_instructions(frame.f_code) if i.offset <= frame.f_lasti)
    while before and before[-1].opname in ("PRECALL", "KW_NAMES"):
        before.pop()
    missing = {"CALL": call.arg, "CALL_KW": (call.arg or 0) + 1}.get(call.opname)  # from 3.13 on, with keywords' names
    while before and missing:
        pushed = before.pop()
        if pushed.opcode in (*dis.hasjrel, *dis.hasjabs):
            return None
        missing -= dis.stack_effect(pushed.opcode, pushed.arg)
    if before and before[-1].opname == "PUSH_NULL":  # behind the function from 3.13 on
        before.pop()
    names = []
    while before and before[-1].opname in ("LOAD_ATTR", "LOAD_METHOD"):
        names.append(before.pop().argval)
    if missing != 0 or not before or before[-1].opname not in ("LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME"):
        return None
    found = {**frame.f_globals, **frame.f_locals}.get(before[-1].argval)
    for name in reversed(names):
        found = inspect.getattr_static(found, name, None)
    return found
