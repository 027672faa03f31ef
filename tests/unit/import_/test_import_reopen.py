"""Static modules whose sizes become symbols again: what is inferred, what it computes, and what nobody can know."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlo_disc.dynamic_hlo.ops.reference import evaluate
from hlo_disc.dynamic_hlo.ops.verify import verify
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import ArgumentError, ShapeError
from hlo_disc.import_.stablehlo.module import read_module
from hlo_disc.import_.stablehlo.source import load_module

F32, I32 = np.dtype(np.float32), np.dtype(np.int32)
B, S = 3, 77  # sizes that occur nowhere else
X = ((B, S, 8), "(b, s, _)")
TABLE = np.random.default_rng(0).standard_normal((512, 8)).astype(F32)
W = np.random.default_rng(1).standard_normal((8, 8)).astype(F32)


def layer_norm(x):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5)


def heads(x):
    b, s, _ = x.shape
    return x.reshape(b, s, 2, 4).transpose(0, 2, 1, 3)


def attention(x, mask):
    b, s, d = x.shape
    q, k, v = heads(x @ W), heads(x), heads(x + 1)
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k)
    position = jnp.arange(s)
    scores = jnp.where(position[:, None] >= position[None, :], scores, -1e9)
    scores = jnp.where(mask[:, None, None, :] > 0, scores, -1e9)
    out = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1), v)
    return layer_norm(x + out.transpose(0, 2, 1, 3).reshape(b, s, d))


def embed(i):
    table = jnp.asarray(TABLE)
    return (table[i] + table[: i.shape[1]]).reshape(-1, 8) @ W


FUNCTIONS = {
    "softmax": (lambda x: jax.nn.softmax(x, -1), X),
    "layer_norm": (layer_norm, X),
    "gelu": (lambda x: jax.nn.gelu(x), X),
    "attention": (attention, X, ((B, S), "(b, s)", I32)),
    "embed": (embed, ((B, S), "(b, s)", I32)),
    "pooled": (lambda x, m: (x * m[..., None]).sum(1) / jnp.maximum(m.sum(1)[:, None], 1.0), X, ((B, S), "(b, s)")),
    "first": (lambda x: x[:, 0], X),
    "merge_and_split": (lambda x: (x.reshape(-1, 8) @ W).reshape(x.shape) + x, X),
    "concatenate": (lambda x: jnp.concatenate([x, 2 * x, jnp.zeros_like(x[:, :1])], 1), X),
    "pad": (lambda x: jnp.pad(x, ((0, 0), (1, 1), (0, 0))), X),
    "tail": (lambda x: x[:, 5:] * 2, X),
    "reverse": (lambda x: x[:, ::-1], X),
    "one_hot": (lambda i: jax.nn.one_hot(i, 9), ((B, S), "(b, s)", I32)),
    "batch_of_one": (lambda x: jax.nn.softmax(x @ W, -1) + x.mean(-1, keepdims=True), ((1, S, 8), "(b, s, _)")),
    "expression": (lambda x, y: jnp.concatenate([x, x], 0) * y, ((B, 8), "(b, _)"), ((2 * B, 8), "(2*b, _)")),
}


def static_module(fn, *specs):
    structs = [jax.ShapeDtypeStruct(shape, (*dtype, F32)[0]) for shape, _, *dtype in specs]
    return load_module(jax.jit(fn).lower(*structs).as_text())


def reopened(fn, *specs):
    return read_module(static_module(fn, *specs), dims={i: spec[1] for i, spec in enumerate(specs)})


def inputs(graph, sizes):
    random = np.random.default_rng(2)
    for value in graph.inputs:
        shape = [d.evaluate(sizes) for d in value.shape]
        array = random.integers(0, 2, shape) if value.dtype == I32 else random.standard_normal(shape)
        yield np.asarray(array, value.dtype)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_computes_at_other_sizes(name):
    fn, *specs = FUNCTIONS[name]
    graph = reopened(fn, *specs)
    verify(graph)
    for b, s in [(1, 7), (4, 13), (B, S)]:
        arrays = list(inputs(graph, {"b": b, "s": s}))
        expected = jax.tree_util.tree_leaves(jax.jit(fn)(*arrays))
        for got, want in zip(evaluate(graph, arrays), expected, strict=True):
            np.testing.assert_allclose(got, want, 1e-4, 1e-4)


def test_empty_batch():
    fn, *specs = FUNCTIONS["attention"]
    graph = reopened(fn, *specs)
    (result,) = evaluate(graph, list(inputs(graph, {"b": 0, "s": 4})))
    assert result.shape == (0, 4, 8)


def test_what_stays():
    graph = reopened(*FUNCTIONS["attention"])
    b, s, eight = Dim.symbol("b"), Dim.symbol("s"), Dim.const(8)
    assert graph.outputs[0].shape == (b, s, eight)
    assert {name for op in graph.ops for v in op.results for d in v.shape for name in d.symbols} == {"b", "s"}


def test_only_some():
    graph = read_module(static_module(*FUNCTIONS["softmax"]), dims={"args[0]": "(_, s, _)"})
    assert graph.outputs[0].shape == (Dim.const(B), Dim.symbol("s"), Dim.const(8))


def test_a_size_that_could_be_either():
    with pytest.raises(ShapeError, match=r"(?s)test_import_reopen.py:\d+.*77 could be the number or 's'.*exported"):
        module = jax.jit(lambda x: (x, jnp.zeros(S))).lower(jax.ShapeDtypeStruct((S, 8), F32))
        read_module(load_module(module.as_text(debug_info=True)), dims={0: "(s, _)"})


def test_the_last_element_is_ambiguous():
    with pytest.raises(ShapeError, match="elements 76 to 77 of the dimension 's'.* from its beginning or from its end"):
        reopened(lambda x: x[:, -1], X)


def test_a_constant_that_fixes_the_size():
    fixed = np.arange(S, dtype=F32)
    with pytest.raises(ShapeError, match="stablehlo.add.*'s' meets the fixed size 77"):
        reopened(lambda x: x + fixed, ((S,), "(s,)"))


@pytest.mark.parametrize("constraints", ["s == 77", ["s >= 77", "s <= 77"]])
def test_a_constraint_that_fixes_the_size(constraints):
    fixed = np.arange(S, dtype=F32)
    module = static_module(lambda x: (x + fixed)[-1:], ((S,), "(s,)"))
    graph = read_module(module, dims={0: "(s,)"}, constraints=constraints)
    assert evaluate(graph, [fixed])[0].tolist() == [2 * (S - 1)]
    with pytest.raises(ShapeError, match="constraint s (==|>=) 77: 's' is 76"):
        evaluate(graph, [fixed[1:]])


def test_a_constraint_that_fixes_another_size():
    graph = read_module(static_module(lambda x: x + 1, ((S,), "(s,)")), dims={0: "(s,)"}, constraints="s == 5")
    assert evaluate(graph, [np.ones(5, F32)])[0].tolist() == [2] * 5


def test_a_reshape_with_two_answers():
    with pytest.raises(ShapeError, match=r"stablehlo.reshape.* cannot tell how the sizes \(3, 3\) follow from '3\*b'"):
        reopened(lambda x: x.reshape(3, 3, 8) + 1, ((9, 8), "(3*b, _)"))


def test_dims_that_do_not_fit():
    module = static_module(*FUNCTIONS["pooled"])
    with pytest.raises(ArgumentError, match="dims calls dimension 0 of .* 's', but the module has 3 there, and s = 77"):
        read_module(module, dims={0: "(b, s, _)", 1: "(s, s)"})
    with pytest.raises(ArgumentError, match="dims names 'z', but the inputs are"):
        read_module(module, dims={"z": "(b, s)"})
    with pytest.raises(ArgumentError, match=r"the shape '\(b, s\)', but its rank is 3"):
        read_module(module, dims={0: "(b, s)"})
    with pytest.raises(ArgumentError, match="dimension 2 of .* '9', but the module has 8 there"):
        read_module(module, dims={0: "(b, s, 9)"})
