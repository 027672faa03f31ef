"""MLIR's contexts: those of hlo_disc's lowerings have the dialects of programs, and all others what JAX gives them."""

from __future__ import annotations

import threading
from typing import Any

import jax
import numpy as np
import pytest
from jax._src.interpreters import mlir
from jax.extend.core import Primitive
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import arith, stablehlo

import hlo_disc

X = np.arange(6, dtype=np.float32)


def lowered_by(rule: Any) -> Any:
    """A function of an array whose primitive is lowered by a rule."""
    primitive = Primitive("of_a_test")
    primitive.def_abstract_eval(lambda x: x)
    mlir.register_lowering(primitive, rule)
    return lambda x: primitive.bind(x)


def has_all(context: ir.Context) -> bool:
    """Whether ops of a dialect that programs have none of can be made."""
    with context, ir.Location.unknown(), ir.InsertionPoint(ir.Module.create().body):
        try:
            arith.constant(ir.F32Type.get(), 1.0)
        except ir.MLIRError:
            return False
    return True


def test_only_ours_are_smaller():
    seen: list[bool] = []

    def rule(ctx: Any, x: Any) -> Any:
        seen.append(has_all(ctx.module_context.context))
        if not seen[-1]:  # a lowering by JAX in another thread, meanwhile
            other = threading.Thread(target=lambda: jax.jit(negated).lower(X))
            other.start()
            other.join()
        return [stablehlo.negate(x)]

    negated = lowered_by(rule)
    np.testing.assert_array_equal(hlo_disc.jit(negated)(X), -X)
    assert seen == [False, True]


def test_an_op_of_another_dialect_is_named_with_its_line():
    negated = lowered_by(lambda ctx, x: [arith.negf(x)])
    with pytest.raises(hlo_disc.UnsupportedOpError, match=r"arith.negf.*test_lowering_contexts.py"):
        hlo_disc.compile(negated, "f32[n]")
    assert has_all(mlir.make_ir_context())
