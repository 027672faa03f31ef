"""Executables for AArch64 on another machine: their code runs under QEMU, in a process that `server.py` serves.

What compiles, and what checks results, is this process; there is one emulated process for it, which is started anew
when it dies. `register` puts such executables in the place of those that this machine cannot link.
"""

from __future__ import annotations

import atexit
import io
import itertools
import pickle
import socket
import subprocess
import threading
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from hlo_disc import executable, ral
from hlo_disc.compiled.deferred import Unmade
from hlo_disc.compiled.program import Program
from hlo_disc.compiled.saved import save
from hlo_disc.options import Options

TARGET = "aarch64"
BUILD = Path(__file__).parents[2] / "build" / "aarch64"
_NUMBERS = itertools.count()
_SCALARS = (bool, int, float, complex)


class Died(AssertionError):
    """The emulated process has ended before it answered."""


class Process:
    """The emulated process. gone: executables that are needed no more, which the next request says."""

    def __init__(self) -> None:
        native = next((BUILD / "native").glob("_ral*.so"), None)
        if native is None:
            raise FileNotFoundError(f"{BUILD} has no native module: 'make test-aarch64' builds it")
        ours, theirs = socket.socketpair()
        command = [BUILD / "python", Path(__file__).parent / "server.py", native, str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        self.connection = Connection(ours.detach())
        self.gone: list[int] = []
        self.lock = threading.Lock()

    def request(self, name: str, *arguments: Any) -> Any:
        """The answer. Raises what was raised there, and Died."""
        with self.lock:
            gone, self.gone = self.gone, []
            try:
                self.connection.send((name, arguments, gone))
                result, error = pickle.loads(self.connection.recv_bytes())
            except (EOFError, OSError):
                self.close()
                raise Died(f"the emulated process has ended with {self.process.wait()} in {name!r}") from None
        if error is not None:
            raise error
        return result

    @property
    def is_alive(self) -> bool:
        return not self.connection.closed and self.process.poll() is None

    def close(self) -> None:
        self.connection.close()


_process: Process | None = None
_starting = threading.Lock()


def process() -> Process:
    """The emulated process, started if there is none."""
    global _process
    with _starting:
        if _process is None or not _process.is_alive:
            _process = Process()
            atexit.register(_process.close)
        return _process


class Count:
    """The calls that came back with results."""

    def __init__(self, native: Native) -> None:
        self._native = native

    @property
    def value(self) -> int:
        return self._native.request("calls")

    in_jit = 0


class Native:
    """Stands for the native executable in the emulated process; see `ral.Executable`."""

    def __init__(self, program: Program, options: Options) -> None:
        content = io.BytesIO()
        save(program, content)
        self._process, self._number = process(), next(_NUMBERS)
        self._weak: Sequence[bool] | None = None
        self._process.request("make", self._number, content.getvalue(), options)
        weakref.finalize(self, self._process.gone.append, self._number)

    def request(self, name: str, *arguments: Any) -> Any:
        return self._process.request(name, self._number, *arguments)

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        results = self.request("run", tuple(x if isinstance(x, _SCALARS) else np.asarray(x) for x in arguments))
        if self._weak is None and not any(_is_jax(x) for x in arguments):
            return tuple(results)
        return tuple(map(_to_jax, results, self._weak or [False] * len(results)))

    def set_weak(self, inputs: Sequence[bool], outputs: Sequence[bool]) -> None:
        self._weak = list(outputs)

    @property
    def count(self) -> Count:
        return Count(self)

    @property
    def workers(self) -> int:
        return self.request("field", "workers")

    def __getattr__(self, name: str) -> Any:
        if name not in ("plan", "unmet", "accept", "infer", "packed_bytes"):
            raise AttributeError(f"an executable in an emulated process has no {name}")
        return lambda *arguments: self.request("ask", name, arguments)


class Library:
    """Object code of kernels in the emulated process."""

    def __init__(self, object_: bytes) -> None:
        self._process, self._number = process(), next(_NUMBERS)
        self._process.request("load", self._number, object_)
        weakref.finalize(self, self._process.gone.append, self._number)

    def call(self, buffers: Sequence[np.ndarray], env: np.ndarray | None, arena: np.ndarray | None) -> None:
        """Call `@main` on buffers, which it changes."""
        changed, env_after, arena_after = self._process.request("call", self._number, list(buffers), env, arena)
        for before, after in zip((*buffers, env, arena), (*changed, env_after, arena_after), strict=True):
            if before is not None:
                before[...] = after


def _is_jax(x: Any) -> bool:
    return type(x).__module__.startswith("jax")


def _to_jax(x: np.ndarray, weak: bool) -> Any:
    import jax
    from jax._src.lax.lax import _convert_element_type

    array = jax.device_put(x)
    return _convert_element_type(array, weak_type=True) if weak else array


def register() -> None:
    """Let executables for AArch64 be such ones, those of jitted functions too."""
    from hlo_disc.jitted import flat

    linked, repeated = executable.Executable.__init__, flat.repeated

    def init(
        self: executable.Executable, program: Program, options: Options | None = None, unmade: Unmade | None = None
    ) -> None:
        if program.target != TARGET:
            linked(self, program, options, unmade)
            return
        if unmade:  # the other process has no compiler
            for name in unmade.names:
                unmade.make(name, ())
            program = program._replace(**unmade.whole()._asdict())
        self.linked, self._deferred = program, None
        self.options = options or Options.from_env()
        self.native = Native(program, self.options)
        self._nested = ral.nested

    def in_python(made: executable.Executable, weak: Sequence[bool]) -> Any:
        return made.native if isinstance(made.native, Native) else repeated(made, weak)

    executable.Executable.__init__ = init  # type: ignore[method-assign]
    flat.repeated = in_python
