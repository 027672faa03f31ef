"""Translates MLIR (func, scf, arith, math, memref, vector, gpu) to LLVM IR text, for a Machine record.

Regular ops are rows of a table, the rest one small function each; an op that is in no table is a CompileError that
names it and its location. Functions of the `gpu.module` get its name as a prefix, so that they cannot clash with host
functions. By that name other modules of the program find kernels, and the device functions that say so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from hlo_disc import mlir
from hlo_disc.errors import CompileError
from hlo_disc.kernel_ops import DEFERRED, KERNELS, LAUNCHED, LINKED, NARROW, extension
from hlo_disc.mlir import ir
from hlo_disc.targets.machine import Machine
from hlo_disc.targets.math import vecmath
from hlo_disc.targets.translate import control, functions, memory, rows, threads, vectors
from hlo_disc.targets.translate.emit import Extensions, FunctionBody, Handler, ModuleBody
from hlo_disc.targets.translate.types import Untranslatable

# A region has one block each, so that there are none to merge or drop.
_CANONICALIZE = "canonicalize{top-down=false region-simplify=disabled},cse"

EXTENSIONS: Extensions = {**rows.EXTENSIONS, **functions.EXTENSIONS, **threads.EXTENSIONS}


def _extension(body: FunctionBody, op: ir.Operation) -> None:
    try:
        found = extension(op)
    except TypeError as error:
        raise Untranslatable(str(error)) from None
    EXTENSIONS[type(found)](body, op, found)


HANDLERS: Mapping[str, Handler] = {
    **rows.HANDLERS,
    **memory.HANDLERS,
    **vectors.HANDLERS,
    **control.HANDLERS,
    **functions.HANDLERS,
    "llvm.call_intrinsic": _extension,
}


def canonicalize(modules: Sequence[ir.Module]) -> None:
    """Verify modules, and bring them in place to the form that is translated. Raises CompileError."""
    try:
        for module in modules:
            module.operation.verify()
            mlir.run_passes(module, _CANONICALIZE, keep=True)
    except ir.MLIRError as error:
        raise CompileError(f"the generated MLIR does not verify: {error}") from None


class Unit(NamedTuple):
    """The names of a module of kernels, if one LLVM module consists of several.

    section: the section of its code; its kernels' symbols have it too, until objects are joined.
    prefix: the program's names of the kernels are this and the module's names.
    """

    section: str
    prefix: str = ""

    @property
    def symbols(self) -> str:
        """Return the prefix of its kernels' symbols in the object."""
        return f"{KERNELS}.{self.section}."

    @property
    def linked(self) -> str:
        """Return the prefix of its kernels' symbols in the program."""
        return f"{KERNELS}.{self.prefix}"


def translate(modules: Sequence[ir.Module], machine: Machine, units: Sequence[Unit] = ()) -> str:
    """Translate verified modules, linked by names, to text of LLVM IR. Raises CompileError for unsupported ops.

    units: of the first modules. With any, functions of vector math have sections, too.
    """
    narrow = max((NARROW.of(module.operation) for module in modules), default=0)
    out = ModuleBody(machine, {**HANDLERS, **threads.HANDLERS} if machine.threads else HANDLERS, narrow, bool(units))
    top = [view.operation for module in modules for view in module.body.operations]
    host = {functions.name_of(op): functions.symbol(functions.name_of(op)) for op in top if op.name == "func.func"}
    declared: dict[str, str] = {}
    for module, unit in zip(modules, itertools.chain(units, itertools.repeat(None)), strict=False):
        for op in (view.operation for view in module.body.operations):
            if op.name == "gpu.module":
                declared |= _declared_kernels(out, op)
                host |= _gpu_module(out, op, unit)
    host = declared | host
    for op in top:
        if op.name == "func.func":
            _at(op, functions.host_function, out, op, host[functions.name_of(op)], host)
        elif op.name != "gpu.module":
            raise CompileError(f"no translation for the op {op.name} at {op.location}")
    return _text(out)


