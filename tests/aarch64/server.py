"""Runs in an emulated AArch64 process: executables that another process sends, and their calls.

    python server.py NATIVE DESCRIPTOR

NATIVE is the native module for AArch64, DESCRIPTOR a socket. A request is a function of `Server` by its name, with its
arguments, and the executables that are needed no more; the answer is (its result, None), or (None, what was raised).
"""

from __future__ import annotations

import ctypes
import io
import os
import pickle
import platform
import signal
import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_PARENT_DIED = 1  # prctl's PR_SET_PDEATHSIG


ORACLE = Path(__file__).parents[1] / "oracle"


class NativeFinder:
    """Finds the native module in a given file."""

    def __init__(self, file: str) -> None:
        self.file = file

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return spec_from_file_location(name, self.file) if name == "hlo_disc.ral._ral" else None


class Server:
    """The functions that a request may name. executables, codes: those that were loaded, by number."""

    def __init__(self) -> None:
        self.executables: dict[int, Any] = {}
        self.codes: dict[int, Any] = {}

    def forget(self, numbers: list[int]) -> None:
        for number in numbers:
            self.executables.pop(number, None)
            if code := self.codes.pop(number, None):
                code.close()

    def make(self, number: int, content: bytes, options: Any) -> None:
        """Load an executable from what `Executable.save` writes."""
        from hlo_disc.compiled.saved import read_open
        from hlo_disc.executable import Executable

        self.executables[number] = Executable(read_open(io.BytesIO(content), "a program"), options).native

    def run(self, number: int, arrays: tuple[Any, ...]) -> list[Any]:
        """Return the results of a call, as arrays of numpy."""
        return list(self.executables[number](*arrays))

    def ask(self, number: int, name: str, arguments: tuple[Any, ...]) -> Any:
        """Return the result of a method of the native executable."""
        return getattr(self.executables[number], name)(*arguments)

    def field(self, number: int, name: str) -> Any:
        return getattr(self.executables[number], name)

    def calls(self, number: int) -> int:
        """Return the number of calls that came back with results."""
        return self.executables[number].count.value

    def load(self, number: int, data: bytes) -> None:
        """Load object code of kernels, as `kernel_runner.py` makes it."""
        from hand_written.kernel_calls import SYMBOLS

        from hlo_disc import ral

        self.codes[number] = ral.Code(data, SYMBOLS)

    def call(self, number: int, buffers: list[Any], env: Any, arena: Any) -> tuple[list[Any], Any, Any]:
        """Call @main of object code; return its buffers, env and arena after the call."""
        from hand_written.kernel_calls import call

        call(self.codes[number].address("main"), buffers, env, arena)
        return buffers, env, arena

    def compile_and_run(self, text: str, arrays: list[Any]) -> tuple[str, tuple[str, ...], Any]:
        """Compile a StableHLO module for this machine and run it. Return its target, its features and its result."""
        import hlo_disc

        made = hlo_disc.compile(text, cache="", target="cpu")
        return made.program.target, made.program.features, made(*arrays)

    def run_library(self, path: str, arrays: list[Any]) -> list[Any]:
        """Return the results of a library that `hlo-disc compile --emit library` wrote."""
        from c_library import Library, Model

        model = Model(Library(Path(path)))
        try:
            return model(*arrays)
        finally:
            model.close()

    def link(self, objects: list[bytes]) -> list[str]:
        """Return what is wrong with each object, "" for those that can be linked."""
        from hlo_disc import ral

        found = []
        for data in objects:
            try:
                ral.Code(data, ral.symbols()).close()
                found.append("")
            except (ValueError, MemoryError) as error:
                found.append(str(error) or type(error).__name__)
        return found

    def machine(self) -> tuple[str, list[str]]:
        """Return the machine that this process runs on, and the features that it has."""
        from hlo_disc import ral

        return platform.machine(), ral.cpu_features()

    def end(self, status: int) -> None:
        """End this process at once, as a crash would."""
        os._exit(status)

    def live_bytes(self) -> int:
        from hlo_disc import ral

        return ral.live_bytes()


def main() -> None:
    ctypes.CDLL(None).prctl(_PARENT_DIED, signal.SIGKILL)
    sys.meta_path.insert(0, NativeFinder(sys.argv[1]))
    sys.path.append(str(ORACLE))
    connection, server = Connection(int(sys.argv[2])), Server()
    while True:
        try:
            request = connection.recv_bytes()
        except EOFError:
            return
        name, arguments, gone = pickle.loads(request)
        try:
            server.forget(gone)
            answer = getattr(server, name)(*arguments), None
        except Exception as error:
            answer = None, error
        connection.send(answer)
        del request, arguments, answer  # arrays, which may be large


if __name__ == "__main__":
    main()
