"""`main` under construction: launches in order, loops and branches around them, scalars in registers.

A plan's scopes become host code. A `Frame` has the location of every value at this point of the code: a buffer, or a
register for a scalar. A loop carries pointers to the buffers that it alternates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.errors import CompileError
from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen.body import Body, InMemory
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.scope import Branches, Carried, Loop, Plan, Scope
from hlo_disc.stitch.schedule import CONTROL, HOST


class Frame:
    """The locations of values, by their roots. An inner frame sees those of the outer one, and hides what it adds."""

    def __init__(self, memory: Mapping[Value, Val], registers: Mapping[Value, Val]):
        self.memory, self.registers = dict(memory), dict(registers)

    def inside(self) -> Frame:
        return Frame(self.memory, self.registers)


class Emitter:
    """Builds the host code of scopes. symbols: the operands of `sizes`; running code adds some. stored: registers that
    kernels read in memory.

    launch: builds the launch of a group, given a function from values to buffers. check: builds the check of a
    condition on sizes.
    """

    def __init__(
        self,
        b: Builder,
        plan: Plan,
        symbols: dict[str, Scalar],
        sizes: Sizes,
        stored: Collection[Value],
        launch: Callable[[Group, Callable[[Value], Val]], None],
        check: Callable[[Op], None],
        defined: Callable[[], None],
    ):
        self.b, self.plan, self.symbols, self.sizes = b, plan, symbols, sizes
        self.stored, self.launch, self.check, self.defined = stored, launch, check, defined

    def scope(self, scope: Scope, frame: Frame, before: Callable[[Group], None] | None = None) -> None:
        """All groups of a scope; `before` is called before each of them."""
        for group in scope.groups:
            if before is not None:
                before(group)
            if group.schedule is HOST:
                self._host(group, frame)
            elif group.schedule is not CONTROL:
                self.launch(group, lambda value: self.buffer(value, frame))
            elif group.ops[0] in self.plan.loops:
                self._loop(self.plan.loops[group.ops[0]], frame)
            else:
                self._branches(self.plan.branches[group.ops[0]], frame)

    # Where values are.

    def buffer(self, value: Value, frame: Frame) -> Val:
        """Return the value's memory."""
        found = frame.memory.get(self.plan.root(value))
        if found is None:
            raise CompileError(f"{value!r} of {value.op.name if value.op else 'a region'} has no place in memory")
        return self.b.retyped(found, self.b.memory_type(value.dtype))

    def register(self, value: Value, frame: Frame) -> Val:
        """Return a scalar in a register."""
        found = frame.registers.get(self.plan.root(value))
        if found is not None:
            return found
        return self._computed(value, (value,) if self.plan.root(value) in frame.memory else (), frame)

    def _computed(self, value: Value, inputs: Sequence[Value], frame: Frame) -> Val:
        """Compute a scalar from `inputs`, which are in registers or memory."""
        known = {x: frame.registers.get(self.plan.root(x)) for x in inputs}
        leaves = {
            x: InMemory(self.buffer(x, frame), self.sizes.shape(x.shape), x.dtype, fixed=False)
            for x, register in known.items()
            if register is None and self.plan.root(x) in frame.memory
        }
        body = Body(self.b, 1, self.sizes, leaves)
        body.bound = {x: register for x, register in known.items() if register is not None}
        return body.eval(value, ())

    def _set(self, value: Value, x: Val, frame: Frame) -> None:
        """Set the register of a value, and its memory if kernels read it."""
        frame.registers[value] = x
        if value in self.stored:
            Body(self.b, 1, self.sizes, {}).store(x, InMemory(self.buffer(value, frame), (), value.dtype), ())

    def _host(self, group: Group, frame: Frame) -> None:
        if group.ops[0].name == "check":
            self.check(group.ops[0])
            return
        if group.ops[0].name == "define":
            symbol = self.register(group.ops[0].operands[0], frame)
            self.symbols[group.ops[0].attrs["symbol"]] = self.b.cast(arith.IndexCastOp, self.b.index_type, symbol)
            self.defined()
            return
        (value,) = group.outputs
        with self.b.at(group.ops[-1].loc):
            self._set(value, self._computed(value, group.inputs, frame), frame)

    # Loops.

    def _loop(self, loop: Loop, frame: Frame) -> None:
        """Build a loop. It carries registers, alternating buffers, and free buffers; other values stay in place."""
        scalars = [c for c in loop.carried if c.in_register]
        moving = [k for k, c in enumerate(loop.carried) if not c.in_register and not c.in_place]
        spare = [k for k in moving if loop.carried[k].spare is not None]
        self._load_invariants(loop, frame)
        inits = [self.register(c.entry, frame) for c in scalars]
        inits += [self.buffer(loop.carried[k].entry, frame) for k in moving]
        inits += [self.buffer(loop.carried[k].spare, frame) for k in spare]  # type: ignore[arg-type]

        def enter(args: Sequence[Val], again: bool) -> tuple[Frame, dict[int, Val], dict[int, Val]]:
            inside = frame.inside()
            current = dict(zip(moving, args[len(scalars) :], strict=False))
            free = dict(zip(spare, args[len(scalars) + len(moving) :], strict=True))
            inside.memory.update((loop.carried[k].before, x) for k, x in current.items())
            for c, x in zip(scalars, args, strict=False):
                if again:
                    inside.registers[c.before] = x
                else:
                    self._set(c.before, x, inside)
            return inside, current, free

        def test(args: list[Val]) -> Val:
            inside, _, _ = enter(args, again=False)
            self.scope(loop.cond, inside)
            return self.register(loop.cond.outputs[0], inside)

        def step(args: list[Val]) -> list[Val]:
            inside, current, free = enter(args, again=True)
            inside.memory.update((self.plan.root(loop.carried[k].after), x) for k, x in free.items())
            self.scope(loop.body, inside)
            after = [self.register(c.after, inside) for c in scalars]
            for k in moving:
                other = loop.carried[k].follows
                after.append(free[k] if other is None else current[other])
            return after + [current[_left_by(loop.carried, k)] for k in spare]

        results = self.b.while_(inits, test, step)
        for c, x in zip(scalars, results, strict=False):
            self._set(c.result, x, frame)
        for k, x in zip(moving, results[len(scalars) :], strict=False):
            frame.memory[loop.carried[k].result] = x

    def _load_invariants(self, loop: Loop, frame: Frame) -> None:
        """Load scalars that the loop's host code reads, and does not write, before the loop."""
        groups = [*self.plan.groups(loop.cond), *self.plan.groups(loop.body)]
        written = {self.plan.root(v) for group in groups for v in group.written}
        for group in groups:
            for value in group.inputs if group.schedule in (HOST, CONTROL) else ():
                root = self.plan.root(value)
                if not value.shape and root in frame.memory and root not in written and root not in frame.registers:
                    frame.registers[root] = self.register(value, frame)

    # Branches.

    def _branches(self, branches: Branches, frame: Frame) -> None:
        index = self.register(branches.index, frame)
        scalars = [k for k, value in enumerate(branches.results) if not value.shape]
        like = [self.b.const(0, self.b.register_type(branches.results[k].dtype)) for k in scalars]

        def run(number: int) -> list[Val]:
            scope, inside = branches.scopes[number], frame.inside()
            self.scope(scope, inside)
            return [self.register(scope.outputs[k], inside) for k in scalars]

        def choose(first: int, end: int) -> list[Val]:
            if end - first == 1:
                return run(first)
            middle = (first + end) // 2
            below = self.b.compare("<", index, middle, unsigned=True)  # a negative number takes the last branch, too
            return self.b.if_(below, lambda: choose(first, middle), lambda: choose(middle, end), like)

        for k, x in zip(scalars, choose(0, len(branches.scopes)), strict=True):
            self._set(branches.results[k], x, frame)


def _left_by(carried: Sequence[Carried], k: int) -> int:
    """Return whose buffer is free once the value numbered `k` is in a spare one: the value that no other replaces."""
    while True:
        follower = next((n for n, c in enumerate(carried) if c.follows == k), None)
        if follower is None:
            return k
        k = follower
