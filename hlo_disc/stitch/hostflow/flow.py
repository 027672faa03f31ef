"""The host flow: `plan` checks a call and sizes its memory, `main` launches kernels, `K_pack` prepares a weight.

This file builds them as MLIR functions of a fused graph. They are stateless and allocate nothing: the caller gives
`main` one arena of the size that `plan` returned.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

import numpy as np

from hlo_disc.abi import ALIGNMENT, ASKED_BITS, BEYOND_MEMORY, MAIN_BROKEN, PLAN_BROKEN, EnvLayout
from hlo_disc.compiled.program import GuardRow, LibraryCall, PackRow
from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import NEGATED, Graph, Guard, Op, Value, guard_of, raw_dim
from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.shapes import has_products
from hlo_disc.errors import CompileError
from hlo_disc.frozen import frozen
from hlo_disc.mlir import arith, ir
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.module import ModuleBuilder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.scope import Plan
from hlo_disc.stitch.hostflow.device_memory import DeviceMemory
from hlo_disc.stitch.hostflow.host_control import Emitter, Frame
from hlo_disc.stitch.hostflow.index_width import beyond, counted
from hlo_disc.stitch.hostflow.late_memory import LateMemory
from hlo_disc.stitch.hostflow.memory import Slot, value_bytes
from hlo_disc.stitch.hostflow.placement import Placement
from hlo_disc.stitch.schedule import CONTROL
from hlo_disc.stitch.scheduling import Pack, Scheduled, Step
from hlo_disc.stitch.size_arguments import Sized
from hlo_disc.stitch.variant import Choice


@frozen
class HostCode:
    """The module of host functions, and what a caller must bring.

    symbols: names in the order of `env`. guards: in the order of `plan`'s statuses; asked: in that of its bits. calls:
    the library functions, by number.
    """

    module: ir.Module
    constants: tuple[np.ndarray, ...]
    packs: tuple[PackRow, ...]
    calls: tuple[LibraryCall, ...]
    symbols: tuple[str, ...]
    guards: tuple[GuardRow, ...]
    asked: tuple[GuardRow, ...]
    env: EnvLayout


def build(
    graph: Graph,
    plan: Plan,
    scheduled: Scheduled,
    placement: Placement,
    device: Device,
    decisive: Sequence[Dim] = (),
    deferred: Collection[str] = (),
) -> HostCode:
    """Build the host functions; they launch kernels by name.

    decisive: see `index_width`. deferred: the kernels whose code is made later, so that their launches may fail.
    """
    builder = ModuleBuilder(deferred=deferred)
    try:
        flow = Flow(builder.builder, graph, plan, scheduled, placement, device, decisive, deferred)
        flow.build_plan()
        flow.build_main()
        flow.build_packs()
    finally:
        module = builder.close()
    return HostCode(
        module,
        tuple(constant_array(v) for v in placement.constants),
        tuple(PackRow(*flow.source(p), p.packing.size, p.function) for p in scheduled.packs),
        tuple(builder.library),
        flow.symbols,
        tuple(map(_row, flow.guards)),
        tuple(map(_row, graph.asked)),
        flow.env,
    )


def _row(guard: Guard) -> GuardRow:
    args = tuple(map(str, guard.args))
    return GuardRow(str(guard.lhs), guard.relation, str(guard.rhs), guard.message, args, guard.overflow)


class Flow:
    """Builds the host functions."""

    def __init__(
        self,
        b: Builder,
        graph: Graph,
        plan: Plan,
        scheduled: Scheduled,
        placement: Placement,
        device: Device,
        decisive: Sequence[Dim],
        deferred: Collection[str],
    ):
        self.b, self.graph, self.plan, self.scheduled, self.placement = b, graph, plan, scheduled, placement
        self.device, self.decisive, self.deferred = device, decisive, deferred
        self.steps, self.packs = tuple(scheduled.steps.values()), scheduled.packs
        self.symbols = tuple(sorted(graph.bindings))
        self.guards = (*graph.guards, *(guard_of(op) for op in plan.host_ops("check")))
        self.outputs = plan.scope.outputs
        self._needs = list(dict.fromkeys(s.sized.real(c.variant.fast_bytes()) for s in self.steps for c in s.choices))
        sizes = sum(v.rank for v in self.outputs)
        message = max((len(g.args) for g in self.guards), default=0)
        self.env = EnvLayout.of(len(self.symbols), sizes, message, bool(graph.asked), bool(decisive))

    def _touched(self, group: Group) -> list[Value]:
        """Return the values in memory that the group, or one inside it, reads or writes."""
        inside = [group, *(g for scope in self.plan.inner(group) for g in self.plan.groups(scope))]
        found = [v for g in inside for v in (*g.inputs, *g.written, *self.scheduled.workspace(g))]
        loops = [self.plan.loops[g.ops[0]] for g in inside if g.schedule is CONTROL and g.ops[0] in self.plan.loops]
        return [self.plan.root(v) for v in found] + [c.spare for loop in loops for c in loop.carried if c.spare]

    def _late_needs(self, group: Group) -> list[Dim]:
        """Return a group's fast memory whose size is known only at run time."""
        inside = [group, *(g for scope in self.plan.inner(group) for g in self.plan.groups(scope))]
        known = self.scheduled.steps
        steps = [known[g] for g in inside if g in known]
        needs = (
            dict.fromkeys(step.sized.real(c.variant.fast_bytes()) for step in steps for c in step.choices)
            if self.placement.late
            else ()
        )
        return [need for need in needs if not self.placement.is_known(need)]

    def _late_counts(self, group: Group) -> list[Dim]:
        """Return the sizes that a group's kernels count and that only the run knows."""
        inside = [group, *(g for scope in self.plan.inner(group) for g in self.plan.groups(scope))]
        return [size for size in dict.fromkeys(counted(inside)) if not self.placement.is_known(size)]

    def source(self, pack: Pack) -> tuple[str, int]:
        """Return the source of a packed operand: ("input", number) or ("constant", number)."""
        value = self.plan.root(pack.packing.source)
        constants = self.placement.constants
        if value in constants:
            return "constant", constants.index(value)
        return "input", self.graph.inputs.index(value)

    # plan(dims, env) -> status. What the signature says (sizes that were compiled in) the runtime has checked before.

    def build_plan(self) -> None:
        b = self.b
        env_type = b.buffer_type(b.i64)
        broken = self._broken() if self.graph.guards else None
        with b.module.host_function("plan", [env_type, env_type], [b.i32]) as (dims, env):
            sizes, symbols = self._sizes_of_call(dims)
            status = b.const(0, b.i32)
            # Selects, not branches, and each guard where it is needed: all else is compiled in quadratic time.
            for k, g in reversed(list(enumerate(self.graph.guards))):
                status = b.select(self._holds(sizes, g), status, b.const(PLAN_BROKEN + k, b.i32))

            def fine() -> None:
                outputs = [sizes(d) if self.placement.is_known(d) else -1 for v in self.outputs for d in v.shape]
                arena, scratch = self._memory(sizes)
                self._store_all(env, self.env.arena, [arena])
                self._store_all(env, self.env.scratch, [scratch])
                self._store_all(env, self.env.symbols, [symbols[name] for name in self.symbols])
                self._store_all(env, self.env.outputs, outputs)
                if self.decisive:
                    known = filter(self.placement.is_known, self.decisive)
                    self._store_all(env, self.env.wide, [self._is_wide(sizes, known)])

            if self.graph.asked:
                self._store_all(env, self.env.asked, [self._asked(sizes)])
            if broken is None:
                fine()
            else:
                b.if_(b.compare("==", status, 0), fine, lambda: broken(dims, env, status))
            b.return_(status)

    def _broken(self) -> Callable[..., None]:
        """Build (dims, env, status of `plan`): store the values of the broken guard's message in `env`."""
        b = self.b
        env_type = b.buffer_type(b.i64)
        with b.module.private_function("broken", [env_type, env_type, b.i32]) as ((dims, env, status), call):
            sizes, _ = self._sizes_of_call(dims)
            values: list[Val] = []
            for k, g in enumerate(self.graph.guards):
                is_it = b.compare("==", status, PLAN_BROKEN + k)
                values += [b.index(0)] * (len(g.args) - len(values))
                for at, arg in enumerate(g.args):
                    values[at] = b.select(is_it, b.index(sizes(arg)), values[at])
            self._store_all(env, 0, values)
        return call

    def _sizes_of_call(self, dims: Val) -> tuple[Sizes, dict[str, Scalar]]:
        """Compute all sizes from those that a call passes, each loaded at its first use. Returns the symbols."""
        known = _Loaded(self.b, dims, self.graph.inputs)
        raw = Sizes(self.b, known, self.graph.facts)
        symbols = {name: raw(dim) for name, dim in self.graph.bindings.items()}
        known.update(symbols)
        return Sizes(self.b, known, self.graph.facts), symbols

    def _holds(self, sizes: Sizes, guard: Guard) -> Val:
        b = self.b
        holds = b.compare(guard.relation, b.index(sizes(guard.lhs)), b.index(sizes(guard.rhs)))
        if not (guard.overflow and has_products(guard.lhs)):
            return holds
        return b.apply(arith.AndIOp, holds, b.compare("<", sizes.bound(guard.lhs), float(BEYOND_MEMORY)))

    def _asked(self, sizes: Sizes) -> Scalar:
        """Compute which conditions do not hold, one bit each."""
        b = self.b
        found: Scalar = 0
        for k, guard in enumerate(self.graph.asked):
            holds = self._holds(sizes, guard)
            if has_products(difference := guard.lhs - guard.rhs):
                within = b.compare("<", b.binary("+", *map(sizes.bound, (guard.lhs, guard.rhs))), float(BEYOND_MEMORY))
                holds = b.select(within, holds, sizes.clearly(difference, guard.relation))
            found = b.apply(arith.OrIOp, b.index(found), b.select(holds, b.index(0), b.index(1 << min(k, ASKED_BITS))))
        return found

    def _is_wide(self, sizes: Sizes, decisive: Iterable[Dim], wide: Scalar = 0) -> Scalar:
        """Compute a number that is not 0 if kernels need indices of 64 bits, or if `wide` is not 0."""
        b = self.b
        for size in decisive:
            large = b.cast(arith.IndexCastUIOp, b.index_type, b.compare(">=", b.index(sizes(size)), self.device.narrow))
            wide = b.apply(arith.OrIOp, b.index(wide), large)
        return wide

    def _store_all(self, env: Val, at: int, values: Sequence[Scalar]) -> None:
        for i, x in enumerate(values):
            self.b.store(self.b.cast(arith.IndexCastOp, self.b.i64, self.b.index(x)), env, at + i)

    def _fits(self, sizes: Sizes) -> Val | None:
        """Compute whether 64 bits hold the sizes of all outputs of `main`, of all that kernels count, and of guards'
        operands; None if they do at all calls. Asked conditions may be compared in doubles."""
        b = self.b
        written = [slot.size for slot in self.placement.slots] + [value_bytes(v) for v in self.outputs] + self._needs
        compared = [side for guard in self.graph.guards for side in (guard.lhs, guard.rhs)]
        different = {group.key: group for group in self.scheduled.steps}
        written += beyond(dict.fromkeys([*counted(different.values()), *compared]), written)
        open_sizes = [size for size in written if not size.is_const and self.placement.is_known(size)]
        if not open_sizes:
            return None
        fixed = b.const(float(sum(size.value for size in written if size.is_const)), b.f64)
        total = functools.reduce(lambda x, y: b.binary("+", x, y), map(sizes.bound, open_sizes), fixed)
        return b.compare("<", total, float(BEYOND_MEMORY))

    def _memory(self, sizes: Sizes) -> list[Scalar]:
        """Compute the bytes of the arena and of a worker's fast memory; if 64 bits do not hold them, more than any
        machine has."""
        b, fits = self.b, self._fits(sizes)
        _, arena = self._offsets(sizes)
        scratch = self._fast_bytes(sizes)
        if fits is None:
            return [arena, scratch]
        return [
            b.select(fits, b.index(arena), b.index(BEYOND_MEMORY)),
            b.select(fits, b.index(scratch), b.index(0)),
        ]

    def _offsets(self, sizes: Sizes) -> tuple[dict[Slot, Scalar], Scalar]:
        offsets: dict[Slot, Scalar] = {}
        at: Scalar = 0
        for slot in self.placement.slots:
            offsets[slot] = at
            size = sizes(slot.size)
            if self.plan.loops or self.plan.branches:  # a size may be below 0 in a region that a call does not run
                size = self.b.maximum(size, 0)
            at = at + self.b.ceil_div(size, ALIGNMENT) * ALIGNMENT
            at = min(at, BEYOND_MEMORY) if isinstance(at, int) else at
        return offsets, at

    def _fast_bytes(self, sizes: Sizes) -> Scalar:
        most: Scalar = 0
        for need in filter(self.placement.is_known, self._needs):
            most = self.b.maximum(most, sizes(need))
        return self.b.ceil_div(most, ALIGNMENT) * ALIGNMENT

    # main(call, env, arena, buffers...)

    def build_main(self) -> None:
        b = self.b
        values = [*self.graph.inputs, *self.placement.constants]
        types = [self._buffer_type(v) for v in values]
        types += [b.buffer_type(b.i8) for _ in self.packs]
        types += [self._buffer_type(v) for v in self.outputs]
        head = [b.pointer, b.buffer_type(b.i64), b.buffer_type(b.i8)]
        launchers = self._launchers()
        failures = {
            op: self._failure(op, number)
            for number, op in enumerate(self.plan.host_ops("check"), len(self.graph.guards))
        }
        often = bool(self.plan.loops)
        with b.module.host_function("main", [*head, *types], [b.i32], often) as (call, env, arena, *buffers):
            symbols: dict[str, Scalar] = {
                name: b.cast(arith.IndexCastOp, b.index_type, b.load(env, at))
                for at, name in enumerate(self.symbols, self.env.symbols)
            }
            sizes = Sizes(b, symbols, self.graph.facts)
            known = {v: i for v, i in self.placement.outputs.items() if self.placement.is_known(*v.shape)}
            count = len(values) + len(self.packs)
            packed = {p.packing: m for p, m in zip(self.packs, buffers[len(values) : count], strict=True)}
            memory = dict(zip(values, buffers, strict=False)) | {v: buffers[count + i] for v, i in known.items()}
            memory |= self._views(arena, sizes)

            def launch(group: Group, buffer: Callable[[Value], Val]) -> None:
                step = self.scheduled.steps[group]
                args = [buffer(v) for v in (*group.inputs, *group.written)]
                for choice in step.choices:
                    args += [packed[choice.packing]] if choice.packing else []
                    args += [buffer(v) for v in choice.variant.workspace]
                launchers[_launched(step)](call, *args, *(b.index(x) for x in sizes.shape(step.sizes)))

            def check(op: Op) -> None:
                lhs, rhs = (b.index(sizes(op.attrs[name])) for name in ("lhs", "rhs"))
                args = [b.index(x) for x in sizes.shape(op.attrs["args"])]
                b.if_(b.compare(NEGATED[op.attrs["relation"]], lhs, rhs), lambda: failures[op](call, env, *args))

            unknown = {v: (i, self.outputs[i].shape) for v, i in self.placement.outputs.items() if v not in known}
            late = LateMemory(b, sizes, self.placement.late_places, unknown, self._late_needs, self._late_counts)
            frame = Frame(memory, {})

            def prepare(group: Group) -> None:
                late.prepare(group, self._touched(group), frame.memory)

            pending = [size for size in self.decisive if not self.placement.is_known(size)]

            def defined() -> None:
                ready = [size for size in pending if size.symbols <= symbols.keys()]
                if ready:
                    pending[:] = [size for size in pending if size not in ready]
                    with b.over(b.simd):
                        before = b.cast(arith.IndexCastOp, b.index_type, b.load(env, self.env.wide))
                        self._store_all(env, self.env.wide, [self._is_wide(sizes, ready, before)])

            emitter = Emitter(b, self.plan, symbols, sizes, self.placement.stored, launch, check, defined)
            with b.over(b.simd if self.device.host_memory else DeviceMemory(b)):
                emitter.scope(self.plan.scope, frame, prepare if self.placement.late else None)
            b.return_(b.const(0, b.i32))

    def _views(self, arena: Val, sizes: Sizes) -> dict[Value, Val]:
        """Return the parts of the arena in which values lie."""
        offsets, _ = self._offsets(sizes)
        return {
            value: self.b.view(arena, offsets[slot], self.b.memory_type(value.dtype), sizes.count(value.shape))
            for value, slot in self.placement.places.items()
        }

    def _failure(self, op: Op, number: int) -> Callable[..., None]:
        """Build (call, env, values of a guard's message): store them in `env`, and let `main` return the guard's
        status."""
        b, count = self.b, len(op.attrs["args"])
        types = [b.pointer, b.buffer_type(b.i64), *[b.index_type] * count]
        name, status = f"broken{number}", MAIN_BROKEN + number
        with b.module.private_function(name, types, may_fail=True, status=status) as (values, call):
            self._store_all(values[1], 0, values[2:])
        return call

    def _buffer_type(self, value: Value) -> ir.Type:
        return self.b.buffer_type(self.b.memory_type(value.dtype))

    def _launchers(self) -> dict[Hashable, Callable[..., None]]:
        """Return a host function for each different step: similar layers share it, so that `main` stays small."""
        found: dict[Hashable, Callable[..., None]] = {}
        loops = self.plan.loops.values()
        repeated = {group for loop in loops for inside in (loop.cond, loop.body) for group in self.plan.groups(inside)}
        often = {_launched(step) for step in self.steps if step.group in repeated}
        for step in self.steps:
            same = _launched(step)
            if same not in found:
                found[same] = self._launcher(step, f"step{len(found)}", same in often)
        return found

    def _launcher(self, step: Step, name: str, often: bool) -> Callable[..., None]:
        """Build (call, inputs, written values, each choice's packed operand and workspace, symbols): choose, and
        launch."""
        b, group = self.b, step.group
        types = [self._buffer_type(v) for v in (*group.inputs, *group.written)]
        count = len(types)
        extra: list[slice] = []
        for choice in step.choices:
            own = [b.buffer_type(b.i8)] if choice.packing else []
            own += [self._buffer_type(v) for v in choice.variant.workspace]
            extra.append(slice(len(types), len(types) + len(own)))
            types += own
        arguments = [b.pointer, *types, *[b.index_type] * len(step.symbols)]
        may_fail = group.schedule.may_fail or any(kernel in self.deferred for kernel in step.kernels)
        with b.module.private_function(name, arguments, may_fail, often) as (values, call):
            buffers, symbols = values[1 : 1 + len(types)], values[1 + len(types) :]
            sizes = Sizes(b, dict(zip(step.symbols, symbols, strict=True)), step.sized.facts)

            def choose(number: int) -> None:
                choice, own = step.choices[number], buffers[extra[number]]

                def launch() -> Val | None:
                    return choice.variant.launch(b, sizes, step.kernels[number], [*buffers[:count], *own], symbols)

                condition = self._condition(choice, sizes, own)
                if choice.may_decline:
                    b.if_(b.compare("==", self._taken(launch, condition), 0), lambda: choose(number + 1))
                elif condition is None:
                    launch()
                else:
                    b.if_(condition, launch, lambda: choose(number + 1))

            if group.schedule.may_fail:  # it may have effects
                choose(0)
            else:
                some = self._writes(step.sized, sizes)
                choose(0) if some is None else b.if_(some, lambda: choose(0))
        return call

    def _writes(self, sized: Sized, sizes: Sizes) -> Val | None:
        """Compute whether a group has anything to write; None if an empty one does almost no work anyway.

        Otherwise its loops might run over two other sizes of the call, although a third one is 0.
        """
        if not _may_write_nothing(sized):
            return None
        b, counts = self.b, dict.fromkeys(dim_product(v.shape) for v in sized.group.outputs)
        some = [b.compare("!=", b.index(sizes(size)), 0) for size in counts]
        return functools.reduce(lambda x, y: b.apply(arith.OrIOp, x, y), some)

    def _taken(self, launch: Callable[[], Val | None], condition: Val | None) -> Val:
        """Return the result of a launch that may decline; 0 if its condition does not hold."""

        def taken() -> list[Val]:
            answer = launch()
            assert answer is not None
            return [answer]

        no = self.b.const(0, self.b.i32)
        return taken()[0] if condition is None else self.b.if_(condition, taken, lambda: [no], [no])[0]

    def _condition(self, choice: Choice, sizes: Sizes, own: Sequence[Val]) -> Val | None:
        b = self.b
        conditions = [condition.build(b, sizes) for condition in choice.when]
        if choice.packing is not None:
            conditions.append(b.apply(arith.XOrIOp, b.is_null(own[0]), b.const(1, b.i1)))
        condition = None
        for other in conditions:
            condition = other if condition is None else b.apply(arith.AndIOp, condition, other)
        return condition

    # K_pack(call, env, arena, source, packed)

    def build_packs(self) -> None:
        b = self.b
        for pack in {pack.function: pack for pack in self.packs}.values():
            element = b.memory_type(pack.packing.source.dtype)
            head = [b.pointer, b.buffer_type(b.i64), b.buffer_type(b.i8)]
            args = [*head, b.buffer_type(element), b.buffer_type(b.i8)]
            with b.module.host_function(pack.function, args, [b.i32]) as (_, _, _, source, target):
                pack.packing.launch(b, pack.kernel, source, target)
                b.return_(b.const(0, b.i32))


