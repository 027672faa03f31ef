"""JAX functions traced at symbolic shapes: the graph, run by the numpy reference, gives what `jax.jit` gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tracing import Spec, trace

import hlo_disc
from hlo_disc.dynamic_hlo.ir.graph import raw_dim
from hlo_disc.dynamic_hlo.ops.reference import evaluate
from hlo_disc.dynamic_hlo.ops.verify import verify
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import ShapeError, UnsupportedOpError
from hlo_disc.import_.jax import from_jax
from hlo_disc.tracing.values import Leaf

F32, I32 = np.dtype(np.float32), np.dtype(np.int32)
X = Spec("(b, s)", F32)
X3 = Spec("(b, s, 6)", F32)
IDS = Spec("(b, s)", I32)
B = Dim.symbol("b")


def layer_norm(x, g):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5) * g


def attention(q, k, mask):
    scores = jnp.einsum("bqd,bkd->bqk", q, k) / np.float32(2.5)
    scores = jnp.where(mask[:, None, :] > 0, scores, -1e9)
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores, -1), k)


def causal(x):
    rows, columns = lax.broadcasted_iota(I32, (x.shape[1],) * 2, 0), jnp.arange(x.shape[1])
    return jnp.where(rows >= columns[None, :], x.sum(0)[None, :], -jnp.inf)


def update(cache, new, i):
    return lax.dynamic_update_slice(cache, new, (0, i)), lax.dynamic_slice(cache, (0, i), (cache.shape[0], 2))


def scaled_sum(x, *, scale):
    return (x * scale).sum(1), x * x.shape[0] + TABLE


def in_loops(x):
    body = lax.composite(lambda c: c * 0.5 + jnp.where(c > 0, c, 1), name="my.step")
    return lax.fori_loop(0, 3, lambda i, c: body(c), x), lax.map(body, x)


TABLE = jnp.arange(3.0)[:, None, None]
FUNCTIONS = {
    "composite": (lambda x: lax.composite(scaled_sum, name="my.sum", version=1)(x, scale=2.0), X),
    "composite in loops": (in_loops, X),
    "composite of composites": (lax.composite(lambda x: lax.composite(jnp.sin, name="my.sin")(x) + 1, name="my.f"), X),
    "softmax": (lambda x: jax.nn.softmax(x, -1), X),
    "log_softmax": (lambda x: jax.nn.log_softmax(x, -1), X),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, -1), X),
    "layer_norm": (layer_norm, X3, Spec((6,), F32)),
    "gelu": (lambda x: jax.nn.gelu(x, approximate=False), X),
    "gelu_tanh": (jax.nn.gelu, X),
    "erf": (lambda x: lax.erf(x) + lax.erfc(x), X),
    "silu": (jax.nn.silu, X),
    "square": (jnp.square, X),
    "asinh": (jnp.arcsinh, X),
    "mean": (lambda x: x.mean(1), X),
    "var": (lambda x: jnp.var(x, 1), X),
    "max": (lambda x: (x.max(), x.min(0, initial=9.0)), Spec("(b + 1, s + 1)", F32)),
    "any": (lambda x: ((x > 0).any(1), (x > 0).all(1)), X),
    "take": (lambda table, i: table[i], Spec((10, 4), F32), IDS),
    "take_fill": (lambda table, i: jnp.take(table, i, axis=0), Spec((10, 4), F32), IDS),
    "take_along": (lambda x, i: jnp.take_along_axis(x, i % 3, 1), Spec("(b, s + 3)", F32), IDS),
    "one_hot": (lambda i: jax.nn.one_hot(i, 10), IDS),
    "einsum": (lambda x, w: jnp.einsum("bsd,de->bse", x, w), X3, Spec((6, 5), F32)),
    "attention": (attention, X3, X3, IDS),
    "matmul": (lambda x: x @ x.T, X),
    "concatenate": (lambda x, y: jnp.concatenate([x, y, x], 1), X, Spec("(b, t)", F32)),
    "stack": (lambda x: jnp.stack([x, x + 1], 1), X),
    "slice": (lambda x: (x[:, 1:], x[:, :-1], x[:, ::2], x[:, -1], x[1:, 0]), Spec("(b + 1, s + 1)", F32)),
    "strided": (lambda x: x[:, 1:-1:3], Spec("(b, s + 3)", F32)),
    "dynamic_slice": (update, Spec("(b, s + 3)", F32), Spec("(b, 1)", F32), Spec((), I32)),
    "dynamic_index": (lambda x, i: x[:, i], Spec("(b, s + 1)", F32), Spec((), I32)),
    "roll": (lambda x: jnp.roll(x, 1, 0), X),
    "flip": (lambda x: x[::-1, ::-1], X),
    "pad": (lambda x: jnp.pad(x, ((1, 2), (0, x.shape[0]))), X),
    "pad_interior": (lambda x: lax.pad(x, np.float32(1), ((0, 0, 2), (1, -1, 0))), Spec("(b, s + 1)", F32)),
    "where": (lambda x: jnp.where(x > 0, x, 0.0), X),
    "clip": (lambda x: jnp.clip(x, -0.5, 0.5), X),
    "causal": (causal, X),
    "arange": (lambda x: jnp.arange(x.shape[1]) + jnp.arange(2, x.shape[1] + 2), X),
    "linspace": (lambda x: jnp.arange(x.shape[1], dtype=F32) / x.shape[0], X),
    "reshape": (lambda x: x.reshape(-1), X),
    "split_heads": (lambda x: x.reshape(x.shape[0], x.shape[1], 2, 3).transpose(0, 2, 1, 3), X3),
    "merge": (lambda x: x.reshape(-1, 6), X3),
    "tile": (lambda x: jnp.tile(x, (2, 1)), X),
    "repeat": (lambda x: jnp.repeat(x, 3, axis=1), X),
    "outer": (lambda x: x[:, None, :] * x[None, :, :], X),
    "bf16": (lambda x: x * jnp.bfloat16(1.5), Spec("(b, s)", np.dtype(jnp.bfloat16))),
    "bf16_table": (lambda x: x + jnp.asarray([1.5, 2.25], jnp.bfloat16).sum().astype(F32), X),
    "cast": (lambda x: ((x > 0).astype(I32), x.astype(I32), x.astype(bool)), X),
    "sizes": (lambda x: jnp.zeros(()) + x.shape[0] * x.shape[1] - x.shape[1] // 2 + x.shape[0] % 3, X),
    "signed_sizes": (lambda x: (jnp.array((x.shape[0] - 5) // 3), jnp.array((x.shape[0] - 5) % 3)), X),
    "jitted": (jax.jit(lambda x: jax.jit(jnp.sin)(x) + 1), X),
    "checkpoint": (jax.checkpoint(lambda x: jnp.cos(x)), X),
}


def inputs(specs, sizes):
    """Random arrays for specs at given sizes; integers are small enough to be indices."""
    random = np.random.default_rng(0)
    for spec in specs:
        text = spec.shape if isinstance(spec.shape, str) else f"({', '.join(map(str, spec.shape))},)"
        shape = [Dim.of(part.strip()).evaluate(sizes) for part in text.strip("()").split(",") if part.strip()]
        if spec.dtype.kind == "i":
            yield np.asarray(random.integers(0, 10, shape), spec.dtype)
        else:
            yield np.asarray(3 * random.standard_normal(shape), spec.dtype)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_like_jax(name):
    fn, *specs = FUNCTIONS[name]
    graph, tree = trace(fn, *specs)
    verify(graph)
    # JAX itself decides under the assumption that sizes are at least 1.
    for b, s, t in [(1, 1, 1), (2, 7, 3), (5, 3, 1)]:
        arrays = list(inputs(specs, {"b": b, "s": s, "t": t}))
        expected = jax.tree_util.tree_leaves(jax.jit(fn)(*arrays))
        results = evaluate(graph, arrays)
        assert tree == jax.tree_util.tree_structure(jax.eval_shape(fn, *arrays))
        for result, want in zip(results, expected, strict=True):
            assert result.dtype == want.dtype and result.shape == want.shape
            np.testing.assert_allclose(result.astype(np.float64), np.asarray(want, np.float64), 2e-5, 2e-5)


@pytest.mark.parametrize("name", "softmax layer_norm einsum concatenate where arange reshape take".split())
@pytest.mark.parametrize("b, s", [(0, 0), (0, 3), (3, 0)])
def test_empty(name, b, s):
    fn, *specs = FUNCTIONS[name]
    graph, _ = trace(fn, *specs)
    arrays = list(inputs(specs, {"b": b, "s": s, "t": 2}))
    for result, want in zip(evaluate(graph, arrays), jax.tree_util.tree_leaves(jax.jit(fn)(*arrays)), strict=True):
        np.testing.assert_allclose(result, want, 2e-5, 2e-5)


def ops(graph):
    return [op.name for op in graph.ops]


def test_names_and_pytrees():
    def fn(params, *rest, scale):
        return {"y": params["layers"][0]["w"] * scale + rest[0]}

    graph, tree = trace(fn, {"layers": [{"w": X}]}, X, scale=Spec((), F32))
    assert graph.input_names == ("params['layers'][0]['w']", "rest[0]", "scale")
    assert tree == jax.tree_util.tree_structure({"y": 0})


def test_chlo_ops_stay_ops():
    graph, _ = trace(lambda x: jax.nn.gelu(x, approximate=False), X)
    assert "erfc" in ops(graph)
    # An op that only StableHLO's pass can take apart leaves the others whole.
    graph, _ = trace(lambda x: jnp.arcsinh(lax.erf(x)), X)
    assert "erf" in ops(graph) and "asinh" not in ops(graph)


def test_shape_arithmetic_disappears():
    graph, _ = trace(lambda x: jax.nn.softmax(x, -1), X)
    assert not {"dim", "concatenate", "convert", "reshape"} & set(ops(graph))
    assert "softmax" not in ops(graph) and ops(graph).count("reduce") == 2


def test_known_windows_are_slices():
    graph, _ = trace(lambda x: (x[:, -1], x[:, :2], x[:, x.shape[1] // 2 :]), Spec("(b, s + 2)", F32))
    assert "gather" not in ops(graph) and "dynamic_slice" not in ops(graph)
    assert ops(graph).count("slice") == 3


def test_floor_division_of_signed_sizes_is_exact():
    def fn(x):
        return jnp.array([(x.shape[0] - 5) // 3, (x.shape[0] - 5) % 3, (5 - x.shape[0]) // 2])

    graph, _ = trace(fn, X)
    sizes = [str(op.attrs["expr"]) for op in graph.ops if op.name == "dim"]
    assert sizes == [str((B - 5) // 3), str((B - 5) % 3), str((5 - B) // 2)]


def test_a_slice_at_a_data_index_keeps_its_size():
    graph, _ = trace(lambda x, i: lax.dynamic_slice(x, (i, 0), (2, x.shape[1])), Spec("(b + 2, s)", F32), Spec((), I32))
    (op,) = [op for op in graph.ops if op.name == "dynamic_slice"]
    assert op.result.shape == (Dim.const(2), Dim.symbol("s"))
    assert op.operands[1].op.name == "select"  # JAX lets an index count from the end


def test_lines_are_the_users():
    graph, _ = trace(attention, X3, X3, IDS)
    assert all(__file__ in op.loc for op in graph.ops if op.name != "constant"), [op.loc for op in graph.ops]
    assert any("(attention)" in op.loc for op in graph.ops)


def test_unsupported_op_names_line_and_types():
    def unknown(x):
        return jax.ffi.ffi_call("frobnicate", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    with pytest.raises(UnsupportedOpError, match=rf"frobnicate at {__file__}:\d+"):
        hlo_disc.compile(unknown, "f32[b, s]")


def test_guards():
    graph, _ = trace(lambda x, y: x + y, X, X, constraints=["s <= 8", "s > 1", "mod(s, 2) == 0"])
    ones = np.ones
    evaluate(graph, [ones((2, 4), F32)] * 2)
    with pytest.raises(ShapeError, match="argument 'y' dimension 1 is 5, but 's' is 4 from argument 'x' dimension 1"):
        evaluate(graph, [ones((2, 4), F32), ones((2, 5), F32)])
    with pytest.raises(ShapeError, match="do not meet the constraint s <= 8: 's' is 10"):
        evaluate(graph, [ones((2, 10), F32)] * 2)
    with pytest.raises(ShapeError, match=r"constraint mod\(s, 2\) == 0: 'mod\(s, 2\)' is 1"):
        evaluate(graph, [ones((2, 5), F32)] * 2)


def test_constraints_let_jax_decide():
    def fn(x):
        assert x.shape[1] <= 16
        return x[:, : 16 - x.shape[1]]

    trace(fn, Spec("(b, s)", F32), constraints=["s <= 16", "s >= 8"])


def test_solved_symbols():
    graph, _ = trace(lambda x, y: (x, y), Spec("(2*b,)", F32), Spec("(b + s, 3*t + 1)", F32))
    b = raw_dim(0, 0) // 2
    assert graph.bindings == {"b": b, "s": raw_dim(1, 0) - b, "t": (raw_dim(1, 1) - 1) // 3}
    evaluate(graph, [np.ones(4, F32), np.ones((5, 4), F32)])
    with pytest.raises(ShapeError, match=r"argument 'x' dimension 0 is 5, but '2\*b' is 4, where 'b' is 2"):
        evaluate(graph, [np.ones(5, F32), np.ones((5, 4), F32)])
    with pytest.raises(ShapeError, match="'s' follows from argument 'y' dimension 0 as -1, which is negative"):
        evaluate(graph, [np.ones(4, F32), np.ones((1, 4), F32)])


def test_a_symbol_that_no_argument_gives():
    with pytest.raises(ShapeError, match=r"size of 'b' cannot be found .* argument 'x' dimension 0 is 'b\^2'"):
        trace(lambda x: x + 1, Spec("(b*b,)", F32))


def test_closed_over_constants_are_views():
    table = np.arange(60000, dtype=F32).reshape(200, 300)
    graph, _ = trace(lambda x: x @ table + jax.jit(lambda y: y @ table)(x), Spec("(b, 200)", F32))
    values = [op.attrs["value"] for op in graph.ops if op.name == "constant" and op.attrs["value"].size > 1]
    assert len(values) == 1 and not values[0].flags.owndata
    np.testing.assert_array_equal(values[0], table)


def test_no_size_is_negative():
    graph, _ = trace(lambda x: jnp.zeros(x.shape[0] - 1), X)
    assert evaluate(graph, [np.ones((1, 2), F32)])[0].shape == (0,)
    with pytest.raises(ShapeError, match=r"test_import_jax.py:\d+.* dimension 0 of the result would have the size -1"):
        evaluate(graph, [np.ones((0, 2), F32)])


def test_a_size_as_result():
    graph, _ = trace(lambda x: x.shape[0], X)
    assert evaluate(graph, [np.ones((3, 2), F32)])[0] == 3


def test_wide_integers():
    with jax.enable_x64(True):
        graph, _ = trace(lambda x: x * x.shape[0] + jnp.arange(x.shape[1]), X)
    assert evaluate(graph, [np.ones((3, 2), F32)])[0].tolist() == [[3, 4]] * 3


def test_flat_interface():
    graph, _ = from_jax(
        lambda x, n: [x * n], [Leaf(F32, (4, 3)), Leaf(F32, (), weak=True)], [("b", None), ()], ["x", "n"]
    )
    assert graph.inputs[0].shape == (B, Dim.const(3)) and graph.input_names == ("x", "n")


def test_unused_arguments_stay():
    graph, _ = trace(lambda x, y: x + 1, X, Spec("(c,)", F32))
    assert len(graph.inputs) == 2 and "c" in graph.bindings


def test_collectives_over_one_device():
    """JAX's own rules for them, of which ours is one where `vmap` names the axis, have names of their version."""
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    whole = jax.sharding.PartitionSpec()
    together = jax.shard_map(
        lambda x: (jax.lax.psum(x, "i"), jax.lax.pmax(x, "i"), jax.lax.pmin(x, "i")),
        mesh=mesh,
        in_specs=whole,
        out_specs=whole,
    )
    f = hlo_disc.jit(together, fallback=False)
    for n in (3, 2):
        x = np.arange(n, dtype=np.float32)
        assert all(np.array_equal(result, x) for result in f(x))
