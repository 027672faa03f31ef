"""A StableHLO program as a function of `jax.jit`, for which XLA is told the sizes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from hlo_disc import mlir
from hlo_disc.conformance import oracle
from hlo_disc.conformance.cases import functions
from hlo_disc.import_.stablehlo.decode import Decoder
from hlo_disc.mlir import ir

if TYPE_CHECKING:
    from jax.typing import ArrayLike


class Peer:
    """Calls a program; the first call compiles it, and raises oracle.Refused for sizes that it does not allow.

    types: dtype and sizes of each argument.
    """

    def __init__(self, module: ir.Module, types: oracle.InputTypes):
        self._module, self._types = module, types

    def __call__(self, *args: ArrayLike) -> Sequence[jax.Array]:
        return self._compiled(*args)

    @functools.cached_property
    def _compiled(self) -> Callable[..., Sequence[jax.Array]]:
        static = oracle.refine(oracle.clone(self._module), self._types)
        operations = functions(static)["main"].regions[0].blocks[0].operations
        results = [Decoder().tensor(x.type) for x in operations[len(operations) - 1].operands]
        # JAX takes StableHLO as an export: the one of a function with these types, with our program in it.
        empty = jax.jit(lambda *args: [jnp.zeros(shape, dtype) for dtype, shape in results], keep_unused=True)
        export = jax.export.export(empty)(*(jax.ShapeDtypeStruct(shape, dtype) for dtype, shape in self._types))
        artifact = mlir.stablehlo.serialize_portable_artifact(static, mlir.stablehlo.get_current_version())
        called: Callable[..., Sequence[jax.Array]]
        called = jax.jit(dataclasses.replace(export, mlir_module_serialized=artifact).call)
        return called
