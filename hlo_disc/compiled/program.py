"""A compiled program as plain data: the compiler makes it, `saved.py` writes it, and the runtime runs it.

Annotations are evaluated, because the file's reader uses them and parsing them would slow down loading. Dataclasses
would, too: their methods are compiled at each import.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from hlo_disc.abi import EnvLayout


class InputRow(NamedTuple):
    """An argument; its shape as dim expressions."""

    name: str
    dtype: str
    shape: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}: {_type(self)}"


class OutputRow(NamedTuple):
    """A result; its shape as dim expressions."""

    dtype: str
    shape: tuple[str, ...]

    def __str__(self) -> str:
        return _type(self)


def _type(row: InputRow | OutputRow) -> str:
    return f"{row.dtype}[{', '.join(row.shape)}]"


class GuardRow(NamedTuple):
    """A condition on two dim expressions, and the message when it fails: `{k}` in that is the value of args[k]."""

    lhs: str
    relation: str
    rhs: str
    message: str
    args: tuple[str, ...]
    overflow: bool = False


class PackRow(NamedTuple):
    """An operand that is kept in another form.

    kind, number: "input" or "constant", and which of them. size: bytes of the packed form. function: what makes it.
    """

    kind: str
    number: int
    size: int
    function: str


class Attribute(NamedTuple):
    """An attribute of a library call, as the XLA FFI has them.

    kind: "scalar" or "array", with the bytes of its elements of type `dtype` as hexadecimal digits in `text`; "string",
        with its `text`; "dictionary", with `entries`; or "callable", with `callback`, a Python function, which no file
        can hold.
    """

    name: str
    kind: str
    dtype: str = ""
    text: str = ""
    entries: "tuple[Attribute, ...]" = ()
    callback: Any = None


class BufferType(NamedTuple):
    """An operand or result of a library call."""

    dtype: str
    rank: int


class Alias(NamedTuple):
    """An operand and a result of a library call that share memory, by number."""

    operand: int
    result: int


class LibraryCall(NamedTuple):
    """A call site of a library function. where: the op with the user's line."""

    target: str
    where: str
    config: tuple[Attribute, ...]
    operands: tuple[BufferType, ...]
    results: tuple[BufferType, ...]
    aliases: tuple[Alias, ...] = ()


class LinkedCall(NamedTuple):
    """A library call with what this process has for it.

    handlers: their addresses by stage, 0 where there is none. skip_empty: whether empty matrices are skipped.
    function: the address of the function of LAPACK's that it is for, or 0.
    """

    call: LibraryCall
    handlers: tuple[int, int, int, int]
    skip_empty: bool = False
    function: int = 0


class Program(NamedTuple):
    """A compiled program, which `save` writes.

    object: object code of the target, with `plan`, `main` and the `pack` functions.
    constants: what kernels read; empty where they read packed forms alone, and these are made. packed: the numbers of
        those that are, or may be. forms: by pack, the packed form of a constant, once it is made; else empty. given: of
        constants that were left out, since whoever reads the program has them: (number, which one it is to the reader).
    wide_kernels: modules of MLIR bytecode, where calls may need other kernels than those in `object`: with indices of
        64 bits.
    target, features: the kind of machine that the object code is for, and the features that it uses.
    symbols: the dims' names, in the order in which `plan` writes their values into the env.
    asked: what holds at the calls that the program is for; the message says who asked.
    env: where `plan` leaves what for `main`, and for who calls it.
    unread: inputs whose sizes alone matter, by number.
    account: what was decided and why, as `account.parse` reads it; "" where nobody is to know.
    structure: how the outputs nest, as JSON; "" for a plain sequence. arguments: how the inputs nest in (args, kwargs),
        if a call may give them so.
    compile_ms: milliseconds of each stage.
    source: what `hlo_disc.compile` took it from, in words.
    entry: of an entry of the cache the name, which tells it from others; else "".
    """

    object: bytes
    target: str
    features: tuple[str, ...]
    inputs: tuple[InputRow, ...]
    outputs: tuple[OutputRow, ...]
    symbols: tuple[str, ...]
    guards: tuple[GuardRow, ...]
    asked: tuple[GuardRow, ...]
    constants: tuple[np.ndarray, ...]
    packs: tuple[PackRow, ...]
    calls: tuple[LibraryCall, ...]
    env: EnvLayout
    unread: tuple[int, ...] = ()
    account: str = ""
    structure: str = ""
    arguments: str = ""
    compile_ms: Mapping[str, float] = MappingProxyType({})
    packed: tuple[int, ...] = ()
    forms: tuple[np.ndarray, ...] = ()
    given: tuple[tuple[int, int], ...] = ()
    wide_kernels: tuple[bytes, ...] = ()
    source: str = ""
    entry: str = ""

    @property
    def weights(self) -> int:
        """Bytes of constants and packed forms."""
        return sum(x.nbytes for x in (*self.constants, *self.forms))


def dtype_named(name: str) -> np.dtype:
    """The numpy dtype of this name, ml_dtypes' included. Raises TypeError for an unknown name."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name, name))


def calling_back(program: Program) -> list[LibraryCall]:
    """The calls of Python functions."""
    return [call for call in program.calls if any(x.callback is not None for x in call.config)]
