"""Which forms each group is compiled in: from groups to choices of variants, and the kernels that they need.

Groups that are alike are scheduled once; variants and packings that are alike get one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from hlo_disc import mlir
from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Value, is_array
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.dynamic_hlo.sizes.asked import Answers, AskedFacts
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.frozen import frozen
from hlo_disc.kernel_ops import NARROW
from hlo_disc.mlir import ir
from hlo_disc.stitch.codegen.module import Linked, LinkedFunctions, ModuleBuilder
from hlo_disc.stitch.fusion.collapse import collapse
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.scope import Plan
from hlo_disc.stitch.fusion.strided import strided
from hlo_disc.stitch.origin import Origin
from hlo_disc.stitch.schedule import Static
from hlo_disc.stitch.schedules.two_launches import TwoLaunches
from hlo_disc.stitch.size_arguments import SizeArguments, Sized, as_it_is
from hlo_disc.stitch.variant import Choice, Packing, Variant, decided


@frozen
class Step:
    """A group of the flow and its compiled forms, with the kernel of each. sized: the group as forms know it."""

    group: Group
    choices: tuple[Choice, ...]
    kernels: tuple[str, ...]
    sized: Sized

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the sizes that kernels take."""
        return self.sized.group.symbols

    @property
    def sizes(self) -> tuple[Dim, ...]:
        """The sizes that kernels take, in the program's symbols."""
        return tuple([self.sized.real(Dim.symbol(name)) for name in self.symbols])

    def for_group(self, group: Group) -> Step:
        """Return this step for another group with an equal key."""

        def moved(choice: Choice) -> Choice:
            if choice.packing is None:
                return choice
            source = group.inputs[self.group.inputs.index(choice.packing.source)]
            return replace(choice, packing=choice.packing.with_source(source))

        return replace(self, group=group, choices=tuple(map(moved, self.choices)))

    @property
    def workspace(self) -> list[Value]:
        """Memory that its forms need while they run."""
        return [v for choice in self.choices for v in choice.variant.workspace]


@frozen
class Pack:
    """A packed operand and the kernel that makes it."""

    packing: Packing
    kernel: str

    @property
    def function(self) -> str:
        """The host function that launches the kernel; packings of equal sizes share it."""
        return "_".join((self.kernel, "pack", *map(str, self.packing.numbers)))


@frozen
class Scheduled:
    """steps: of the groups that the host flow launches, in order. kernels: what to build, by name, in order. origins:
    of all kernels. facts: what choosing forms has asked, and building them asks.
    """

    steps: dict[Group, Step]
    packs: tuple[Pack, ...]
    kernels: dict[str, Variant | Packing]
    origins: dict[str, Origin]
    facts: AskedFacts

    def workspace(self, group: Group) -> Sequence[Value]:
        """Memory that a group needs while it runs, if it is launched."""
        return self.steps[group].workspace if group in self.steps else ()


def schedule(graph: Graph, plan: Plan, device: Device) -> Scheduled:
    """Choose the forms of all groups. Raises UnsupportedOpError for what no schedule covers."""
    static = _static(graph, plan) if device.host_memory else Static().value
    names: dict[Hashable, str] = {}
    kernels: dict[str, Variant | Packing] = {}
    origins: dict[str, Origin] = {}
    facts = AskedFacts(graph.facts)
    arguments = SizeArguments(graph.facts)

    def kernel(item: Variant | Packing, sized: Sized | None, answers: Answers) -> str:
        """The kernel of a variant or packing; equal ones, which take symbols in the same order, have one."""
        symbols, asked, said = (sized.group.symbols, sized.facts, sized.known) if sized else ((), facts, ())
        name, key = f"k{len(names)}_{item.name}", item.key()
        known = names.setdefault((key, symbols, said), name)  # keys are large: each is hashed once
        if known is name:
            kernels[name] = item
            origins[name] = Origin(item.name, key, symbols, answers, asked, said)
        return known

    def sized_group(group: Group) -> Sized:
        def collapsed(facts: ShapeFacts) -> Group:
            return collapse(group, facts) if group.schedule.collapses else group

        if group.schedule.takes_sizes and not device.teams:
            small = collapsed(graph.facts)
            sized = arguments.of(small, _free(small))
            # What is said of arguments may be too little, as it is not said that one is a multiple of a number.
            if _walks(sized.group, sized.facts) == _walks(small, graph.facts):
                return sized
        return as_it_is(collapsed(facts), facts)  # all that is asked is noted

    steps: dict[Group, Step] = {}
    alike: dict[tuple[Hashable, ...], Step] = {}
    packs: dict[Packing, Pack] = {}
    for group in plan.groups():
        choose = group.schedule.choices
        if choose is None:  # the host flow is what they are
            continue
        key = (group.key, tuple(static(v) for v in group.inputs))
        same = alike.get(key)
        if same:
            step = same.for_group(group)
        else:
            with facts.noting() as answers:
                sized = sized_group(group)
                forms = choose(sized.group, sized.facts, device, _known(sized, static))
            choices = _fitting(sized, forms, graph.facts, device)
            named = tuple(kernel(c.variant, sized, answers) for c in choices)
            step = Step(group, tuple(choices), named, sized)
            if not step.workspace:  # that is memory of this step alone
                alike[key] = step
        for packing in (c.packing for c in step.choices if c.packing):
            if packing not in packs:
                packs[packing] = Pack(packing, kernel(packing, None, {}))
        steps[group] = step
    return Scheduled(steps, tuple(packs.values()), kernels, origins, facts)


