"""The errors that users see. Each says what happened, both values, where (the user's line), and what to do about it."""

import re

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LINES, _LENGTH = 5, 500  # of what a message quotes, which may be of any length


class HloDiscError(Exception):
    """Base of every error that hlo_disc raises on purpose."""


class ParseError(HloDiscError, ValueError):
    """The input is no StableHLO module: bad text, truncated bytecode, no `main`."""


class UnsupportedOpError(HloDiscError):
    """Raised for what cannot be compiled; the message names the op, its types, the user's line, and what to do."""

    def __init__(self, message: str = ""):
        lines = _COLOUR.sub("", message).splitlines()[:_LINES]
        super().__init__("\n".join(x if len(x) <= _LENGTH else f"{x[:_LENGTH]}…" for x in lines))


class ArgumentError(HloDiscError, TypeError):
    """A call with too few or too many arguments, a wrong dtype or a wrong rank."""


class ShapeError(HloDiscError, ValueError):
    """Sizes that break a guard or cannot agree; the message names argument, dim and both values."""


class SizeOverflowError(HloDiscError, OverflowError):
    """A size is given to a type of numbers that does not hold it, as int8 does not hold 300; the message has both."""


class CallError(HloDiscError, RuntimeError):
    """A library function that a program calls failed; the message names the op, its source line and the reason."""


class DeviceError(HloDiscError, RuntimeError):
    """A GPU or its driver is missing, too old or failing; the message has the driver's words, and the kernel's name."""


class FormatError(HloDiscError, ValueError):
    """A saved executable of another format version, for another CPU, or damaged."""


class OutOfMemoryError(HloDiscError, MemoryError):
    """The allocator could not provide what a call needs; the message says how many bytes."""


class CompileError(HloDiscError):
    """An invariant between stages is broken: a bug in hlo_disc, reported instead of a wrong result."""


class FallbackWarning(UserWarning):
    """Warns that `jax.jit` or PyTorch runs what hlo_disc cannot compile; the message names the op and the line."""
