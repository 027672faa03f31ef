"""The stages from a program source to a `Program`, in order, each with the reason for its position.

A stage is a function from one record to the next. A record is frozen; it has all fields of the one before. With
`options.dump`, what each stage makes is written as text.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hlo_disc.cache import kernels, programs
from hlo_disc.compiled.deferred import Unmade
from hlo_disc.compiled.program import Code, InputRow, OutputRow, Program
from hlo_disc.display import progress
from hlo_disc.dynamic_hlo.ir.graph import Graph, Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import ArgumentError
from hlo_disc.executable import Executable
from hlo_disc.explain.text import launches_text, plan_text
from hlo_disc.frozen import frozen
from hlo_disc.options import Options
from hlo_disc.ral import OwnFloats
from hlo_disc.targets import registry
from hlo_disc.targets.target import is_linked
from hlo_disc.unmade import Sizes, UnmadeFunctions, UnmadeModules, deferred

if TYPE_CHECKING:
    from hlo_disc.stitch.codegen.module import LinkedFunctions
    from hlo_disc.stitch.fusion.scope import Plan
    from hlo_disc.stitch.hostflow.flow import HostCode
    from hlo_disc.stitch.hostflow.placement import Placement
    from hlo_disc.stitch.scheduling import Scheduled
    from hlo_disc.targets.target import Compilation, Generator, LinkedCompilation, LinkedGenerator, Store


@frozen(kw_only=True)
class Request:
    """A program to compile.

    source: a graph, or a function that returns one. open: contexts that the compilation leaves at its end. serial: its
    number in the process, for the names of its dumps. listing: texts of code generation's own steps, by file suffix.
    sizes: gives those of all inputs, once the program is read, if it is for a call that takes some of the kernels at
    once, and others perhaps never; None if they are not known.
    """

    source: Graph | Callable[[], Graph]
    options: Options
    open: ExitStack = field(default_factory=ExitStack)
    serial: int = field(default_factory=itertools.count(1).__next__)
    listing: dict[str, str] = field(default_factory=dict)
    sizes: Callable[[], Sizes | None] = lambda: None


@frozen(kw_only=True)
class Read(Request):
    """A program as a graph. inputs: those of the graph as it was read."""

    graph: Graph
    inputs: tuple[Value, ...]


Q = TypeVar("Q", bound=Request)
R = TypeVar("R", bound=Read)


@frozen(kw_only=True)
class Targeted(Read):
    """A graph and the target with its features."""

    generator: Generator


@frozen(kw_only=True)
class Grouped(Targeted):
    """A graph whose ops are in groups."""

    plan: Plan


@frozen(kw_only=True)
class Formed(Grouped):
    """Groups with their variants."""

    scheduled: Scheduled


@frozen(kw_only=True)
class Placed(Formed):
    """A plan of memory, and an account of all decisions, as JSON text."""

    placement: Placement
    account: str


@frozen(kw_only=True)
class Built(Placed):
    """Kernels that were handed to the target.

    kernels: as text, if that is dumped. deferred: those that are left out, by name. functions: the device functions
    that were built, if they are linked. decisive: sizes for which kernels need wider indices, None if they always do;
    wide: those with wide indices, as bytecode.
    """

    compilation: Compilation
    kernels: tuple[str, ...]
    deferred: Sequence[str]
    functions: LinkedFunctions | None
    decisive: tuple[Dim, ...] | None
    wide: tuple[bytes, ...]


@frozen(kw_only=True)
class Flowing(Built):
    """Host functions that launch the kernels."""

    code: HostCode


@frozen(kw_only=True)
class Compiled(Flowing):
    """Machine code, as an object file."""

    object: bytes


@frozen
class Stage:
    """name: in timings and dumps. why: the reason for its position. dump: (file suffix, text) pairs of its result."""

    name: str
    why: str
    run: Callable[..., Read]
    dump: Callable[..., Iterator[tuple[str, str]]]


@frozen
class Stages(Generic[Q]):
    """Stages of which each takes what the one before it returns, as mypy checks. The last returns a Q."""

    rows: tuple[Stage, ...] = ()

    def then(
        self, name: str, why: str, run: Callable[[Q], R], dump: Callable[[R], Iterator[tuple[str, str]]]
    ) -> Stages[R]:
        return Stages((*self.rows, Stage(name, why, run, dump)))


def _read(c: Request) -> Read:
    graph = c.source() if callable(c.source) else c.source
    return Read(**vars(c), graph=graph, inputs=graph.inputs)


def _rewrite(c: Read) -> Read:
    from hlo_disc.dynamic_hlo.passes.loop_products import multiply_after_loops
    from hlo_disc.dynamic_hlo.passes.simplify import simplify

    graph = simplify(c.graph)
    later = multiply_after_loops(graph, c.options.excess_precision)
    return replace(c, graph=graph if later is graph else simplify(later))


def _complex(c: Read) -> Read:
    from hlo_disc.dynamic_hlo.passes.complex.expand import expand_complex
    from hlo_disc.dynamic_hlo.passes.simplify import simplify

    expanded = expand_complex(c.graph)
    return c if expanded is c.graph else replace(c, graph=simplify(expanded))


def _verify(c: R) -> R:
    from hlo_disc.dynamic_hlo.ops.verify import verify

    if c.options.verify:
        verify(c.graph)
    return c


def _target(c: Read) -> Targeted:
    kind, level = registry.split(c.options.target)
    return Targeted(**vars(c), generator=registry.find(kind).generator(level))


def _normalise(c: Targeted) -> Targeted:
    from hlo_disc.stitch.prepare.definitions import with_definitions
    from hlo_disc.stitch.prepare.normalise import normalise

    return replace(c, graph=with_definitions(normalise(c.graph, c.generator.device.rounds_to_tf32)))


def _fuse(c: Targeted) -> Grouped:
    from hlo_disc.stitch.fusion.fuse import fuse
    from hlo_disc.stitch.schedules.table import schedules_for

    return Grouped(**vars(c), plan=fuse(c.graph, schedules_for(c.generator.device)))


def _schedule(c: Grouped) -> Formed:
    from hlo_disc.stitch.scheduling import schedule

    return Formed(**vars(c), scheduled=schedule(c.graph, c.plan, c.generator.device))


def _memory(c: Formed) -> Placed:
    from hlo_disc.stitch.explain import account
    from hlo_disc.stitch.hostflow.placement import place

    placement = place(c.graph, c.plan, c.scheduled)
    text = account(c.graph, c.plan, c.scheduled, placement, c.generator.device).text()
    return Placed(**vars(c), placement=placement, account=text)


def _kernels(c: Placed) -> Built:
    g, dump = c.generator, c.listing.__setitem__ if c.options.dump else None
    if not is_linked(g):
        return _batches(c, c.open.enter_context(g.begin(dump, c.options.threads)))
    store = c.open.enter_context(kernels.opened(c.options))
    return _linked(c, g, c.open.enter_context(g.begin(dump, c.options.threads, store)), store)


def _deferred(c: Placed) -> Sequence[str]:
    """Return the kernels that the call does not take; none if all are dumped, to be read."""
    sizes = c.sizes() if c.options.defer_kernels and not c.options.dump else None
    return deferred(c.graph, c.plan, c.scheduled, c.placement, sizes) if sizes is not None else ()


def _linked(c: Placed, generator: LinkedGenerator, compilation: LinkedCompilation, store: Store | None) -> Built:
    from hlo_disc.cache.reuse import Kernels

    left, dumped = _deferred(c), bool(c.options.dump)
    added = Kernels(c.scheduled, generator, compilation, None if dumped else store, c.options.excess_precision)
    for name in c.scheduled.kernels:
        if not added.find(name) and name not in left:
            added.build(name)
    texts = tuple(map(str, added.modules)) if dumped else ()
    later = tuple(name for name in left if name not in added.found)
    return Built(
        **vars(c),
        compilation=compilation,
        kernels=texts,
        deferred=later,
        functions=added.functions,
        decisive=(),
        wide=(),
    )


def _batches(c: Placed, compilation: Compilation) -> Built:
    from hlo_disc.stitch.hostflow.index_width import decisive
    from hlo_disc.stitch.scheduling import build_kernels

    g, kind = c.generator, registry.split(c.options.target)[0]
    left = _deferred(c) if registry.find(kind).driver else ()  # else host functions call kernels by symbol
    sizes = decisive(c.scheduled, c.graph.facts, g.device.narrow) if g.device.narrow else None
    names = [name for name in c.scheduled.kernels if name not in left]
    texts: list[str] = []
    wide: list[bytes] = []
    narrow = bool(left)  # some of these may be
    for batch in build_kernels(c.scheduled, names, g.device, sizes, g.batch, c.options.excess_precision):
        if c.options.dump:
            texts.append(str(batch.module))
        wide.append(batch.wide)
        narrow |= batch.narrow
        compilation.add(batch.module)
    asks = bool(sizes) and narrow
    return Built(
        **vars(c),
        compilation=compilation,
        kernels=tuple(texts),
        deferred=left,
        functions=None,
        decisive=sizes if asks or sizes is None else (),
        wide=tuple(wide) if asks else (),
    )


def _host_flow(c: Built) -> Flowing:
    from hlo_disc.stitch.hostflow.flow import build

    device = c.generator.device
    slots = c.deferred if c.functions else ()  # a driver's kernels are found by name
    code = build(c.graph, c.plan, c.scheduled, c.placement, device, c.decisive or (), slots)
    return Flowing(**vars(c), code=code)


def _codegen(c: Flowing) -> Compiled:
    return Compiled(**vars(c), object=c.compilation.finish(c.code.module))


def _dump_graph(c: Read) -> Iterator[tuple[str, str]]:
    from hlo_disc.dynamic_hlo.print.stablehlo import to_stablehlo

    yield "stablehlo.mlir", to_stablehlo(c.graph)


def _dump_ops(c: Read) -> Iterator[tuple[str, str]]:
    """Dump a graph that may have ops that StableHLO does not have."""
    from hlo_disc.dynamic_hlo.print.dhlo import to_text

    yield "txt", to_text(c.graph)


def _dump_groups(c: Grouped) -> Iterator[tuple[str, str]]:
    from hlo_disc.stitch.explain import groups_text

    yield "txt", groups_text(c.graph, c.plan)


def _dump_launches(c: Formed) -> Iterator[tuple[str, str]]:
    from hlo_disc.stitch.explain import account

    yield "txt", launches_text(account(c.graph, c.plan, c.scheduled, None, c.generator.device))


def _dump_memory(c: Placed) -> Iterator[tuple[str, str]]:
    from hlo_disc.stitch.explain import memory_text

    yield "txt", memory_text(c.graph, c.plan, c.placement)


def _dump_kernels(c: Built) -> Iterator[tuple[str, str]]:
    yield "mlir", "\n".join(c.kernels)


def _dump_code(c: Flowing) -> Iterator[tuple[str, str]]:
    yield "plan.txt", plan_text(c.account)
    yield "mlir", str(c.code.module)


def _dump_listing(c: Compiled) -> Iterator[tuple[str, str]]:
    yield from c.listing.items()


def _dump_nothing(c: Request) -> Iterator[tuple[str, str]]:
    yield from ()


_STAGES: Stages[Compiled] = (
    Stages[Request]()
    .then("read", "everything after works on DHLO; a framework is traced here and nowhere later", _read, _dump_graph)
    .then("verify input", "a bad import is found before a rewrite can hide it", _verify, _dump_nothing)
    .then("rewrite", "fusion decides on the simplest graph; facts are complete after reading", _rewrite, _dump_graph)
    .then("complex", "rules still see complex numbers as one value; no schedule does", _complex, _dump_graph)
    .then("target", "the first stage that needs a machine: what is above is the same for all", _target, _dump_nothing)
    .then("normalise", "fusion meets no op that means the same as others do", _normalise, _dump_ops)
    .then("verify", "what is below relies on every invariant of DHLO, of private ops too", _verify, _dump_nothing)
    .then("fuse", "schedules are chosen for whole groups", _fuse, _dump_groups)
    .then("schedule", "what memory there must be depends on the forms that groups get", _schedule, _dump_launches)
    .then("memory", "host functions say where everything lies", _memory, _dump_memory)
    .then("kernels", "all that a kernel depends on is decided: each is built once", _kernels, _dump_kernels)
    .then("host flow", "what launches kernels knows their names and where values lie", _host_flow, _dump_code)
    .then("codegen", "machine code is last: nothing after MLIR knows of tensors", _codegen, _dump_listing)
)
STAGES = _STAGES.rows


def compile(source: Graph | Callable[[], Graph], options: Options) -> Program:
    """Compile a DHLO graph, or what a function without arguments returns as one, unless the cache has the program.

    Constants are folded, and functions traced, in the floating-point mode of programs: the program does not depend on
    the caller's.

    Raises what the stages raise.
    """
    return compile_for_call(source, options)[0]


def build(
    source: Graph | Callable[[], Graph], options: Options, sizes: Callable[[], Sizes | None] = lambda: None
) -> Executable:
    """Compile a graph, or what makes one, and link it. Takes and raises what `compile_for_call` does."""
    program, unmade = compile_for_call(source, options, sizes)
    return Executable(program, options, unmade)


def compile_for_call(
    source: Graph | Callable[[], Graph], options: Options, sizes: Callable[[], Sizes | None] = lambda: None
) -> tuple[Program, Unmade | None]:
    """Compile as `compile` does, for a call with these sizes of all inputs, without the kernels that it does not take.

    sizes: as of `Request`.

    Returns the program and, if it lacks kernels, the object that compiles them.
    """
    times: dict[str, float] = {}
    with OwnFloats(), _no_garbage_collection(), ExitStack() as stack, progress.bar([s.name for s in STAGES]) as begin:
        begin(STAGES[0].name)
        read = _run(STAGES[0], Request(source=source, options=options, open=stack, sizes=sizes), times)
        start = time.perf_counter()
        name = programs.name(read.graph, options)
        found = programs.find(options, name, read.graph)
        times["cache"] = (time.perf_counter() - start) * 1e3
        if found:
            return found._replace(compile_ms=times), None
        state = read
        for stage in STAGES[1:]:
            begin(stage.name)
            state = _run(stage, state, times)
    program, graph = _program(state, times), read.graph

    def keep(whole: Code) -> None:
        programs.store(options, name, program._replace(**whole._asdict()), graph)

    if not state.deferred:
        keep(Code(program.object, program.wide_kernels))
        return program, None
    kind = UnmadeFunctions if state.functions else UnmadeModules
    known = {x.name: getattr(state, x.name) for x in dataclasses.fields(kind) if hasattr(state, x.name)}
    return program, kind(names=state.deferred, parts=state.compilation.parts, keep=keep, **known)


def _run(stage: Stage, state: Request, times: dict[str, float]) -> Any:
    start = time.perf_counter()
    result = stage.run(state)
    times[stage.name] = (time.perf_counter() - start) * 1e3
    if result.options.dump:
        _write(Path(result.options.dump), result, stage)
    return result


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Switch off garbage collection: graphs live until the last stage, so it takes a tenth of the time and finds
    nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _write(directory: Path, c: Read, stage: Stage) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.-]", "_", c.graph.name)
    for suffix, text in stage.dump(c):
        (directory / f"{c.serial}-{name}.{STAGES.index(stage)}-{stage.name.replace(' ', '_')}.{suffix}").write_text(
            text
        )


def _program(c: Compiled, compile_ms: dict[str, float]) -> Program:
    graph, code = c.graph, c.code
    needed = {value for op in graph.ops for value in op.operands}.union(graph.roots)
    return Program(
        object=c.object,
        wide_kernels=c.wide,
        target=registry.split(c.options.target)[0],
        features=c.generator.features,
        inputs=tuple(
            InputRow(name, str(v.dtype), tuple(map(str, map(_shown, read.shape, v.shape))))
            for name, read, v in zip(graph.input_names, c.inputs, graph.inputs, strict=True)
        ),
        outputs=tuple(OutputRow(str(v.dtype), tuple(map(str, v.shape))) for v in graph.outputs),
        symbols=code.symbols,
        guards=code.guards,
        asked=code.asked,
        constants=code.constants,
        packs=code.packs,
        packed=c.placement.packed,
        calls=code.calls,
        env=code.env,
        unread=tuple(i for i, v in enumerate(graph.inputs) if v not in needed),
        account=c.account,
        compile_ms=compile_ms,
    )


def _shown(read: Dim, size: Dim) -> Dim:
    """Return a guard in the caller's terms: a symbol that a guard makes a number stays a symbol in its message."""
    return read if size.is_const else size


def merge(options: Options | None, overrides: Mapping[str, Any]) -> Options:
    """Return `options` (by default the environment's) with fields replaced. Raises ArgumentError for a bad field or
    value."""
    known = [f.name for f in dataclasses.fields(Options)]
    for name in overrides:
        if name not in known:
            raise ArgumentError(f"unknown option {name!r}; the options are {', '.join(known)}")
    try:
        merged = dataclasses.replace(options or Options.from_env(), **overrides)
    except ValueError as error:
        raise ArgumentError(str(error)) from None
    registry.check(merged.target)
    return merged
