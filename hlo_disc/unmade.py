"""The kernels that a program is compiled without, because the call that it is for does not take them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, ClassVar

from hlo_disc.abi import MODULES
from hlo_disc.cache import kernels
from hlo_disc.compiled.program import Code
from hlo_disc.dynamic_hlo.ir.graph import Graph, raw_dim
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.frozen import frozen
from hlo_disc.kernel_ops import KERNELS
from hlo_disc.options import Options
from hlo_disc.ral import OwnFloats

if TYPE_CHECKING:
    from hlo_disc.stitch.codegen.module import LinkedFunctions
    from hlo_disc.stitch.fusion.scope import Plan
    from hlo_disc.stitch.hostflow.placement import Placement
    from hlo_disc.stitch.scheduling import Scheduled
    from hlo_disc.stitch.variant import Packing
    from hlo_disc.targets.target import Generator, LinkedGenerator

# Of the inputs, in their order.
Sizes = Sequence[Sequence[int]]
# Host code of more arguments and results, or of more sizes, takes long, and would be made twice.
_MOST_BUFFERS, _MOST_SYMBOLS = 400, 30


@frozen(kw_only=True)
class _Unmade:
    """The kernels that a program lacks, of either kind.

    names: the kernels. parts: of the compilation of all else. keep: keeps the whole program for other processes. made:
    the parts of the kernels that are made, by name. The rest is what the compiler knows of the program.
    """

    names: Sequence[str]
    parts: Sequence[object]
    keep: Callable[[Code], None]
    options: Options
    generator: Generator
    graph: Graph
    plan: Plan
    scheduled: Scheduled
    placement: Placement
    made: dict[str, Sequence[object]] = field(default_factory=dict)

    def whole(self) -> Code:
        """Return the code of the program with host functions that launch all kernels alike, and keep the program."""
        from hlo_disc.stitch.hostflow.flow import build

        decisive, wide = self._wide()
        with OwnFloats(), self.generator.begin(None, 1) as compilation:
            compilation.reuse([*self.parts, *(part for name in self.names for part in self.made[name])])
            code = build(self.graph, self.plan, self.scheduled, self.placement, self.generator.device, decisive)
            whole = Code(compilation.finish(code.module), wide)
        self.keep(whole)
        return whole

    def _wide(self) -> tuple[Sequence[Dim], tuple[bytes, ...]]:
        """Return the sizes for which kernels need wider indices, and those kernels."""
        return (), ()


@frozen(kw_only=True)
class UnmadeFunctions(_Unmade):
    """Kernels that are functions of the process. Implements `hlo_disc.compiled.deferred.Unmade`.

    functions: device functions that were built.
    """

    generator: LinkedGenerator
    functions: LinkedFunctions
    prefix: ClassVar[str] = f"{KERNELS}."
    modules: ClassVar[str] = ""

    def make(self, name: str, known: Collection[str]) -> bytes:
        """Compile a kernel, with the device functions that it calls and the program does not have. Returns object code.

        Raises CompileError, UnsupportedOpError.
        """
        from hlo_disc.cache.reuse import Kernels
        from hlo_disc.stitch.codegen.module import LinkedFunctions

        linked = {symbol.removeprefix(self.prefix) for symbol in known}
        own = {key: x for key, x in list(self.functions.known.items()) if x.name in linked}
        functions = LinkedFunctions(self.functions.facts, own)
        excess = self.options.excess_precision
        store = kernels.found(self.options)  # what is too much in it goes when the program is kept
        with OwnFloats(), self.generator.begin(None, 1, store) as compilation:
            added = Kernels(self.scheduled, self.generator, compilation, store, excess, functions, linked)
            if not added.find(name):
                added.build(name)
            self.functions.known.update(functions.known)
            code = compilation.finish()
            self.made[name] = compilation.parts
        return code


@frozen(kw_only=True)
class UnmadeModules(_Unmade):
    """Kernels that a driver launches. Implements `hlo_disc.compiled.deferred.Unmade`.

    decisive, wide: see `hlo_disc.pipeline.Built`. wide_made: kernels with wide indices, by name.
    """

    decisive: Sequence[Dim] | None
    wide: tuple[bytes, ...]
    wide_made: dict[str, bytes] = field(default_factory=dict)
    prefix: ClassVar[str] = ""
    modules: ClassVar[str] = MODULES

    def make(self, name: str, known: Collection[str]) -> bytes:
        """Compile a kernel, with all that it calls. Returns object code.

        Raises CompileError, UnsupportedOpError.
        """
        from hlo_disc.stitch.scheduling import build_kernels

        device, excess = self.generator.device, self.options.excess_precision
        with OwnFloats(), self.generator.begin(None, 1) as compilation:
            (batch,) = build_kernels(self.scheduled, [name], device, self.decisive, 1, excess)
            compilation.add(batch.module)
            code = compilation.finish()
            self.made[name], self.wide_made[name] = compilation.parts, batch.wide
        return code

    def _wide(self) -> tuple[Sequence[Dim], tuple[bytes, ...]]:
        added = [self.wide_made[name] for name in self.names] if self.decisive else []
        return self.decisive or (), (*self.wide, *added)


def deferred(graph: Graph, plan: Plan, scheduled: Scheduled, placement: Placement, sizes: Sizes) -> list[str]:
    """Return the kernels that the first call of a program does not take, with these sizes of all inputs.

    Constants are packed before it, and arguments behind it.
    """
    from hlo_disc.stitch.scheduling import taken

    buffers, symbols = len(graph.inputs) + len(graph.outputs), len(graph.bindings)
    if len(sizes) != len(graph.inputs) or buffers > _MOST_BUFFERS or symbols > _MOST_SYMBOLS:
        return []

    def kept(packing: Packing) -> bool:
        return plan.root(packing.source) in placement.constants

    needed = taken(scheduled, _values(graph, sizes), kept) | {x.kernel for x in scheduled.packs if kept(x.packing)}
    return [name for name in scheduled.kernels if name not in needed]


def _values(graph: Graph, sizes: Sizes) -> Mapping[str, int]:
    """Return the values of the symbols that follow from the sizes of the inputs."""
    known = {str(raw_dim(i, axis)): size for i, shape in enumerate(sizes) for axis, size in enumerate(shape)}
    values = {}
    for name, dim in graph.bindings.items():
        with suppress(KeyError, ZeroDivisionError):
            values[name] = dim.evaluate(known)
    return values
