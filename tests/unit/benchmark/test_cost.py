"""The least that programs do, next to what is counted by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlo_disc import sources
from hlo_disc.benchmark.cost import Work, work
from hlo_disc.dynamic_hlo.passes.simplify import simplify
from hlo_disc.profile.limits import Limits


def counted(fn, specs, *shapes) -> Work:
    return work(simplify(sources.graph(fn, *specs)), shapes)


def test_dot():
    found = counted(lambda x, y: x @ y, ("f32[b, 64]", "f32[64, 32]"), (5, 64), (64, 32))
    assert found == Work({"float32": 2 * 5 * 64 * 32}, 4 * (5 * 64 + 64 * 32 + 5 * 32))
    assert found.total == 2 * 5 * 64 * 32


def test_attention():
    def attention(q, k, v):
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)

    b, s, t, heads, depth = 3, 5, 7, 4, 16
    specs = ("f32[b, s, 4, 16]", "f32[b, t, 4, 16]", "f32[b, t, 4, 16]")
    found = counted(attention, specs, (b, s, heads, depth), (b, t, heads, depth), (b, t, heads, depth))
    assert found.operations == {"float32": 2 * 2 * b * heads * s * t * depth}
    assert found.bytes == 4 * b * heads * depth * (2 * s + 2 * t)
    assert not found.partial


def conv(padding, strides=(1, 1), **settings):
    return lambda x, w: lax.conv_general_dilated(x, w, strides, padding, **settings)


@pytest.mark.parametrize(
    ("fn", "kernel", "outputs", "products"),
    [
        (conv("VALID"), (8, 3, 3, 3), 8 * 14 * 14, 8 * 3 * 14 * 14 * 9),
        (conv("SAME"), (8, 3, 3, 3), 8 * 16 * 16, 8 * 3 * (16 * 3 - 2) ** 2),  # padding is not multiplied with
        (conv("VALID", strides=(2, 2)), (8, 3, 2, 2), 8 * 8 * 8, 8 * 3 * 8 * 8 * 4),
        (conv("VALID", rhs_dilation=(2, 2)), (8, 3, 3, 3), 8 * 12 * 12, 8 * 3 * 12 * 12 * 9),
        (conv("VALID", feature_group_count=3), (6, 1, 3, 3), 6 * 14 * 14, 6 * 1 * 14 * 14 * 9),
        # each element meets each of the kernel once, but at the edges: holes are not multiplied with
        (conv([(1, 1), (1, 1)], lhs_dilation=(2, 2)), (8, 3, 2, 2), 8 * 32 * 32, 8 * 3 * (16 * 2) ** 2),
    ],
)
def test_convolution(fn, kernel, outputs, products):
    spec = f"f32[{', '.join(map(str, kernel))}]"
    found = counted(fn, ("f32[n, 3, 16, 16]", spec), (2, 3, 16, 16), kernel)
    assert found.operations == {"float32": 2 * 2 * products}
    assert found.bytes == 4 * (2 * 3 * 256 + int(np.prod(kernel)) + 2 * outputs)


@pytest.mark.parametrize(("count", "rows"), [(10, 10), (5000, 1000)])
def test_gathered_rows(count, rows):
    """Gathered rows are read, but no more of them than there are."""
    found = counted(lambda t, i: t[i], ("f32[1000, 64]", "i32[n]"), (1000, 64), (count,))
    assert found == Work({}, 4 * (rows * 64 + count + count * 64))


def test_a_table_that_is_read_otherwise_too():
    found = counted(lambda t, i: t[i].sum() + t.sum(), ("f32[1000, 64]", "i32[n]"), (1000, 64), (10,))
    assert found.bytes == 4 * (1000 * 64 + 10 + 1)


def test_parts():
    found = counted(lambda x: x[:10].T * 2, ("f32[1000, 64]",), (1000, 64))
    assert found.bytes == 4 * 2 * 640


def test_what_is_not_read_or_not_written():
    found = counted(lambda x, y, z: (x + 1, z), ("f32[n]", "f32[m]", "f32[k]"), (4,), (5,), (6,))
    assert found.bytes == 4 * (4 + 4)


def test_constants():
    weights, ones = np.random.default_rng(0).random((64, 32), np.float32), np.ones((64, 32), np.float32)
    found = counted(lambda x: (x @ weights) * jnp.sum(ones), ("f32[b, 64]",), (5, 64))
    assert found == Work({"float32": 2 * 5 * 64 * 32}, 4 * (5 * 64 + 64 * 32 + 5 * 32))


def test_types_of_factors():
    def fn(x, y, z):
        half = jnp.matmul(x, y, preferred_element_type=jnp.float32)
        same = jnp.matmul(x.astype(jnp.float32), y.astype(jnp.float32).reshape(4, 8, 16).reshape(32, 16))
        return half, same, x.astype(jnp.float32) @ z

    found = counted(fn, ("bf16[n, 32]", "bf16[32, 16]", "f32[32, 8]"), (3, 32), (32, 16), (32, 8))
    assert found.operations == {"bfloat16": 2 * 2 * 3 * 32 * 16, "float32": 2 * 3 * 32 * 8}


def test_loops_with_known_turns():
    def fn(x, w):
        return lax.scan(lambda c, r: (jnp.tanh(c @ w + r), None), jnp.zeros((4, 64)), x)[0]

    found = counted(fn, ("f32[t, 4, 64]", "f32[64, 64]"), (50, 4, 64), (64, 64))
    assert found == Work({"float32": 50 * 2 * 4 * 64 * 64}, 4 * (50 * 4 * 64 + 64 * 64 + 4 * 64))


def test_loops_in_loops():
    def fn(x):
        def outer(i, c):
            return lax.fori_loop(3, 40, lambda j, d: d @ d, c) * i

        return lax.fori_loop(0, 20, outer, x)

    assert counted(fn, ("f32[4, 4]",), (4, 4)).total == 20 * 37 * 2 * 64


@pytest.mark.parametrize("grown", [lambda i: i + 4, lambda i: 4 + i])
def test_loops_that_count_by_more(grown):
    def fn(x):
        return lax.while_loop(lambda c: c[0] < 90, lambda c: (grown(c[0]), c[1] @ c[1]), (0, x))[1]

    assert counted(fn, ("f32[4, 4]",), (4, 4)).total == 23 * 2 * 64


def test_rows_that_a_loop_gathers():
    def fn(table, ids):
        return lax.scan(lambda c, i: (c + table[i], None), jnp.zeros(64), ids)[0]

    found = counted(fn, ("f32[1000, 64]", "i32[n]"), (1000, 64), (20,))
    assert found.bytes == 4 * (20 * 64 + 20 + 64)


def test_loops_whose_turns_data_decide():
    def fn(x, w):
        return lax.while_loop(lambda c: c.sum() < 9, lambda c: c @ w, x)

    found = counted(fn, ("f32[n, 4]", "f32[4, 4]"), (3, 4), (4, 4))
    assert found.total == 2 * 3 * 16
    assert "loops whose turns data decide" in found.partial


def test_loops_whose_limit_changes():
    def fn(x):
        return lax.while_loop(lambda c: c[0] < c[1], lambda c: (c[0] + 1, c[1] - 1, c[2] @ c[2]), (0, 100, x))[2]

    found = counted(fn, ("f32[4, 4]",), (4, 4))
    assert found.total == 2 * 64 and found.partial


def test_branches():
    found = counted(
        lambda p, x, y: lax.cond(p, lambda: x @ x @ x, lambda: x @ y), ("bool[]", "f32[4, 4]", "f32[4, 4]"), (), (4, 4),
        (4, 4),
    )  # fmt: skip
    assert found.total == 2 * 64 and found.partial == "branches"
    assert found.bytes == 1 + 4 * (16 + 16)  # y is not read in the branch with more products


def test_no_elements():
    assert counted(lambda x, y: x @ y, ("f32[b, 64]", "f32[64, 32]"), (0, 64), (64, 32)).total == 0


DATA = """
module @chosen {
  func.func public @main(%n: tensor<i32>, %x: tensor<4x4xf32>) -> tensor<?x4xf32> {
    %one = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %four = stablehlo.constant dense<4> : tensor<1xi32>
    %shape = stablehlo.concatenate %one, %four, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %zero = stablehlo.constant dense<2.0> : tensor<f32>
    %all = stablehlo.dynamic_broadcast_in_dim %zero, %shape, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x4xf32>
    %r = stablehlo.dot_general %all, %x, contracting_dims = [1] x [0] : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
    return %r : tensor<?x4xf32>
  }
}
"""  # noqa: E501


def test_sizes_that_data_decide():
    found = work(simplify(sources.graph(DATA)), [(), (4, 4)])
    assert found.total == 0
    assert found.partial == "sizes that data decide"


def test_seconds():
    limits = Limits(100.0, 800.0, {1 << 20: 50.0}, {1 << 20: 20.0})
    assert Work({"float32": 1000, "bfloat16": 800}, 100).seconds(limits) == 11
    assert Work({"int8": 1000}, 100).seconds(limits) == 2