def _declared_kernels(out: ModuleBody, op: ir.Operation) -> dict[str, str]:
    """Return the kernels that a `gpu.module` declares, by the name that a launch uses."""
    prefix = functions.name_of(op)
    inner = [view.operation for view in op.regions[0].blocks[0].operations if _is_declared_kernel(view.operation)]
    names = map(functions.name_of, inner)
    symbols = [functions.symbol(x if out.machine.launches else f"{prefix}.{x}") for x in names]
    out.deferred |= {symbol for symbol, op in zip(symbols, inner, strict=True) if DEFERRED.of(op)}
    return {f"{prefix}::{functions.name_of(op)}": symbol for symbol, op in zip(symbols, inner, strict=True)}


def _gpu_module(out: ModuleBody, op: ir.Operation, unit: Unit | None) -> dict[str, str]:
    """Define the functions of a `gpu.module`; returns its kernels by the name that a launch uses."""
    machine, prefix = out.machine, functions.name_of(op)
    out.section = f' section "{section_name(unit.section)}"' if unit else ""
    inner = [view.operation for view in op.regions[0].blocks[0].operations]
    for memory_op in (op for op in inner if op.name == "memref.global"):
        threads.shared_memory(out, memory_op)
    inner = [op for op in inner if not _is_declared_kernel(op) and op.name != "memref.global"]
    symbols = {}
    for function in inner:
        if function.name not in ("gpu.func", "func.func"):
            raise CompileError(f"no translation for the op {function.name} at {function.location}")
        name = functions.name_of(function)
        external = function.name == "func.func" and not function.regions[0].blocks and not LINKED.of(function)
        alone = external or machine.threads is not None  # then there are no host functions beside it
        is_kernel = function.name == "gpu.func"
        own = unit.symbols if unit and is_kernel else f"{prefix}."
        symbols[name] = functions.symbol(name if alone else own + name)
    kernels = {}
    for function in inner:
        name = functions.name_of(function)
        is_kernel = function.name == "gpu.func"
        define = functions.device_function
        if is_kernel:
            define = threads.kernel if machine.threads else functions.kernel
        _at(function, define, out, function, symbols[name], symbols)
        if is_kernel:
            kernels[f"{prefix}::{unit.prefix if unit else ''}{name}"] = symbols[name]
    out.section = ""
    return kernels


def section_name(name: str) -> str:
    """Return the section of code that is kept by itself."""
    return f".text.{name}"


def check_launched(
    modules: Sequence[ir.Module], prefixes: Sequence[str] = (), others: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Raise CompileError for a kernel that no module has, or that has other arguments than its declaration.

    prefixes: what declarations put before the names of the first modules' kernels. others: the types of further ones.
    """
    inner = [
        (prefix, view.operation)
        for module, prefix in zip(modules, itertools.chain(prefixes, itertools.repeat("")), strict=False)
        for op in module.body.operations
        if op.operation.name == "gpu.module"
        for view in op.operation.regions[0].blocks[0].operations
    ]
    own = {p + functions.name_of(op): str(op.attributes["function_type"]) for p, op in inner if op.name == "gpu.func"}
    types = {**others, **own}
    for op in (op for _, op in inner if _is_declared_kernel(op) and not DEFERRED.of(op)):
        name, declared = functions.name_of(op), str(op.attributes["function_type"])
        if name not in types:
            raise CompileError(f"the kernel @{name} is declared as {declared}, but no module has it")
        if types[name] != declared:
            raise CompileError(f"the kernel @{name} is declared as {declared}, but it is {types[name]}")


def _is_declared_kernel(op: ir.Operation) -> bool:
    return op.name == "func.func" and LAUNCHED.of(op)


def _at(op: ir.Operation, define: Callable[..., None], *arguments: object) -> None:
    try:
        define(*arguments)
    except Untranslatable as error:
        raise CompileError(f"cannot translate {op.name} @{functions.name_of(op)} at {op.location}: {error}") from None


def _text(out: ModuleBody) -> str:
    math = vecmath.define(out.math, out.machine, section_name if out.in_sections else None)
    for name, line in math.declarations.items():
        out.declarations.setdefault(name, line)
    head = [f'target triple = "{out.machine.triple}"', f'target datalayout = "{out.machine.layout}"']
    declared = [line for name, line in out.declarations.items() if name not in out.defined]
    return "\n".join([*head, *declared, *math.functions, *out.functions, out.machine.metadata, *out.loops]) + "\n"