def _known(sized: Sized, static: Callable[[Value], bool]) -> Static:
    """Answers about the program to questions about a group over arguments. static: of the program's values."""
    return Static(lambda value: static(sized.values.get(value, value)), sized.real)


def _walks(group: Group, facts: ShapeFacts) -> list[bool]:
    """For each operand of a group's dots, whether reshapes in the group leave it in a regular pattern in memory."""
    reshaped = any(op.name == "reshape" for op in group.ops)
    dots = [op for op in group.ops if kind(op) == "dot"] if reshaped else []
    return [strided(x, set(group.ops), facts) is not None for dot in dots for x in dot.operands]


def _free(group: Group) -> bool:
    """Do numbers among the sizes buy nothing? Vectors are divided by known numbers alone, and blocks of AMX counted."""
    dots = [op for op in group.ops if kind(op) == "dot"]
    wide = all(x.dtype.itemsize >= 4 for op in dots for x in op.operands)
    return bool(dots) and wide and not any(map(_regroups, group.ops))


def _regroups(op: Op) -> bool:
    """Does an op make other axes of the same elements, so that kernels divide by sizes?"""
    shapes = ([n for n in v.shape if n is not ONE] for v in (op.result, op.operands[0])) if op.name == "reshape" else ()
    return len({tuple(shape) for shape in shapes}) > 1


def _fitting(sized: Sized, choices: Sequence[Choice], facts: ShapeFacts, device: Device) -> list[Choice]:
    """The forms that can be taken; the last one must fit at all sizes."""
    group, kept = sized.group, decided(choices, facts, device.fast_limit, sized.real)
    if not kept or kept[-1].when:
        op = group.outputs[0].op or group.ops[0]
        most = f"the {device.fast_limit} bytes of a block ({op.loc or 'unknown line'})"
        raise UnsupportedOpError(f"{op.name} keeps more in fast memory than {most}")
    return [_in_program(choice, sized) for choice in kept]


def _in_program(choice: Choice, sized: Sized) -> Choice:
    """The choice with the program's operand to pack, and with its workspace in the program's symbols."""
    variant, packing = choice.variant, choice.packing
    if packing is not None:
        choice = replace(choice, packing=packing.with_source(sized.values[packing.source]))
    if not sized.sizes or not isinstance(variant, TwoLaunches):
        return choice
    workspace = tuple([Value(v.dtype, tuple(map(sized.real, v.shape))) for v in variant.workspace])
    return replace(choice, variant=replace(variant, workspace=workspace))


class LinkedKernel(NamedTuple):
    """A module of a kernel. calls: the device functions that it needs. types: of its functions, by name; none if the
    form is host code alone. answers: to what building it has asked.
    """

    module: ir.Module
    calls: Mapping[str, Linked]
    types: Mapping[str, str]
    answers: Answers


class Batch(NamedTuple):
    """A module of kernels. narrow: whether 32 bits hold all indices in it, unless a call has too large sizes. wide: for
    such calls the same kernels with indices of 64 bits, as bytecode; empty if there are none.
    """

    module: ir.Module
    narrow: bool
    wide: bytes


def build_kernels(
    scheduled: Scheduled, names: Sequence[str], device: Device, decisive: Sequence[Dim] | None, batch: int, excess: bool
) -> Iterator[Batch]:
    """Build modules of so many of these kernels, or of all with 0. A module has all that its kernels call.

    decisive: the sizes for which kernels need wider indices, None if they always do. excess: see
    `Options.excess_precision`.
    """
    count = batch or max(len(names), 1)
    for first in range(0, max(len(names), 1), count):
        builder = ModuleBuilder(excess)
        try:
            for name in names[first : first + count]:
                scheduled.kernels[name].build(builder.builder, name)
        finally:
            module = builder.close()
        wide = mlir.bytecode(module) if decisive else b""
        narrow = decisive is not None and builder.largest_index < device.narrow
        if narrow:
            with module.context:
                NARROW.set(module.operation, device.narrow)
        yield Batch(module, narrow, wide)


def build_linked_kernel(item: Variant | Packing, functions: LinkedFunctions, excess_precision: bool) -> LinkedKernel:
    """A kernel in a module that says nothing of its program, and the device functions that it calls."""
    builder = ModuleBuilder(excess_precision, functions)
    with functions.facts.noting() as answers:
        try:
            item.build(builder.builder, item.name)
        finally:
            module = builder.close()
    return LinkedKernel(module, builder.calls, builder.kernel_types(), answers)


def taken(scheduled: Scheduled, values: Mapping[str, int], kept: Callable[[Packing], bool]) -> set[str]:
    """The kernels that a call may take whose symbols have these values, and for which these packed forms are kept.

    The values of some symbols, which follow from data, may be missing.
    """
    found: set[str] = set()
    for step in scheduled.steps.values():
        for choice, kernel in zip(step.choices, step.kernels, strict=True):
            answers = [condition.on(step.sized.real).at(values) for condition in choice.when]
            if False in answers or (choice.packing and not kept(choice.packing)):
                continue
            found.add(kernel)
            if None not in answers and not choice.may_decline:
                break
    return found


def _static(graph: Graph, plan: Plan) -> Callable[[Value], bool]:
    """Is a value's data the same at every call that passes the same array? Then a packed form of it can be kept."""
    inputs = set(graph.inputs)

    def static(value: Value) -> bool:
        root = plan.root(value)
        return all(n.is_const for n in root.shape) and (root in inputs or is_array(root.op))

    return static
