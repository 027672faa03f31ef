"""The statistics of a jitted function: compilations with reasons, calls, and calls that ran through `jax.jit`."""

from __future__ import annotations

import itertools
import sys
import threading
import warnings
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from hlo_disc.compiled.deferred import Tally
from hlo_disc.display.notebook import counted
from hlo_disc.errors import FallbackWarning
from hlo_disc.frozen import frozen


class Compilation(NamedTuple):
    """One compilation of a jitted function.

    Args:
        reason: why there had to be one.
        arguments: the arrays that it is for, as `"x: float32[b, 8]"`.
        seconds: how long it took in all, tracing included.
        stages_ms: milliseconds of each stage of the compiler.
        asked: what the function, or JAX, asked about sizes, each with its line: other sizes may have another program.
        of: the function after JAX's transformations, as `"grad(loss)"`; `""` for the function itself.
        backward: whether it is the second of the two programs of a gradient, which computes the derivatives.
    """

    reason: str
    arguments: tuple[str, ...]
    seconds: float
    stages_ms: Mapping[str, float]
    asked: tuple[str, ...] = ()
    of: str = ""
    backward: bool = False

    def __str__(self) -> str:
        of = f"{self.of}{', backward' * self.backward}: " if self.of else ""
        return f"{self.seconds:.2f} s: {of}{self.reason}"


class Fallback(NamedTuple):
    """Calls that run through `jax.jit`.

    Args:
        reason: why, naming the op and the source line.
        arguments: those of the first such call, as `"float32[3]"`.
        calls: how many.
    """

    reason: str
    arguments: tuple[str, ...]
    calls: int


@frozen
class Stats:
    """The statistics of a jitted function so far; printed, they are a summary.

    Args:
        calls: all from Python, those of `fallbacks` too.
        records: its compilations, the oldest first.
        fallbacks: calls that ran through `jax.jit`, by reason.
        calls_in_jit: those that compiled functions of `jax.jit` have made of its programs.
        backward_calls: those of programs that make derivatives later, from everywhere.
        deferred_kernels: kernels that calls were compiled without, and that are not compiled yet.
        later_kernels: those compiled since then, by calls that needed them or by the background thread.
        later_seconds: the time that these took.
    """

    calls: int
    records: tuple[Compilation, ...]
    fallbacks: tuple[Fallback, ...] = ()
    calls_in_jit: int = 0
    backward_calls: int = 0
    deferred_kernels: int = 0
    later_kernels: int = 0
    later_seconds: float = 0.0

    @property
    def compilations(self) -> int:
        """The number of compilations."""
        return len(self.records)

    @property
    def compile_seconds(self) -> float:
        """The seconds of all compilations."""
        return sum(record.seconds for record in self.records)

    def summary(self) -> str:
        """Return "3 calls, 1 compilation"."""
        in_jit = f" and {self.calls_in_jit} inside jax.jit" if self.calls_in_jit else ""
        backward = f", {self.backward_calls} backward" if self.backward_calls else ""
        return f"{counted(self.calls, 'call')}{in_jit}{backward}, {counted(self.compilations, 'compilation')}"

    def __str__(self) -> str:
        lines = [f"{self.summary()} in {self.compile_seconds:.2f} s"]
        for record in self.records:
            lines.append(f"  {record}")
            lines += [f"    for {asked}" for asked in record.asked]
        lines += [f"  {counted(f.calls, 'call')} through jax.jit: {f.reason}" for f in self.fallbacks]
        return "\n".join(lines)


class Calls(Protocol):
    """The numbers of calls that a program has served, directly and in `jax.jit`."""

    @property
    def value(self) -> int: ...

    @property
    def in_jit(self) -> int: ...


class FallbackCount:
    """The reason why calls run through `jax.jit`, the arguments of the first one, and their number.

    count: counts one more, from any thread.
    """

    __slots__ = ("reason", "arguments", "count", "_looks", "_lock")

    def __init__(self, reason: str, arguments: tuple[str, ...]):
        self.reason, self.arguments = reason, arguments
        self.count = itertools.count().__next__  # a lock would cost more than all else that is done before the call
        self._looks, self._lock = 0, threading.Lock()

    @property
    def calls(self) -> int:
        """The number of counted calls."""
        with self._lock:
            looks, self._looks = self._looks, self._looks + 1
            return self.count() - looks


class Log:
    """The log of a jitted function's compilations and fallbacks. Entries are only added, each in one step."""

    def __init__(self) -> None:
        self._compiled: list[tuple[Compilation, Calls]] = []
        self._tallies: list[Tally] = []
        self._fallbacks: list[FallbackCount] = []

    def add(self, compilation: Compilation, count: Calls, tally: Tally | None = None) -> None:
        """Add a compilation. count: the calls that the program serves, as its `value` and `in_jit`. tally: its deferred
        kernels."""
        self._compiled.append((compilation, count))
        if tally:
            self._tallies.append(tally)

    def fall_back(self, made: FallbackCount, text: str) -> None:
        """Note that calls run through `jax.jit` from now on. text: a warning, once for each reason; "" for none."""
        if text and all(known.reason != made.reason for known in list(self._fallbacks)):
            warnings.warn(text, FallbackWarning, stacklevel=depth_of_user())
        self._fallbacks.append(made)

    def has_compiled(self) -> bool:
        """Whether there is a program."""
        return bool(self._compiled)

    def stats(self) -> Stats:
        compiled = list(self._compiled)
        fallbacks = tuple(Fallback(f.reason, f.arguments, f.calls) for f in list(self._fallbacks))
        forward = [count for compilation, count in compiled if not compilation.backward]
        backward = [count for compilation, count in compiled if compilation.backward]
        calls = sum(count.value for count in forward) + sum(f.calls for f in fallbacks)
        in_jit = sum(count.in_jit for count in forward)
        later = sum(count.value + count.in_jit for count in backward)
        records, tallies = tuple(compilation for compilation, _ in compiled), list(self._tallies)
        waiting, seconds = sum(tally.waiting for tally in tallies), sum(tally.seconds for tally in tallies)
        made = sum(tally.total for tally in tallies) - waiting
        return Stats(calls, records, fallbacks, in_jit, later, waiting, made, seconds)


def depth_of_user() -> int:
    """Return how many frames above this function's caller the user's frame is; the fast path of a call has none."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("hlo_disc."):
        depth, frame = depth + 1, frame.f_back
    return depth
