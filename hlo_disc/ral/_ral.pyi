"""The native module's interface; the semantics of each function stand in `module.cc` and the headers beside it."""

from collections.abc import Sequence
from typing import Any

VERSION: int
ALIGNMENT: int

def symbols() -> dict[str, int]: ...
def live_bytes() -> int: ...
def fail_next_allocation(n: int = 1) -> None: ...
def usable_cores() -> int: ...
def pool_threads() -> int: ...
def stop_pool() -> None: ...
def ffi_handler() -> Any: ...

class Executable:
    """A compiled program over its machine code's addresses. Calling it computes; any number of threads may.

    inputs: (name, dtype, dims) each, dims as numbers or text; outputs: (dtype, dims); constants: arrays;
    packs: ("input" | "constant", index, bytes, address of the pack function);
    guards: (message, how many arguments it shows); threads: workers, 0 for one a core;
    packed_bytes: bound on packed inputs over all executables; keep_alive: whatever owns the machine code.
    """

    def __init__(
        self,
        plan: int,
        main: int,
        *,
        env_size: int,
        inputs: Sequence[tuple[str, str, Sequence[Any]]],
        outputs: Sequence[tuple[str, Sequence[Any]]],
        constants: Sequence[Any],
        packs: Sequence[tuple[str, int, int, int]],
        guards: Sequence[tuple[str, int]],
        threads: int,
        packed_bytes: int,
        keep_alive: object,
    ) -> None: ...
    def __call__(self, *arguments: Any) -> tuple[Any, ...]: ...
    def plan(self, dims: Sequence[int]) -> list[int]: ...
    def infer(self, arguments: Sequence[tuple[str, Sequence[int]]]) -> tuple[list[tuple[str, list[int]]], int]: ...
    def publish(self) -> int: ...
    def packed_bytes(self) -> int: ...
    @property
    def workers(self) -> int: ...
