"""LLVM IR as text into LLVM's modules, and through the passes that all targets have.

llvmlite's LLVM aborts the process on a malformed module, so it is always verified.
"""

from __future__ import annotations

import functools
import threading

import llvmlite.binding as llvm
from llvmlite.binding.newpassmanagers import NewPassManager

from hlo_disc.errors import CompileError

_LEAN = ("global_dead_code_eliminate", "always_inliner", "sroa", "instruction_combine", "simplify_cfg")
# Held where LLVM generates code.
LOCK = threading.Lock()


@functools.cache
def initialize() -> None:
    """Once a process, before a target machine is made."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # a tenth of code generation, and nothing to gain: schedules keep addresses simple and outline their hot loops
    llvm.set_option("hlo_disc", "-disable-lsr")


def parse(text: str, context: llvm.ContextRef) -> llvm.ModuleRef:
    """A verified module of its own. Raises CompileError."""
    try:
        parsed = llvm.parse_assembly(text, context)
    except RuntimeError as error:
        raise CompileError(f"the generated LLVM IR does not parse: {error}") from None
    try:
        parsed.verify()
    except RuntimeError as error:
        parsed.close()
        raise CompileError(f"the generated LLVM IR does not verify: {error}") from None
    return parsed


def optimize(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    """The lean passes: schedules vectorise and unroll by themselves."""
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes = llvm.create_new_module_pass_manager()
    for name in _LEAN:
        getattr(passes, f"add_{name}_pass")()
    _run(passes, module, builder)


def optimize_whole(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    """LLVM's own passes: with those of the machine, which find out in what address space memory is."""
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    _run(builder.getModulePassManager(), module, builder)


def _run(passes: llvm.ModulePassManager, module: llvm.ModuleRef, builder: llvm.PassBuilder) -> None:
    """And dispose of the passes: close() finds another method than a manager's, which does nothing."""
    try:
        passes.run(module, builder)
    finally:
        NewPassManager._dispose(passes)
        passes.detach()
