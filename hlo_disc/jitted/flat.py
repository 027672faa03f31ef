"""`FlatFunction`: a function of arrays, a JAX primitive. It finds or compiles the programs of its calls."""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hlo_disc.display.stats import Compilation, FallbackCount, Log
from hlo_disc.dynamic_hlo.ir.dependence import live_ops
from hlo_disc.dynamic_hlo.ir.graph import Graph, Guard
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import ShapeError, UnsupportedOpError
from hlo_disc.executable import Executable
from hlo_disc.jitted.fallback import SPREAD, told
from hlo_disc.jitted.programs import Backward, Compiled, Entry, Histories
from hlo_disc.jitted.repeated import repeated
from hlo_disc.options import Options
from hlo_disc.pipeline import build
from hlo_disc.ral import OwnFloats
from hlo_disc.targets import registry
from hlo_disc.tracing.generalise import Dims, Sizes, generalise
from hlo_disc.tracing.signature import parse_dims
from hlo_disc.tracing.trace import Traced, broken, elsewhere, flattened, symbol_sizes, trace, trace_call, where
from hlo_disc.tracing.values import Leaf, is_number, is_tracer, show

if TYPE_CHECKING:
    import jax
    from jax.extend.core import ClosedJaxpr
    from jax.typing import ArrayLike

    from hlo_disc.dynamic_hlo.passes.partition import Parts
    from hlo_disc.tracing.structure import Structure

logger = logging.getLogger("hlo_disc")

# The graph of a program that was asked nothing: nobody compares it with another's.
_NOTHING = Graph("", (), (), (), (), ShapeFacts(), {})
# At so many sizes it is known what JAX sees of a function.
_REMEMBERED = 256
# JAX's names of the machines of which a driver launches kernels, by the driver's API.
_PLATFORMS = {"cuda": "cuda", "hip": "rocm"}


def placed(varying: frozenset[str]) -> dict[str, object]:
    """Return the part of array types beside dtype and shape: in `shard_map`, the mesh axes over which they differ."""
    import jax

    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return {}
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return {"sharding": sharding, "manual_axis_type": jax.sharding.ManualAxisType(varying=varying)}


