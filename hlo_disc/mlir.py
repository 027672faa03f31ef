"""The only file that imports MLIR from jaxlib: one process-wide context, the dialects, and the few StableHLO services.

Everything else takes `ir`, dialects and passes from here, so that a jaxlib upgrade touches one file. JAX itself is not
imported: jaxlib alone loads in a third of the time.
"""

from __future__ import annotations

import functools
import importlib
import io
import re
import sys
import threading
from collections import defaultdict
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from jaxlib import _jax
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext, _mlirHlo
from jaxlib.mlir.dialects import chlo, sdy, stablehlo
from jaxlib.mlir.passmanager import PassManager

if TYPE_CHECKING:
    import numpy as np
    from jaxlib.mlir.dialects import arith, func, gpu, math, memref, scf, vector

__all__ = [
    "MlirValue",
    "PassManager",
    "arith",
    "attribute",
    "bytecode",
    "chlo",
    "context",
    "elements",
    "func",
    "gpu",
    "identity",
    "ir",
    "location",
    "math",
    "memref",
    "refine_polymorphic_shapes",
    "run_passes",
    "scf",
    "stablehlo",
    "type_",
    "vector",
]

# Any value of a program or a kernel: jaxlib's stubs have a type for values of each type.
MlirValue: TypeAlias = "ir.Value[ir.Type]"


class _Dialect(ModuleType):
    """A dialect of kernels and host functions, whose module is imported when something of it is used.

    What reads a program, and finds it or its kernels in the cache, does without most of them: their import takes as
    long as all of the reading.
    """

    def __getattr__(self, name: str) -> object:
        module = importlib.import_module(f"jaxlib.mlir.dialects.{self.__name__}")
        vars(self).update({key: value for key, value in vars(module).items() if not key.startswith("__")})
        return getattr(module, name)


if not TYPE_CHECKING:
    arith, func, gpu, math, memref, scf, vector = map(
        _Dialect, ("arith", "func", "gpu", "math", "memref", "scf", "vector")
    )

# A function's name, in the generic form.
_NAME = re.compile(rb'sym_name = "[^"]*"')
_lock = threading.Lock()
_passes: defaultdict[str, list[PassManager]] = defaultdict(list)


@functools.cache
def _make_context() -> ir.Context:
    stablehlo.register_stablehlo_passes()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    made = ir.Context()
    made.enable_multithreading(False)  # modules are small; and a forked child would wait for its parent's threads
    made.append_dialect_registry(registry)
    made.load_all_available_dialects()
    for dialect in (stablehlo, chlo, sdy):
        dialect.register_dialect(made)
    _mlirHlo.register_mhlo_dialect(made)
    _leave_out_classes("llvm", "!llvm.ptr", made)
    _leave_out_classes("gpu", "!gpu.async.token", made)
    return made


def _leave_out_classes(dialect: str, type_: str, context: ir.Context) -> None:
    """Let MLIR treat ops and a type of the dialect like any others: it would import Python's classes for all of them.

    MLIR asks for this module once, and finds an empty one. Who imports it later gets the classes.
    """
    name = f"jaxlib.mlir.dialects.{dialect}"
    if name not in sys.modules:
        sys.modules[name] = ModuleType(name)
        try:
            ir.Type.parse(type_, context)
        finally:
            del sys.modules[name]


def context() -> ir.Context:
    """Return the process-wide context, with every dialect loaded and StableHLO's passes registered. Any thread may call
    it."""
    with _lock:
        return _make_context()


@functools.cache
def type_(text: str) -> ir.Type:
    """Return a type of our context, parsed once a process: each kernel's builder needs some twenty."""
    return ir.Type.parse(text, context())


@functools.cache
def attribute(text: str) -> ir.Attribute:
    """Return an attribute of our context, parsed once a process."""
    return ir.Attribute.parse(text, context())


def elements(array: np.ndarray, type_: ir.Type) -> ir.DenseElementsAttr:
    """Return an attribute with the elements of an array. type_: that of an element, or of the whole."""
    # numpy's arrays have the protocol of buffers, and tell type checkers so from Python 3.12 on.
    return ir.DenseElementsAttr.get(array, type=type_)  # type: ignore[call-overload, no-any-return]


def location(text: str = "") -> ir.Location:
    """Return a location of our context with `text` (a user's source line) as its name; unknown if it is empty."""
    return ir.Location.name(text, context=context()) if text else ir.Location.unknown(context())


def run_passes(module: ir.Module, pipeline: str, keep: bool = False) -> None:
    """Run `builtin.module(pipeline)` on a module in place. Raises MLIRError with the diagnostics.

    keep: the passes, for the next module of our context: what they do first takes longer than a small module. They are
        MLIR's own, and their results are not verified.
    """
    context()  # registers StableHLO's passes, which are global
    kept = _passes[pipeline] if keep else []
    with module.context:
        try:
            passes = kept.pop()
        except IndexError:
            passes = PassManager.parse(f"builtin.module({pipeline})")
            passes.enable_verifier(not keep)
        passes.run(module.operation)
    kept.append(passes)


def refine_polymorphic_shapes(module: ir.Module) -> ir.Module:
    """Refine a module with static argument types and `?` inside to static shapes. It evaluates `shape_assertion`s."""
    refined = _jax.mlir.refine_polymorphic_shapes(
        mlir_module=bytecode(module), enable_shape_assertions=True, validate_static_shapes=True, enable_shardy=False
    )
    return ir.Module.parse(refined, context=context())


def bytecode(module: ir.Module) -> bytes:
    """Return a module as MLIR bytecode."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(file=buffer)
    return buffer.getvalue()


def identity(module: ir.Module) -> bytes:
    """Return the text of a module without its locations. Equal modules have equal texts in all processes.

    With each version of jaxlib it is the same. They print names of functions before or behind the functions: here they
    are at the end, in their order. The module need not verify.
    """
    text = module.operation.get_asm(binary=True, print_generic_op_form=True, assume_verified=True)
    assert isinstance(text, bytes)
    same = _NAME.sub(b"", text).replace(b", }", b"}").replace(b"#gpu<dim ", b"#gpu.dim<")
    return b"\n".join([same, *_NAME.findall(text)])


def from_bytecode(code: bytes) -> ir.Module:
    """Read the module that `bytecode` wrote."""
    return ir.Module.parse(code, context=context())
