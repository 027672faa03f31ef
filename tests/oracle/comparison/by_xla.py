"""Functions and StableHLO that XLA runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.backend import get_backend
from jaxlib._jax import DeviceList

from hlo_disc import mlir
from hlo_disc.dynamic_hlo.print.text import tensor_type
from hlo_disc.dynamic_hlo.sizes.dim import Dim


def at_each(fn: Callable[..., Any], calls: Iterable[Sequence[Any]], **options: Any) -> list[Any]:
    """Return a function's results for each call's arguments, from one program.

    Most of XLA's time for a small program does not depend on its length. options: of `jax.jit`.
    """
    return jax.jit(lambda calls: [fn(*call) for call in calls], **options)([list(call) for call in calls])


def run_stablehlo(text: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """A module with `?` sizes, refined to the shapes of `arrays` and run by XLA on the CPU.

    XLA and not StableHLO's interpreter, because that aborts the process on a dot of size 0.
    """
    with mlir.context():
        module = mlir.ir.Module.parse(text)
        types = [tensor_type(array.dtype, tuple(map(Dim.const, array.shape))) for array in arrays]
        if types:
            mlir.run_passes(module, f"stablehlo-refine-arguments{{types={','.join(types)}}}")
        module = mlir.refine_polymorphic_shapes(module)
        mlir.run_passes(module, "func.func(chlo-legalize-to-stablehlo)")
        program = mlir.bytecode(module)
    device = jax.devices("cpu")[0]
    with jax.enable_x64(True):
        executable = get_backend("cpu").compile_and_load(program, DeviceList((device,)))
        results = executable.execute_sharded([jax.device_put(array, device) for array in arrays])
        return [np.asarray(shards[0]) for shards in results.disassemble_into_single_device_arrays()]
