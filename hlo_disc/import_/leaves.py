"""Leaves of the nests that programs take and return, beside the numbers of their inputs and outputs."""

from __future__ import annotations

from typing import Any

from hlo_disc.frozen import frozen


@frozen
class Constant:
    """A leaf that is the same at all calls: None, a bool, an int, a float or a string."""

    value: Any


@frozen
class Number:
    """A leaf that is a number of Python's: this input, by its shape (n, 0) or (0, -n), or this output, its element.

    natural: whether it must not be negative.
    """

    number: int
    natural: bool = False
