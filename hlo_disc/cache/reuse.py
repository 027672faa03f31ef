"""The kernels of a program, one by one: code from the store if it has it, else built for a target and kept.

Under a kernel's identity the store has its record (`stitch/origin.py`) and its code, so a kernel that is there need not
be built to be found. Under a digest of a device function's content it has the function's code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hlo_disc.stitch import origin
from hlo_disc.stitch.codegen.module import LinkedFunctions
from hlo_disc.stitch.scheduling import LinkedKernel, Scheduled, build_linked_kernel

if TYPE_CHECKING:
    from hlo_disc.mlir import ir
    from hlo_disc.targets.target import LinkedCompilation, LinkedGenerator, Store

# Between a kernel's record, which is text of one line, and its code.
_END = b"\n"


class Kernels:
    """Adds the kernels of a program to a compilation.

    store: None builds all kernels. excess_precision: see `Options`. functions: the device functions that were built.
    linked: the names of those that the program has. modules: those that were built, in order. found: the names of
    kernels that the store had.
    """

    def __init__(
        self,
        scheduled: Scheduled,
        generator: LinkedGenerator,
        compilation: LinkedCompilation,
        store: Store | None,
        excess_precision: bool,
        functions: LinkedFunctions | None = None,
        linked: Iterable[str] = (),
    ) -> None:
        self.modules: list[ir.Module] = []
        self.found: set[str] = set()
        self.functions = functions or LinkedFunctions(scheduled.facts)
        self._scheduled, self._compilation, self._store = scheduled, compilation, store
        self._excess_precision = excess_precision
        self._keys: dict[str, bytes] = {}
        self._machine = hashlib.sha256(generator.digest + repr(generator.device).encode()).digest()
        self._there = set(linked)  # device functions, by their names

    def find(self, name: str) -> bool:
        """Add a kernel with all that it calls, if the store has it."""
        known, key = self._scheduled.origins[name], self._key(name)
        if self._store and key and self._taken(key, self._store.find(key), known, self._prefix(name)):
            self.found.add(name)
        return name in self.found

    def build(self, name: str) -> None:
        """Add a kernel with all that it calls, and keep it."""
        item, known = self._scheduled.kernels[name], self._scheduled.origins[name]
        built = build_linked_kernel(item, self.functions, self._excess_precision)
        if built.types:  # some forms are host code alone
            kept = origin.Kept(self._with_functions(built), built.types)
            record = origin.written(kept, built.answers, known.symbols) + _END
            self._compilation.add(built.module, self._prefix(name), self._key(name), record)
            self.modules.append(built.module)

    def _taken(self, key: bytes, found: bytes | None, known: origin.Origin, prefix: str) -> bool:
        """Add a kernel's code with everything that it calls, if it is there. Returns whether it is."""
        record, _, code = (found or b"").partition(_END)
        kept = origin.read(record, known.symbols, known.facts) if record else None
        if kept is None or self._store is None:
            return False
        needed = {name: bytes.fromhex(key) for name, key in kept.functions.items() if name not in self._there}
        functions = {name: self._store.find(key) for name, key in needed.items()}
        if None in functions.values():
            return False
        for name, function in functions.items():
            self._compilation.take(needed[name], function or b"")
        self._there.update(functions)
        self._compilation.take(key, code, prefix, kept.types)
        return True

    def _with_functions(self, built: LinkedKernel) -> dict[str, str]:
        """Add the functions that a kernel needs, and return the keys of their code, by their names."""
        keys = {name: self._digest(linked.digest) for name, linked in built.calls.items()}
        for name, linked in built.calls.items():
            if name in self._there:
                continue
            self._there.add(name)
            if self._store and (code := self._store.find(keys[name])):
                self._compilation.take(keys[name], code)
            else:
                self._compilation.add(linked.module, key=keys[name])
                self.modules.append(linked.module)
        return {name: key.hex() for name, key in keys.items()}

    def _prefix(self, name: str) -> str:
        """Return the part of a kernel's name that the program gives it."""
        return name.removesuffix(self._scheduled.kernels[name].name)

    def _key(self, name: str) -> bytes:
        """Return the key of a kernel's entry; empty for none."""
        if self._store and name not in self._keys:
            identity = self._scheduled.origins[name].identity()
            text = b"%d%b" % (self._excess_precision, identity.encode()) if identity else b""
            self._keys[name] = self._digest(text) if text else b""
        return self._keys.get(name, b"")

    def _digest(self, content: bytes) -> bytes:
        return hashlib.sha256(self._machine + content).digest()
