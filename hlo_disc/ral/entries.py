"""Records that native code reads.

Those of the fast path are tuples for it: `binding/jit/fast_path.cc` has the positions of their fields, and a test
compares them. They are made once for many calls, and a call only reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Kinds = tuple[type, ...]  # the types of a call's arguments, or of its leaves


class Plain(NamedTuple):
    """A program that takes all arguments of a call as they are. unflatten: nests its results; None for the only one."""

    run: Callable[..., Any]
    unflatten: Callable[[Any], Any] | None


class ByJax(NamedTuple):
    """A function that runs in place of a program.

    tally: counts a call. seen: types of which the arguments must show one; None if they may have any.
    """

    run: Callable[..., Any]
    tally: Callable[[], int]
    seen: frozenset[type] | None


class ConversionAt(NamedTuple):
    """A function that converts one argument or one result. place: its number."""

    place: int
    convert: Callable[[Any], Any]


class Handlers(NamedTuple):
    """The addresses of a library call's XLA FFI handlers by stage, 0 if there is none."""

    instantiate: int = 0
    prepare: int = 0
    initialize: int = 0
    execute: int = 0