@dataclasses.dataclass(eq=False, repr=False)
class FlatFunction:
    """A function of arrays with one structure of arguments and one choice of static ones, under one state of JAX's
    settings; its programs, by dtypes and ranks.

    fn, tree: what is called with the (args, kwargs) of this structure. names: of the arrays, in flattening order.
    dims: their shape strings, None where all are found. first: why there is a first program. histories: what is known
    of sizes already. differentiates: how many of its results, the last ones, are derivatives, for which there is a
    program of their own. donated: which arrays. line: where the user's function is. of: its name where JAX's
    transformations have made it of a user's function, else "". of_types: whether it is one for arrays that differ over
    certain axes of a mesh alone.
    """

    name: str
    fn: Callable[..., object]
    tree: Structure
    names: list[str]
    dims: Sequence[str | None] | None
    constraints: Sequence[str]
    options: Options
    first: str
    log: Log
    histories: Histories = dataclasses.field(default_factory=dict)
    differentiates: int = 0
    donated: Sequence[int] = ()
    line: str = ""
    of: str = ""
    of_types: bool = False

    def __post_init__(self) -> None:
        self.entries: dict[Any, Entry] = {}
        self.jaxpr = functools.lru_cache(_REMEMBERED)(self._jaxpr)
        self.remembered = functools.lru_cache(_REMEMBERED)(lambda make, *args: make(self, *args))
        self._derived: dict[Any, FlatFunction] = {}
        self._fallbacks: dict[str, FallbackCount] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return self.name

    @functools.cached_property
    def _numerics(self) -> tuple[object, ...]:
        from hlo_disc.jitted import settings

        return settings.numerics()

    def check_settings(self) -> None:
        """Raise UnsupportedOpError if a trace now would compute other numbers than the first one."""
        from hlo_disc.jitted import settings

        if settings.numerics() != self._numerics:
            raise UnsupportedOpError(
                "JAX's settings are others than when it was called, for which programs are: use it under one of them"
            )

    def call(self, *leaves: ArrayLike) -> list[jax.Array]:
        """Call the Python function itself, without a program."""
        return flattened(self.fn, self.tree)[0](*leaves)

    def _jaxpr(self, leaves: tuple[Leaf, ...], varying: tuple[frozenset[str], ...]) -> tuple[ClosedJaxpr, Structure]:
        """Trace the function for JAX at these sizes. Returns a ClosedJaxpr, and the tree of its results.

        varying: over which axes of a mesh each array differs, in `shard_map`.

        Raises UnsupportedOpError for one that JAX has to look into: it reads a value that JAX traces outside of it, or
        has effects other than talking to other devices.
        """
        import jax

        from hlo_disc.import_.jax import READS_TRACED

        self.check_settings()
        flat, out_tree = flattened(self.fn, self.tree)
        structs = [
            jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.weak, **placed(axes))
            for leaf, axes in zip(leaves, varying, strict=True)
        ]
        jaxpr = jax.make_jaxpr(flat)(*structs)
        if any(type(effect).__name__ != "NamedAxisEffect" for effect in jaxpr.effects):
            effects = ", ".join(sorted(map(str, jaxpr.effects)))
            raise UnsupportedOpError(
                f"it has the effects {effects}, which JAX orders where it traces: let hlo_disc.jit be outermost"
            )
        if any(map(is_tracer, jaxpr.consts)):
            raise UnsupportedOpError(READS_TRACED)
        return jaxpr, out_tree[0]

    def derived(
        self,
        key: tuple[object, ...],
        fn: Callable[..., Sequence[object]],
        names: Sequence[str],
        dims: Sequence[str | None] | None,
        differentiates: int = 0,
        of_types: bool = False,
    ) -> FlatFunction:
        """Return a function of arrays derived from this one, the same one for the same `key`."""
        found = self._derived.get(key)
        if found is None:
            from jax import tree_util

            tree = tree_util.tree_structure(((0,) * len(names), {}))
            name = f"{key[0]}({self.name})"
            made = dataclasses.replace(
                self,
                name=name,
                fn=fn,
                tree=tree,
                names=list(names),
                dims=dims,
                constraints=self.constraints if dims is not None else (),
                first="first call",
                histories={},
                differentiates=differentiates,
                donated=(),
                of=name,
                of_types=of_types,
            )
            found = self._derived.setdefault(key, made)
        return found

    @property
    def follows(self) -> bool:
        """Whether it is compiled for the machine on which its arguments are."""
        return self.options.target == registry.AUTO

    def on(self, platform: str) -> FlatFunction:
        """Return this function for machines that JAX calls `platform`: "cpu", "cuda", "rocm".

        Raises UnsupportedOpError if there is no target for them, or if the options name another one.
        """
        if self.follows and platform in _PLATFORMS.values():
            return self._on(platform)
        asked = self.options.target
        driver = registry.find(registry.split(asked)[0]).driver
        if (_PLATFORMS[driver.api] if driver and not self.follows else "cpu") != platform:
            raise UnsupportedOpError(f"JAX runs it on {platform}, and programs are for the target {asked!r}")
        return self

    def on_machine_of(self, leaves: Sequence[ArrayLike]) -> FlatFunction:
        """Return this function for the machine on which a call's arguments are.

        Raises UnsupportedOpError if there is not exactly one such machine, or no target for it.
        """
        from hlo_disc.ral.contexts.jax import is_spread, platform_of

        if any(map(is_spread, leaves)):
            raise UnsupportedOpError(SPREAD)
        return self.on(platform_of(leaves)) if self.follows else self

    def _on(self, platform: str) -> FlatFunction:
        found = self._derived.get(("on", platform))
        if found is None:
            options = dataclasses.replace(self.options, target=platform)
            made = dataclasses.replace(self, options=options, histories={})
            found = self._derived.setdefault(("on", platform), made)
        return found

    def fallback(self, reason: str, leaves: Sequence[ArrayLike], quiet: bool) -> FallbackCount:
        """Note that a call runs through `jax.jit`. The first time there is a warning, unless `quiet`.

        Raises UnsupportedOpError if the options do not allow it.
        """
        if not self.options.fallback:
            then = "and with fallback=False it does not run through jax.jit"
            raise UnsupportedOpError(told(self.name, self.line, reason, then)) from None
        key = reason if quiet else ""
        found = self._fallbacks.get(key)
        if found is None:
            plain = [is_number(x) or not hasattr(x, "dtype") for x in leaves]
            shown = tuple(
                type(x).__name__ if p else f"{x.dtype}{list(x.shape)}" for x, p in zip(leaves, plain, strict=True)
            )
            made = FallbackCount(reason, shown)
            text = told(self.name, self.line, reason, "which runs through jax.jit instead")
            self.log.fall_back(made, "" if quiet else text)
            found = self._fallbacks.setdefault(key, made)
        return found

    def entry(self, leaves: Sequence[Leaf]) -> Entry:
        """Return the programs for these dtypes and ranks. Raises ArgumentError for dims that do not fit."""
        key = tuple((leaf.dtype, len(leaf.shape), leaf.weak) for leaf in leaves)
        entry = self.entries.get(key)
        if entry is None:
            dims = None
            if self.dims is not None:
                dims = tuple(
                    (None,) * len(leaf.shape) if text is None else parse_dims(text, len(leaf.shape), name)
                    for text, leaf, name in zip(self.dims, leaves, self.names, strict=True)
                )
            first = "first call with these dtypes and ranks" if self.entries else self.first
            with self._lock:
                history = self.histories.setdefault(key, [])
                entry = self.entries.setdefault(key, Entry(self.names, dims, first, history))
        return entry

    def program(self, entry: Entry, leaves: list[Leaf], for_call: bool = False) -> Compiled:
        """Return the program that serves arrays like these, compiled if there is none.

        for_call: whether it is about to be called with them, so that it may lack kernels for others (`defer_kernels`).

        Raises UnsupportedOpError, again for each call like this one; ShapeError for what the user's dims refuse; and
        what the function raises.
        """
        sizes = tuple(leaf.shape for leaf in leaves)
        found = entry.find(sizes)
        if found is not None:
            return found
        with entry.lock:
            found = entry.find(sizes)
            if found is None:
                if entry.unsupported:
                    raise UnsupportedOpError(entry.unsupported)
                try:
                    with OwnFloats():  # programs are compared by what rewriting makes of them, too
                        found = self._compile(entry, leaves, sizes, for_call)
                except UnsupportedOpError as error:
                    entry.unsupported = str(error)
                    raise
                if all(found is not known for known in entry.programs):
                    entry.add(found)
        return found

    def lower(self, leaves: list[Leaf]) -> Traced:
        """Trace the function for all sizes, without a call."""
        entry = self.entry(leaves)
        dims = self._dims_for(entry, tuple(leaf.shape for leaf in leaves))
        return trace(self.fn, self.tree, leaves, dims, self.names, self.constraints)

    @staticmethod
    def _dims_for(entry: Entry, sizes: Sizes) -> Dims:
        """Return the user's dims, or those for all sizes that were seen."""
        return generalise([*entry.history, sizes]) if entry.dims is None else entry.dims

    def _trace(self, entry: Entry, leaves: list[Leaf], sizes: Sizes) -> Traced:
        """Trace the function for these sizes and all that were seen."""
        dims = self._dims_for(entry, sizes)
        try:
            return trace_call(self.fn, self.tree, leaves, dims, self.names, self.constraints)
        except ShapeError as error:
            if entry.dims is not None or not any(map(any, dims)):
                raise
            # Nobody asked for these dims: what has no program for them is left to JAX.
            raise UnsupportedOpError(str(error)) from error

    def _compile(self, entry: Entry, leaves: list[Leaf], sizes: Sizes, for_call: bool) -> Compiled:
        start = time.perf_counter()
        traced: list[Traced] = []  # for this call, and for more

        def special() -> Traced:
            if not traced:
                traced.append(self._trace(entry, leaves, sizes))
            return traced[0]

        unmet = 0  # by this call, of what the program for more was asked

        def source() -> Graph:
            nonlocal unmet
            wider = self._wider(entry, leaves, special())
            if wider is not None:
                traced.append(wider[0])
                unmet = wider[1]
            return traced[-1].graph

        if entry.programs:
            for known in entry.fitting(sizes):
                breaks = known.unmet(sizes)
                if self._agrees(leaves, known.traced, breaks, special()) and known.executable.native.accept(breaks):
                    return known
        why = entry.why(sizes)
        executable, later = self._build(source, sizes if for_call else None)
        program = traced[-1]
        shown = tuple(show(n, i, d) for n, i, d in zip(self.names, leaves, program.dims, strict=True))
        backward = later and Backward(lambda: self._build_backward(later, why, shown), later.needed, later.seeds)
        donated = _read(program.graph, self.donated)
        kept = program if program.asked else program._replace(graph=_NOTHING)
        run: Callable[..., Any] = executable.native
        if unmet:
            executable.native.accept(unmet)
        if backward is None:
            weak = [result.weak for result in program.results]
            executable.native.set_weak([leaf.weak for leaf in leaves], weak)
            run = repeated(executable, weak)
        made = Compiled(kept, sizes, executable, run, backward, donated)
        asked = tuple(entry.told(program.wanted, f"{a} ({a.line})") for a in (*program.numbers, *program.asked))
        self._compiled(executable, Compilation(why, shown, time.perf_counter() - start, {}, asked, self.of))
        return made

    def _build_backward(self, parts: Parts, why: str, shown: tuple[str, ...]) -> Executable:
        start = time.perf_counter()
        executable = build(parts.backward, self.options)
        self._compiled(executable, Compilation(why, shown, time.perf_counter() - start, {}, (), self.of, True))
        return executable

    def _compiled(self, executable: Executable, record: Compilation) -> None:
        from hlo_disc.jitted import settings

        record = record._replace(stages_ms=executable.linked.compile_ms)
        self.log.add(record, executable.native.count, executable.tally)
        shown = (f"{self.name}, backward" if record.backward else self.name), record.seconds, record.reason
        logger.log(settings.log_level(), "Finished compilation of %s in %.2f s: %s", *shown)

    def executables(self) -> Iterator[Executable]:
        """List the programs in use, with those of derived functions."""
        for entry in list(self.entries.values()):
            for program in entry.programs:
                yield program.executable
                if program.backward and program.backward.made:
                    yield program.backward.made
        for derived in list(self._derived.values()):
            yield from derived.executables()

    def _build(self, source: Callable[[], Graph], sizes: Sizes | None) -> tuple[Executable, Parts | None]:
        if not self.differentiates:
            return build(source, self.options, lambda: sizes), None
        from hlo_disc.dynamic_hlo.passes.partition import partition
        from hlo_disc.dynamic_hlo.passes.simplify import simplify

        graph = simplify(source())
        parts = partition(graph, len(graph.outputs) - self.differentiates)
        return build(parts.forward, self.options, lambda: sizes), parts

    def _wider(self, entry: Entry, leaves: list[Leaf], special: Traced) -> tuple[Traced, int] | None:
        """Return the program for more sizes, if it is right for this call too, which has found some sizes to be equal
        or numbers; and the conditions that the call breaks."""
        changes = any(self._changes(entry, leaves, special, asked.lhs) for asked in special.numbers)
        if not changes and all(asked.relation != "==" for asked in special.asked):
            return None
        candidates = [self._at(leaves, sizes) for sizes in entry.history[-1:]]
        generic = elsewhere(special, leaves, self.names, self.constraints)
        for others in [*candidates, generic] if generic else candidates:
            try:
                found = trace_call(self.fn, self.tree, others, special.wanted, self.names, self.constraints)
            except Exception:  # what these sizes raise is not about this call
                continue
            unmet = broken(found.asked, symbol_sizes(special.wanted, leaves, self.names))
            if unmet and found.dims == special.wanted and self._agrees(leaves, found, unmet, special):
                return found, unmet
        return None

    def _agrees(self, leaves: list[Leaf], program: Traced, unmet: int, special: Traced) -> bool:
        """Whether a program is right for all calls that break these of its conditions; `special` is the trace of one of
        them."""
        from hlo_disc.jitted.agreement import agree

        def at(guards: Sequence[Guard]) -> Traced | None:
            others = where(guards, program.dims, leaves, self.names)
            if others is None:
                return None
            try:
                return trace_call(self.fn, self.tree, others, program.dims, self.names, self.constraints)
            except Exception:  # what these sizes raise is not about this call
                return None

        return agree(program, unmet, special, at)

    def _changes(self, entry: Entry, leaves: list[Leaf], special: Traced, symbol: Dim) -> bool:
        """Whether a symbol, which a call has made a number, had another value before."""
        seen = [leaves, *(self._at(leaves, sizes) for sizes in entry.history)]
        found = {symbol.evaluate(symbol_sizes(special.wanted, at, self.names)) for at in seen}
        return len(found) > 1 or entry.dims is not None

    @staticmethod
    def _at(leaves: list[Leaf], sizes: Sizes) -> list[Leaf]:
        return [leaf._replace(shape=shape) for leaf, shape in zip(leaves, sizes, strict=True)]


def _read(graph: Graph, numbers: Sequence[int]) -> tuple[int, ...]:
    """Return which of these inputs the results depend on."""
    if not numbers:
        return ()
    needed = {value for op in live_ops(graph.ops, graph.outputs) for value in op.operands}.union(graph.outputs)
    return tuple(i for i in numbers if graph.inputs[i] in needed)
