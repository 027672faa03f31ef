"""Reads from a Python frame's code what it is doing: who asks, what it calls, whether it uses the result."""

from __future__ import annotations

import dis
import inspect
from types import FrameType

from jax._src import core


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
