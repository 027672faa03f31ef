"""The leaves of the nests of arguments and results, beside the numbers of inputs and outputs."""

from __future__ import annotations

from typing import Any

from hlo_disc.frozen import frozen


@frozen
class Constant:
    """A leaf that is the same at all calls: None, a bool, an int, a float or a string."""

    value: Any


@frozen
class Number:
    """A leaf that is a Python number: an input, by its shape (n, 0) or (0, -n), or the element of an output.

    natural: whether it must not be negative.
    """

    number: int
    natural: bool = False
