"""Modules as frameworks export them, from ../shared/modules: read, run by the numpy reference, compared with XLA."""

from pathlib import Path

import numpy as np
import pytest

from hlo_disc.conformance import oracle
from hlo_disc.dynamic_hlo.ops.reference import evaluate
from hlo_disc.dynamic_hlo.ops.verify import verify
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import ShapeError
from hlo_disc.import_.stablehlo.module import read_module
from hlo_disc.import_.stablehlo.policy import JAX
from hlo_disc.import_.stablehlo.source import load_module

MODULES = Path(__file__).parents[4] / "shared" / "modules"
pytestmark = pytest.mark.skipif(not MODULES.is_dir(), reason=f"there is no {MODULES}")

# For each: dims to give, or None for the names in the file; sizes of the symbols to run at.
CASES = {
    "jax_transformer.mlir": (None, [{"b": 1, "s": 1}, {"b": 2, "s": 7}]),
    "jax_causal_pos.mlir": (None, [{"b": 1, "s": 1}, {"b": 3, "s": 8}]),
    "jax_scan.mlir": (None, [{"b": 1, "s": 1}, {"b": 3, "s": 8}]),
    "tf_transformer_dyn.mlir": ({0: "(b, s)", 1: "(b, s)"}, [{"b": 2, "s": 3}, {"b": 1, "s": 1}]),
    "tf_transformer_dyn.vhlo": (None, [{"d0": 2, "d1": 3, "d2": 2, "d3": 3}, {"d0": 3, "d1": 1, "d2": 1, "d3": 1}]),
    "tf_keras_mlp_args_dyn.mlir": (None, [{"d0": 1}, {"d0": 5}]),
    "torchxla_mlp_batch.mlir": (None, [{"d0": 1}, {"d0": 5}]),
    "torch_compile_block.mlir": (None, [{"s23": 2, "s27": 5}]),
    "torch_compile_encoder_layer.mlir": (None, [{"s33": 2, "s50": 3}]),
    "torch_compile_hf_bert_eager.mlir": (None, [{"s72": 2, "s70": 5}]),
    "torchax_A_block.mlir": (None, [{"s23": 3, "s27": 4}]),
    "fx_block.mlir": ({19: "(b, s)", 20: "(b, s)"}, [{"b": 2, "s": 5}, {"b": 1, "s": 1}]),
}


def read(name, **options):
    return read_module(load_module(MODULES / name), **options)


def arguments(graph, sizes):
    """Random arrays: integers small enough for every table, masks and values alike."""
    random = np.random.default_rng(1)
    for value in graph.inputs:
        shape = [d.evaluate(sizes) for d in value.shape]
        integers = value.dtype.kind in "iub"
        array = random.integers(0, 2, shape) if integers else 0.3 * random.standard_normal(shape)
        yield np.asarray(array, value.dtype)


def run_by_xla(name, arrays):
    """Outputs of XLA:CPU: the module refined to the arrays' shapes, which also evaluates its assertions."""
    return oracle.XlaProgram(oracle.refine(load_module(MODULES / name), [(a.dtype, a.shape) for a in arrays]))(arrays)


@pytest.mark.parametrize("name", CASES)
def test_like_xla(name):
    dims, sizes = CASES[name]
    graph = read(name, dims=dims)
    verify(graph)
    for values in sizes:
        arrays = list(arguments(graph, values))
        for got, want in zip(evaluate(graph, arrays), run_by_xla(name, arrays), strict=True):
            np.testing.assert_allclose(got, want, 1e-4, 1e-4)


def test_sizes_that_the_program_refuses():
    graph = read("torch_compile_block.mlir")
    arrays = list(arguments(graph, {"s23": 1, "s27": 5}))
    with pytest.raises(ShapeError, match=r"symbolic shape constraint s23 >= 2\. Expected 's23 - 2' .* but found -1"):
        evaluate(graph, arrays)
    graph = read("jax_transformer.mlir")
    arrays = list(arguments(graph, {"b": 1, "s": 513}))
    with pytest.raises(ShapeError, match=r"constraint s <= 512\. .* but found -1"):
        evaluate(graph, arrays)


def test_zero_is_a_size_when_asked():
    graph = read("jax_transformer.mlir", origin=JAX)
    arrays = list(arguments(graph, {"b": 0, "s": 4}))
    assert evaluate(graph, arrays)[0].shape == (0, 10)
    with pytest.raises(ShapeError, match="Expected value >= 1 for dimension variable 'b'"):
        evaluate(read("jax_transformer.mlir"), arrays)


def test_names_of_the_framework():
    graph = read("torchax_A_block.mlir")
    assert graph.input_names[-2:] == ("inputs[0]", "inputs[1]")
    assert graph.inputs[-1].shape == (Dim.symbol("s23"), Dim.symbol("s27"))


def test_the_users_names_come_first():
    graph = read("jax_transformer.mlir", dims={"i": "(batch, _)", "args[1]": "(batch, length)"})
    assert graph.inputs[0].shape == graph.inputs[1].shape == (Dim.symbol("batch"), Dim.symbol("length"))


def test_erf_stays_one_op():
    assert "erf" in [op.name for op in read("fx_block.mlir").ops]
