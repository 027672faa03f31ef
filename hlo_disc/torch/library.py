"""An executable as an op of `torch.library`, for exported programs and graphs of other backends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from hlo_disc.compiled.program import dtype_named
from hlo_disc.dynamic_hlo.ir.graph import raw_dim
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import ArgumentError
from hlo_disc.executable import Executable
from hlo_disc.import_.aten.dtypes import DTYPES
from hlo_disc.import_.sizes.symbols import Bindings, Input

LIBRARY = torch.library.Library("hlo_disc", "FRAGMENT")
_TORCH = {dtype: kind for kind, dtype in DTYPES.items()}
_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": torch.sym_min,
    "max": torch.sym_max,
}


def op(executable: Executable, name: str) -> torch._ops.OpOverload:
    """Register an executable as the op `torch.ops.hlo_disc.<name>`, from tensors to a list of tensors.

    The op has no derivative. It keeps the executable for the life of the process.

    Args:
        executable: the executable; the sizes of its results must not depend on data.
        name: an identifier that no op of hlo_disc has.

    Returns:
        The op. `torch.export` and `torch.compile` keep it as one op of their graphs, at symbolic sizes too.

    Raises:
        ArgumentError: the name is taken or no identifier, or sizes of results depend on data.
    """
    program = executable.program
    inputs = [Input(row.name, dtype_named(row.dtype), tuple(map(Dim.parse, row.shape))) for row in program.inputs]
    outputs = [(_TORCH[dtype_named(row.dtype)], tuple(map(Dim.parse, row.shape))) for row in program.outputs]
    bindings = Bindings(inputs).symbols
    if unknown := {str(d) for _, shape in outputs for d in shape if not d.symbols <= bindings.keys()}:
        raise ArgumentError(f"the sizes {', '.join(sorted(unknown))} of results depend on data, which no op may")
    if not name.isidentifier() or hasattr(torch.ops.hlo_disc, name):
        raise ArgumentError(f"{name!r} is no identifier, or the name of an op of hlo_disc already")
    arguments = ", ".join(f"Tensor x{i}" for i in range(len(inputs)))
    LIBRARY.define(f"{name}({arguments}) -> Tensor[]")

    def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return list(executable.native(*tensors))

    def fake(*tensors: torch.Tensor) -> list[torch.Tensor]:
        raw = {str(raw_dim(i, axis)): n for i, x in enumerate(tensors) for axis, n in enumerate(x.shape)}
        known = {symbol: d.lower(int, raw.__getitem__, _OPERATIONS) for symbol, d in bindings.items()}
        return [
            tensors[0].new_empty([d.lower(int, known.__getitem__, _OPERATIONS) for d in shape], dtype=dtype)
            for dtype, shape in outputs
        ]

    LIBRARY.impl(name, call, "CPU")
    torch.library.register_fake(f"hlo_disc::{name}", fake, lib=LIBRARY)
    return getattr(torch.ops.hlo_disc, name).default
