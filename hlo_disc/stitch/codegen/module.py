"""A module under construction: its functions, each built once, and the data that the runtime must have for them.

Kernels and the device functions that they share are in `gpu.module @kernels`. Host functions are at the top of another
module, which declares the kernels that they launch. `build.Builder` builds the inside of functions.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from hlo_disc import mlir
from hlo_disc.device import Team
from hlo_disc.dynamic_hlo.sizes.asked import Answers, AskedFacts
from hlo_disc.errors import CompileError
from hlo_disc.frozen import frozen
from hlo_disc.kernel_ops import (
    CALLS_ONLY,
    DEFERRED,
    EXPORTED,
    KERNELS,
    LAUNCHED,
    LINKED,
    NOALIAS,
    OFTEN,
    READONLY,
    REGISTERS,
)
from hlo_disc.mlir import func, gpu, ir, memref
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.threads import ThreadLanes
from hlo_disc.stitch.codegen.values.val import Val


@frozen
class Linked:
    """A device function in a module of its own.

    digest: of its content; a part of it is in its name. calls: the functions that it calls, and those that they call.
    answers: to what building it has asked.
    """

    name: str
    digest: bytes
    module: ir.Module
    calls: dict[str, Linked]
    answers: Answers


@frozen
class LinkedFunctions:
    """The device functions that a program has in modules of their own, by their keys. facts: of the program."""

    facts: AskedFacts
    known: dict[tuple[Hashable, ...], Linked] = field(default_factory=dict)


class ModuleBuilder:
    """Builds a module of kernels, or one of host functions. `builder` builds the function that is open.

    library: the calls of library functions and their numbers. largest_index: of the constants, without signs.
    excess_precision: see `Options`. program: where device functions are that have modules of their own; None where a
    module has all that it calls. calls: those that the module calls, and those that they call, each behind its own.
    deferred: what the names of kernels begin with whose code is made later.
    """

    def __init__(
        self, excess_precision: bool = False, program: LinkedFunctions | None = None, deferred: Iterable[str] = ()
    ) -> None:
        self.excess_precision = excess_precision
        self.calls: dict[str, Linked] = {}
        self._deferred = tuple(deferred)
        self._program = program
        self._context = mlir.context()
        self._context.__enter__()
        self._unknown = ir.Location.unknown()
        self._unknown.__enter__()
        self._module, self._kernels = _empty_module()
        noalias = NOALIAS.entry(True)
        self._access = {"r": {**noalias, **READONLY.entry(True)}, "w": noalias, "": {}}
        self.library: dict[Any, int] = {}
        self.largest_index = 0
        self._declared: set[str] = set()
        self._launched: dict[str, tuple[ir.Type, ...]] = {}
        self._shared: dict[tuple[Hashable, ...], Callable[..., None]] = {}
        self.builder = Builder(self)

    def close(self) -> ir.Module:
        """End building and return the module."""
        self._unknown.__exit__(None, None, None)
        self._context.__exit__(None, None, None)
        return self._module

    # Kernels and device functions.

    def kernel_types(self) -> dict[str, str]:
        """The kernels' types, by their names."""
        kernels = (view.operation for view in self._kernels.operations if view.operation.name == "gpu.func")
        return {ir.StringAttr(op.attributes["sym_name"]).value: str(op.attributes["function_type"]) for op in kernels}

    @contextmanager
    def kernel(
        self,
        name: str,
        args: Sequence[tuple[ir.Type, str]],
        calls_only: bool = False,
        team: Team | None = None,
    ) -> Iterator[list[Val]]:
        """Open a kernel. An argument is (type, access): "r" or "w" for buffers, "" for scalars.

        calls_only: all its work is done by device functions, so that a target need not optimise it.
        team: the threads that share a block; None for one thread.
        """
        attrs = [ir.DictAttr.get(self._access[access]) for _, access in args]
        with ir.InsertionPoint(self._kernels):
            op = gpu.GPUFuncOp(
                ir.FunctionType.get([t for t, _ in args], []),
                name,
                kernel=True,
                known_block_size=[team.threads * team.count if team else 1, 1, 1],
                arg_attrs=ir.ArrayAttr.get(attrs),
            )
        REGISTERS.set(op, team.registers if team else 0)
        CALLS_ONLY.set(op, calls_only)
        lanes = ThreadLanes(self.builder, team) if team else self.builder.simd
        with self.builder.over(lanes), self.builder.function(op.add_entry_block()) as values:
            yield values
            gpu.ReturnOp([])

    def shared_memory(self, name: str, size: int) -> Val:
        """Return `size` bytes of fast memory, the same for every kernel that asks for this name."""
        type_ = ir.MemRefType.get([size], self.builder.i8, memory_space=self.builder.fast_space)
        if name not in self._declared:
            self._declared.add(name)
            with ir.InsertionPoint.at_block_begin(self._kernels):
                memref.GlobalOp(name, ir.TypeAttr.get(type_), sym_visibility=ir.StringAttr.get("private"))
        return self.builder.at_entry((name,), lambda: memref.GetGlobalOp(type_, name).result)

    def shared(
        self, key: tuple[Hashable, ...], name: str, args: Sequence[ir.Type], body: Callable[..., None]
    ) -> Callable[..., None]:
        """Build a device function once for equal keys. Returns a function that calls it.

        Outlined, its loops have all registers. `body` is called with its arguments. Its name gets a number. In a module
        of its own, it gets a digest of its content, so that programs can share its code.
        """
        if key in self._shared:
            return self._shared[key]
        if self._program is None:
            name = f"{name}{len(self._shared)}"
            self._define(self._device_function(name, args), body)
        else:
            linked = self._program.known.get(key)
            if linked is None:
                with self._program.facts.noting() as answers:
                    made = self._in_module_of_its_own(name, args, body)
                linked = self._program.known[key] = Linked(*made, answers)
            name = linked.name
            self.calls |= {**linked.calls, name: linked}
            self._program.facts.note(linked.answers)
            LINKED.set(self._device_function(name, args), True)
        self._shared[key] = functools.partial(self.builder.call, name)
        return self._shared[key]

    def _in_module_of_its_own(
        self, name: str, args: Sequence[ir.Type], body: Callable[..., None]
    ) -> tuple[str, bytes, ir.Module, dict[str, Linked]]:
        """Build a module with a device function. Returns the first fields of its record."""
        outer, self._shared, self.calls = (self._kernels, self._shared, self.calls), {}, {}
        module, self._kernels = _empty_module()
        try:
            op = self._device_function(name, args)
            LINKED.set(op, True)
            self._define(op, body)
        finally:
            calls = self.calls
            self._kernels, self._shared, self.calls = outer
        digest = hashlib.sha256(mlir.identity(module)).digest()
        name = f"{name}_{digest.hex()[:16]}"
        op.attributes["sym_name"] = ir.StringAttr.get(name)
        return name, digest, module, calls

    def _device_function(self, name: str, args: Sequence[ir.Type]) -> func.FuncOp:
        with ir.InsertionPoint(self._kernels):
            return func.FuncOp(name, (list(args), []), visibility="private")

    def _define(self, op: func.FuncOp, body: Callable[..., None]) -> None:
        with self.builder.function(op.add_entry_block()) as values:
            body(*values)
            self.builder.return_()

    # Host functions.

    def declare_kernel(self, name: str, args: Sequence[ir.Type]) -> None:
        """Declare a kernel of another module, which a host function launches."""
        types = tuple(args)
        if name not in self._launched:
            self._launched[name] = types
            op = self._device_function(name, args)
            LAUNCHED.set(op, True)
            DEFERRED.set(op, name.startswith(self._deferred))
        elif self._launched[name] != types:
            raise CompileError(f"the kernel {name} is launched with {types}, and before with {self._launched[name]}")

    @contextmanager
    def host_function(
        self, name: str, args: Sequence[ir.Type], results: Sequence[ir.Type] = (), often: bool = False
    ) -> Iterator[list[Val]]:
        """Open a public host function; its body ends with `return_`. often: it has loops, and is worth optimising."""
        op = self._host(name, args, results)
        EXPORTED.set(op, True)
        OFTEN.set(op, often)
        with self.builder.function(op.add_entry_block()) as values:
            yield values

    @contextmanager
    def private_function(
        self, name: str, args: Sequence[ir.Type], may_fail: bool = False, often: bool = False, status: int = 0
    ) -> Iterator[tuple[list[Val], Callable[..., None]]]:
        """Open a host function that others call. Yields (arguments, call).

        may_fail: it returns a status, in the end the one given; calls in it may fail, and so do then the functions that
        call it. often: it is called in loops, and is worth optimising.
        """
        b = self.builder
        op = self._host(name, args, [b.i32] if may_fail else [], visibility="private")
        OFTEN.set(op, often)
        with b.function(op.add_entry_block()) as values:
            yield values, functools.partial(b.checked_call if may_fail else b.call, name)
            b.return_(*([b.const(status, b.i32)] if may_fail else []))

    def declare(self, name: str, args: Sequence[ir.Type], results: Sequence[ir.Type]) -> None:
        """Declare a host function of the runtime."""
        if name not in self._declared:
            self._declared.add(name)
            self._host(name, args, results, visibility="private")

    def _host(
        self, name: str, args: Sequence[ir.Type], results: Sequence[ir.Type], visibility: str | None = None
    ) -> func.FuncOp:
        with ir.InsertionPoint(self._module.body):
            return func.FuncOp(name, (list(args), list(results)), visibility=visibility)


def _empty_module() -> tuple[ir.Module, ir.Block]:
    """Return a module, and the place of its kernels."""
    module = ir.Module.create()
    module.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()
    with ir.InsertionPoint(module.body):
        name = ir.StringAttr.get(KERNELS)
        return module, ir.Operation.create("gpu.module", attributes={"sym_name": name}, regions=1).regions[
            0
        ].blocks.append()