def _may_write_nothing(sized: Sized) -> bool:
    """Are the elements of all results products of two sizes that the call says, so that one may be 0, and one large?"""
    counts = [sized.real(dim_product(v.shape)) for v in sized.group.outputs]
    return all(size.terms and all(len(monomial) > 1 for monomial, _ in size.terms) for size in counts)


def _launched(step: Step) -> Hashable:
    """Equal for steps that one host function launches."""
    choices = [(choice.when, choice.packing is None, choice.may_decline) for choice in step.choices]
    return step.kernels, tuple(choices), _may_write_nothing(step.sized)


class _Loaded(dict[str, Scalar]):
    """The sizes that a call passes, by the names of `raw_dim`: `dims` has those of all inputs, one behind the other."""

    def __init__(self, b: Builder, dims: Val, inputs: Sequence[Value]):
        super().__init__()
        self.b, self.dims = b, dims
        axes = ((i, axis) for i, value in enumerate(inputs) for axis in range(value.rank))
        self.places = {str(raw_dim(i, axis)): at for at, (i, axis) in enumerate(axes)}

    def __missing__(self, name: str) -> Scalar:
        loaded = self.b.cast(arith.IndexCastOp, self.b.index_type, self.b.load(self.dims, self.places[name]))
        self[name] = loaded
        return loaded


def constant_array(value: Value) -> np.ndarray:
    """Return the data of a stored constant as kernels read it: bool as bytes."""
    if value.op is None or value.op.name != "constant":
        raise CompileError(f"{value} is no constant")
    return np.ascontiguousarray(value.op.attrs["value"])
