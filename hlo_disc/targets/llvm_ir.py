"""LLVM IR as text into LLVM's modules, through the passes that all targets have, and to code.

llvmlite's LLVM aborts the process on a malformed module, so it is always verified. Any number of threads may compile,
each with a context and a target machine of its own, which is all that LLVM asks for.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import llvmlite.binding as llvm
from llvmlite.binding import ffi
from llvmlite.binding.newpassmanagers import NewPassManager

from hlo_disc.errors import CompileError

_LEAN = ("global_dead_code_eliminate", "always_inliner", "sroa", "instruction_combine", "simplify_cfg")
# Options are the process's: they change while nobody compiles.
_idle = threading.Condition()
_compiling = 0
_options: set[str] = set()
# Those that nobody has.
_machines: defaultdict[tuple[str | int, ...], list[llvm.TargetMachine]] = defaultdict(list)


@functools.cache
def initialize() -> None:
    """Once a process, before a target machine is made."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # a tenth of code generation, and nothing to gain: schedules keep addresses simple and outline their hot loops
    set_option("-disable-lsr")


def set_option(text: str) -> None:
    """Set an option of LLVM, for all that is compiled from now on; LLVM takes each only once."""
    with _idle:
        _idle.wait_for(lambda: not _compiling)
        if text not in _options:
            _options.add(text)
            llvm.set_option("hlo_disc", text)


@contextmanager
def machine(
    triple: str, cpu: str, features: str = "", codemodel: str = "jitdefault", level: int = 2
) -> Iterator[llvm.TargetMachine]:
    """A target machine that no other thread has meanwhile; it is kept for who comes next.

    level: of optimisation, as LLVM counts it.
    """
    global _compiling
    initialize()
    kept = _machines[triple, cpu, features, codemodel, level]
    with _idle:
        _compiling += 1
        found = kept.pop() if kept else None
    try:
        if found is None:
            target = llvm.Target.from_triple(triple)
            found = target.create_target_machine(cpu, features, opt=level, reloc="pic", codemodel=codemodel)
        yield found
        kept.append(found)
    finally:
        with _idle:
            _compiling -= 1
            _idle.notify_all()


def unlocked(name: str) -> Callable[..., object]:
    """A function of llvmlite's library without the lock that llvmlite holds in each: it is for all of LLVM.

    In other threads Python runs meanwhile. A llvmlite that has no such function gives the one with the lock.
    """
    function: Callable[..., object] = getattr(ffi.lib, name)
    inside: Callable[..., object] = getattr(function, "_cfn", function)
    return inside


def parse(text: str, context: llvm.ContextRef) -> llvm.ModuleRef:
    """A verified module of its own. Raises CompileError."""
    with ffi.OutputString() as error:
        module = unlocked("LLVMPY_ParseAssembly")(context, text.encode(), error)
        if error:
            raise CompileError(f"the generated LLVM IR does not parse: {error}")
    parsed = llvm.ModuleRef(module, context)
    with ffi.OutputString() as error:
        if unlocked("LLVMPY_VerifyModule")(parsed, error):
            parsed.close()
            raise CompileError(f"the generated LLVM IR does not verify: {error}")
    return parsed


def optimize(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    """The lean passes: schedules vectorise and unroll by themselves."""
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    unlocked("LLVMPY_RunNewModulePassManager")(_lean(machine), module, builder)


@functools.cache
def _lean(machine: llvm.TargetMachine) -> llvm.ModulePassManager:
    """Made once a machine: in a thread each call of LLVM's, however short, waits until Python gives it a turn again.

    A builder cannot be kept: with options that disable passes it refers to what ends with the run.
    """
    passes = llvm.create_new_module_pass_manager()
    for name in _LEAN:
        getattr(passes, f"add_{name}_pass")()
    return passes


def optimize_whole(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    """LLVM's own passes: with those of the machine, which find out in what address space memory is."""
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getModulePassManager()
    try:
        unlocked("LLVMPY_RunNewModulePassManager")(passes, module, builder)
    finally:  # close() finds another method than a manager's, which does nothing
        NewPassManager._dispose(passes)
        passes.detach()


def emit(module: llvm.ModuleRef, machine: llvm.TargetMachine, assembly: bool = False) -> bytes:
    """A module's object code, or its assembly, which changes the module. Raises CompileError."""
    with ffi.OutputString() as error:
        buffer = unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, int(not assembly), error)
        if not buffer:
            raise CompileError(f"LLVM makes no code: {error}")
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)
