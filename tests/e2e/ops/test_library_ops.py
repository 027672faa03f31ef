"""custom_call and fft in DHLO: types, printing, numpy meaning, and what rewrites may not do with them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tracing import Spec, trace

from hlo_disc.dynamic_hlo.ir.graph import Graph, Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.ops.reference import apply_all
from hlo_disc.dynamic_hlo.passes.simplify import simplify
from hlo_disc.dynamic_hlo.print.stablehlo import to_stablehlo
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import CompileError, ShapeError
from hlo_disc.import_.stablehlo.module import read_module
from hlo_disc.import_.stablehlo.source import load_module

B, N = Dim.symbol("b"), Dim.symbol("n")


def value(dtype: str, *shape: Dim | int) -> Value:
    return Value(np.dtype(dtype), tuple(map(Dim.of, shape)))


def call(operands: list[Value], **changes: Any) -> tuple[Value, ...]:
    attrs: dict[str, Any] = {
        "target": "f", "config": (), "sizes": (B, N), "ranks": (2,), "dtypes": (np.dtype("float32"),),
        "operand_orders": tuple(tuple(range(x.rank)) for x in operands), "result_orders": ((1, 0),), "aliases": (),
        "effect": False,
    }  # fmt: skip
    return GraphBuilder(ShapeFacts()).multi("custom_call", operands, "", **{**attrs, **changes})


def test_types_of_a_custom_call() -> None:
    (y,) = call([value("float32", B, N)])
    assert (y.dtype, y.shape) == (np.dtype("float32"), (B, N))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"ranks": (1,)}, "ranks .* do not fit"),
        ({"result_orders": ((0, 0),)}, "result_orders .* must be permutations"),
        ({"operand_orders": ((0,),)}, "operand_orders .* must be permutations"),
        ({"aliases": ((1, 0),)}, "there is no operand 1"),
        ({"dtypes": (np.dtype("int32"),), "aliases": ((0, 0),)}, "share memory but not their type"),
        ({"effect": 1}, "effect = 1 is not a bool"),
    ],
)
def test_malformed_custom_calls(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        call([value("float32", B, N)], **changes)


def fft(x: Value, transform: str, *length: Dim | int) -> Value:
    return GraphBuilder(ShapeFacts()).op("fft", [x], "", transform=transform, length=tuple(map(Dim.of, length)))


def test_types_of_transforms() -> None:
    assert fft(value("complex64", B, N), "FFT", N).shape == (B, N)
    assert fft(value("float64", B, N), "RFFT", N).dtype == np.complex128
    assert fft(value("float32", 3, 8), "RFFT", 3, 8).shape == (Dim.const(3), Dim.const(5))
    assert fft(value("complex64", 5), "IRFFT", 9).shape == (Dim.const(9),)
    with pytest.raises(ShapeError, match="the transform's length"):
        fft(value("complex64", 3, 7), "FFT", 8)
    with pytest.raises(CompileError, match="RFFT of dtype complex64"):
        fft(value("complex64", 8), "RFFT", 8)
    with pytest.raises(CompileError, match="4 axes"):
        fft(value("complex64", 1, 2, 3, 4), "FFT", 1, 2, 3, 4)


@pytest.mark.parametrize("transform, dtype", [("FFT", "complex64"), ("RFFT", "float32"), ("IRFFT", "complex128")])
def test_meaning_of_a_transform(transform: str, dtype: str) -> None:
    x = np.random.default_rng(0).standard_normal((2, 5)).astype(dtype)
    n = 8 if transform == "IRFFT" else 5
    made = fft(value(dtype, 2, 5), transform, n)
    assert made.op is not None
    (y,) = apply_all(made.op, [x])
    function = getattr(np.fft, transform.lower())
    np.testing.assert_allclose(y, function(x, n=n), atol=1e-6)


PROGRAMS = {
    "eigh": (lax.linalg.eigh, "(b, n, n)", "float32"),
    "eig": (lax.linalg.eig, "(b, n, n)", "complex64"),
    "svd": (lambda x: lax.linalg.svd(x, full_matrices=False), "(n, m)", "float32"),
    "cholesky": (lax.linalg.cholesky, "(6, 6)", "float64"),
    "rfft": (jnp.fft.rfft, "(b, n)", "float32"),
    "fft": (jnp.fft.fft, "(b, 8)", "complex64"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_printed_reads_back(name: str) -> None:
    f, shape, dtype = PROGRAMS[name]
    traced, _ = trace(lambda x: f(x), Spec(shape, dtype), constraints=["n >= 1"] if "n" in shape else [])

    def library_ops(graph: Graph) -> list[tuple[str, str]]:
        ops = (op for op in graph.ops if op.name in ("custom_call", "fft"))
        return [(op.name, str(sorted(op.attrs.items(), key=lambda item: item[0]))) for op in ops]

    for graph in (traced, simplify(traced)):
        again = read_module(load_module(to_stablehlo(graph)))
        assert library_ops(graph) and library_ops(again) == library_ops(graph)


def test_effects_are_neither_dropped_nor_shared() -> None:
    def graph(effect: bool) -> Graph:
        builder = GraphBuilder(ShapeFacts())
        x = Value(np.dtype("float32"), (Dim.const(3),), None, 0)
        attrs: dict[str, Any] = {
            "target": "f", "config": (), "sizes": (), "ranks": (), "dtypes": (), "operand_orders": ((0,),),
            "result_orders": (), "aliases": (), "effect": effect,
        }  # fmt: skip
        for _ in range(2):
            builder.multi("custom_call", [x], "", **attrs)
        return Graph("f", (x,), ("x",), (x,), tuple(builder.ops), builder.facts, {})

    assert len(simplify(graph(True)).ops) == 2
    assert len(simplify(graph(False)).ops) == 0
