"""A compiled program as plain data: the compiler makes it, `saved.py` writes it, and the runtime runs it.

Annotations are evaluated, because the file's reader uses them and parsing them would slow down loading. Dataclasses
would, too: their methods are compiled at each import.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from hlo_disc.abi import EnvLayout
from hlo_disc.ral.entries import Handlers


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
    """A condition on two dim expressions, and the message if it fails; `{k}` in the message is the value of args[k]."""

    lhs: str
    relation: str
    rhs: str
    message: str
    args: tuple[str, ...]
    overflow: bool = False


class PackRow(NamedTuple):
    """An operand that is kept in another form.

    kind, number: "input" or "constant", and its number. size: bytes of the packed form. function: the function that
    computes it.
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
    """A library call with the addresses that this process has for it.

    skip_empty: whether empty matrices are skipped. function: the address of the LAPACK function that the call is for,
        or 0.
    """

    call: LibraryCall
    handlers: Handlers
    skip_empty: bool = False
    function: int = 0


class Code(NamedTuple):
    """The code of a program's kernels and host functions: see `Program`."""

    object: bytes
    wide_kernels: tuple[bytes, ...] = ()


class Program(NamedTuple):
    """A compiled program, which `save` writes.

    object: object code of the target, with `plan`, `main` and the `pack` functions.
    constants: the values that kernels read; empty for one of which they read only a packed form that is computed
        already. packed: the numbers of the constants of which they read only packed forms. forms: for each pack, the
        packed form of a constant, empty until it is computed. given: (number, the reader's number) of each constant
        that is left out, since the reader of the program has it.
    wide_kernels: modules of MLIR bytecode, if calls may need kernels with indices of 64 bits in place of those in
        `object`.
    target, features: the kind of machine that the object code is for, and the features that it uses.
    symbols: the dims' names, in the order in which `plan` writes their values into the env.
    asked: conditions that hold at the calls that the program is for; each message says who asked.
    env: the layout of the values that `plan` writes for `main` and for their caller.
    unread: the numbers of inputs of which only the sizes matter.
    account: the decisions and their reasons, as `account.parse` reads them; "" if they are not kept.
    structure: how the outputs nest, as JSON; "" for a plain sequence. arguments: how the inputs nest in (args, kwargs),
        if a call may pass them so.
    compile_ms: milliseconds of each stage.
    source: the source that `hlo_disc.compile` read, in words.
    entry: the unique name of an entry of the cache; "" for any other program.
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
        """The number of bytes of constants and packed forms."""
        return sum(x.nbytes for x in (*self.constants, *self.forms))


def dtype_named(name: str) -> np.dtype:
    """Return the numpy dtype of this name, also one of ml_dtypes. Raises TypeError for an unknown name."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name, name))


def calling_back(program: Program) -> list[LibraryCall]:
    """Return the calls of Python functions."""
    return [call for call in program.calls if any(x.callback is not None for x in call.config)]
