"""Sizes that only the run knows: `main` computes them, checks them, and allocates what is of such a size.

A graph's definitions become `define` ops, and guards on their symbols `check` ops behind them. A group that mentions
such a symbol runs after both; before it, its memory is allocated through the runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from hlo_disc.dynamic_hlo.ir.graph import Graph, Guard, Op, Value, dims_in, make_op
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import CompileError
from hlo_disc.mlir import arith, func, ir, memref
from hlo_disc.stitch.codegen.body import Sizes
from hlo_disc.stitch.codegen.build import Builder, Scalar
from hlo_disc.stitch.codegen.val import Val
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.hostflow.memory import Slot

# What ral_allocate is asked for, besides outputs by their number.
_TEMPORARY, _SCRATCH = -1, -2


def with_definitions(graph: Graph) -> Graph:
    """The definitions of a graph as ops `define` (scalar) {symbol, effect}, and guards that wait for them as checks."""
    if not graph.definitions:
        return graph
    names: dict[Value, list[str]] = {}
    for name, value in graph.definitions.items():
        names.setdefault(value, []).append(name)
    waiting = [g for g in graph.guards if not _mentioned(g).isdisjoint(graph.definitions)]
    guards = tuple(g for g in graph.guards if g not in waiting)
    known: set[str] = set(graph.bindings)
    ops: list[Op] = []

    def define(value: Value) -> None:
        for name in names.get(value, ()):
            ops.append(
                make_op("define", [value], {"symbol": name, "effect": True}, [], value.op.loc if value.op else "")
            )
            known.add(name)
        for guard in [g for g in waiting if _mentioned(g) <= known]:
            waiting.remove(guard)
            ops.append(make_op("check", [], dict(vars(guard)), [], ""))

    for value in graph.inputs:
        define(value)
    for op in graph.ops:
        ops.append(op)
        for value in op.results:
            define(value)
    if waiting:
        raise CompileError(f"nothing says when the guard {waiting[0]} can be checked")
    return replace(graph, ops=tuple(ops), guards=guards, definitions={})


def _mentioned(guard: Guard) -> frozenset[str]:
    return frozenset().union(*(d.symbols for d in (guard.lhs, guard.rhs, *guard.args)))


def stages(ops: Iterable[Op]) -> dict[Op, int]:
    """How many definitions each op has to wait for, one behind the other; empty when there is none."""
    found: dict[Op, int] = {}
    defined: dict[str, int] = {}
    for op in ops:
        stage = max((found.get(x.op, 0) for x in op.operands if x.op is not None), default=0)
        for d in dims_in(op) if defined else ():
            stage = max([stage, *(defined[name] for name in d.symbols if name in defined)])
        found[op] = stage
        if op.name == "define":
            defined[op.attrs["symbol"]] = stage + 1
    return found if defined else {}


class LateMemory:
    """What `main` allocates while it runs. places: the slot of each value; needs: fast memory of a group's blocks.

    outputs: values whose memory is an output of a late size, by its number.
    """

    def __init__(
        self,
        b: Builder,
        sizes: Sizes,
        places: Mapping[Value, Slot],
        outputs: Mapping[Value, int],
        needs: Callable[[Group], Iterable[Dim]],
    ):
        self.b, self.sizes, self.places, self.outputs, self.needs = b, sizes, places, outputs, needs
        self._fail: Callable[..., None] | None = None
        self._slots: dict[Slot, Val] = {}
        self._had: set[Dim] = set()

    def prepare(self, group: Group, touched: Iterable[Value], memory: dict[Value, Val]) -> None:
        """Allocate what a group of the outermost scope needs and is not there yet."""
        for value in touched:
            if value in memory:
                continue
            if value in self.outputs:
                sizes = self.sizes.shape(value.shape)
                memory[value] = self._allocate(self.outputs[value], sizes, self.b.memory_type(value.dtype))
            elif value in self.places:
                slot = self.places[value]
                if slot not in self._slots:
                    self._slots[slot] = self._allocate(_TEMPORARY, [self.sizes(slot.size)], self.b.i8)
                memory[value] = self.b.retyped(self._slots[slot], self.b.memory_type(value.dtype))
        for need in self.needs(group):
            if need not in self._had:
                self._had.add(need)
                self._allocate(_SCRATCH, [self.sizes(need)], self.b.i8)

    def _allocate(self, what: int, sizes: Iterable[Scalar], element: ir.Type) -> Val:
        b = self.b
        words = [b.cast(arith.IndexCastOp, b.i64, b.index(x)) for x in sizes]
        record = memref.AllocaOp(ir.MemRefType.get([max(len(words), 1)], b.i64), [], []).result
        for i, word in enumerate(words):
            memref.StoreOp(word.v, record, [b.index(i).v])
        pointer = b.buffer_type(b.i64)
        b.declare("ral_allocate", [b.pointer, b.i32, pointer], [b.pointer])
        given = [b.runtime.v, b.const(what, b.i32).v, memref.CastOp(pointer, record).result]
        made = func.CallOp([b.pointer], "ral_allocate", given).results[0]
        cast = ir.Operation.create(
            "builtin.unrealized_conversion_cast", results=[b.buffer_type(element)], operands=[made]
        )
        buffer = Val(b, cast.results[0])
        b.if_(b.is_null(buffer), lambda: self._no_memory()(b.runtime))
        return buffer

    def _no_memory(self) -> Callable[..., None]:
        """(call): let `main` return 1."""
        if self._fail is None:
            with self.b.private_function("no_memory", [self.b.pointer], may_fail=True, status=1) as (_, call):
                self._fail = call
        return self._fail
