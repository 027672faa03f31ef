"""The kernels of a program, one by one: code from the store if it has it, else built for a target and kept.

A kernel's record is kept beside its code: under the kernel's identity it has the keys of the code and what building the
kernel has asked (`stitch/origin.py`). So a kernel that is in the store need not be built to be found.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from hlo_disc.stitch import origin
from hlo_disc.stitch.codegen.module import LinkedFunctions
from hlo_disc.stitch.scheduling import LinkedKernel, Scheduled, build_linked_kernel

if TYPE_CHECKING:
    from hlo_disc.mlir import ir
    from hlo_disc.targets.target import LinkedCompilation, LinkedGenerator, Store


class Kernels:
    """Adds the kernels of a program to a compilation.

    store: None builds all kernels. excess_precision: see `Options`. modules: those that were built, in order.
    """

    def __init__(
        self,
        scheduled: Scheduled,
        generator: LinkedGenerator,
        compilation: LinkedCompilation,
        store: Store | None,
        excess_precision: bool,
    ) -> None:
        self.modules: list[ir.Module] = []
        self._scheduled, self._compilation, self._store = scheduled, compilation, store
        self._excess_precision = excess_precision
        self._machine = hashlib.sha256(generator.digest + repr(generator.device).encode()).digest()
        self._functions = LinkedFunctions(scheduled.facts)
        self._codes: dict[str, str] = {}  # of device functions, by their names

    def add(self, name: str) -> None:
        """Add a kernel with all that it calls."""
        item, known = self._scheduled.kernels[name], self._scheduled.origins[name]
        prefix, key = name.removesuffix(item.name), self._key(known)
        if self._store and key and self._taken(self._store.find(key), known, prefix):
            return
        built = build_linked_kernel(item, self._functions, self._excess_precision)
        codes = self._added(built, prefix)
        if self._store and key:
            kept = origin.Kept(codes, built.types)
            self._store.keep(key, origin.written(kept, built.answers, known.symbols))

    def _taken(self, record: bytes | None, known: origin.Origin, prefix: str) -> bool:
        """Whether the compilation has the code of a kernel now."""
        kept = origin.read(record, known.symbols, self._scheduled.facts) if record else None
        if kept is None:
            return False
        return not kept.codes or self._compilation.take(kept.codes, prefix, kept.types)

    def _added(self, built: LinkedKernel, prefix: str) -> tuple[str, ...]:
        """Add the modules of a kernel that is new, and return the names of their code; of host code there is none."""
        for name, linked in built.calls.items():
            if name not in self._codes:
                self._codes[name] = self._compilation.add(linked.module)
                self.modules.append(linked.module)
        if not built.types:
            return ()
        self.modules.append(built.module)
        return (*(self._codes[name] for name in built.calls), self._compilation.add(built.module, prefix))

    def _key(self, known: origin.Origin) -> bytes:
        """The key of a kernel's record, empty for none."""
        identity = known.identity() if self._store else None
        if identity is None:
            return b""
        return hashlib.sha256(b"%b%d%b" % (self._machine, self._excess_precision, identity.encode())).digest()
