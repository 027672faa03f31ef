"""Control flow through the whole compiler: JAX programs at several sizes from one binary, and what regions become."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparison.by_xla import at_each
from jax import lax

import hlo_disc
from hlo_disc.errors import ShapeError, UnsupportedOpError

SIZES = (0, 1, 2, 3, 7, 17)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {}


def program(*specs: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[fn.__name__] = (fn, specs)
        return fn

    return add


def arrays(specs: tuple[str, ...], size: int) -> list[np.ndarray]:
    """Random arguments: n and t are `size`, m is one more."""
    rng = np.random.default_rng(size)
    sizes = {"n": size, "t": size, "m": size + 1, "b": max(size // 2, 1)}
    made = []
    for spec in specs:
        dtype, text = spec.rstrip("]").split("[")
        shape = [sizes.get(d.strip()) or (0 if d.strip() in sizes else int(d)) for d in text.split(",") if d.strip()]
        if dtype == "f32":
            made.append(rng.standard_normal(shape).astype(np.float32))
        else:
            made.append(rng.integers(0, 9, shape).astype(np.int32))
    return made


# ---------------------------------------------------------------------------------------------------------- programs


@program("f32[t, b]")
def scan(x):
    return lax.scan(lambda c, v: (c * 0.5 + v, c * v), jnp.ones(x.shape[1]), x)


@program("f32[t, b]")
def scan_reversed(x):
    return lax.scan(lambda c, v: (jnp.tanh(c + v), c), jnp.ones(x.shape[1]), x, reverse=True)


@program("f32[16, b]")
def scan_unrolled(x):
    return lax.scan(lambda c, v: (jnp.sin(c + v), c), jnp.ones(x.shape[1]), x, unroll=4)


@program("f32[n]")
def scan_of_scalars(x):
    return lax.scan(lambda c, v: (c + v, (c * v, c > v)), 0.0, x)


@program("i32[]")
def while_of_scalars(n):
    return lax.while_loop(
        lambda s: s[0] != 1, lambda s: (jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1), (n + 1, 0)
    )


@program("f32[n]")
def while_until_small(x):
    return lax.while_loop(
        lambda s: jnp.max(jnp.abs(s * s - 2), initial=0.0) > 1e-4, lambda s: 0.5 * (s + 2 / s), jnp.abs(x) + 0.5
    )


@program("f32[n]", "i32[]")
def fori_dynamic(x, n):
    return lax.fori_loop(0, n, lambda i, c: c * 0.9 + x * i, x)


@program("f32[n]")
def fori_static(x):
    return lax.fori_loop(0, 20, lambda i, c: jnp.cos(c) + i, x)


@program("f32[n]", "f32[n]", "f32[n]")
def values_change_places(a, b, c):
    return lax.fori_loop(0, 22, lambda i, s: (s[1], s[2], s[0] + s[1] * 0.5), (a, b, c))


@program("f32[n]", "f32[n]")
def values_swap(a, b):
    return lax.fori_loop(0, 9, lambda i, s: (s[1], s[0]), (a, b))


@program("f32[n]")
def values_of_two_names(a):
    """Both carried values become one; one is also used behind the loop under another shape."""
    x, y = lax.fori_loop(0, 9, lambda i, s: (s[0] + s[1], s[0] + s[1]), (a, a * 0.1))
    return x, y.reshape(-1, 1), a


@program("f32[n]", "i32[]")
def cond(x, p):
    return lax.cond(p > 4, lambda x: x * 2, lambda x: 1 - x, x)


@program("f32[n]", "i32[]")
def switch(x, p):
    return lax.switch(p - 2, [lambda x: x * 2, jnp.sin, lambda x: x, lambda x: jnp.zeros_like(x)], x)


@program("f32[n, m]")
def map_rows(x):
    return lax.map(lambda r: r / (1 + jnp.sum(r * r)), x)


@program("f32[t, m]")
def nested(x):
    def row(c, v):
        return lax.fori_loop(0, 3, lambda i, s: s * 0.5 + v * i, c), jnp.sum(c)

    return lax.scan(row, jnp.zeros(x.shape[1]), x)


@program("f32[t, m]")
def cond_in_a_loop(x):
    def row(c, v):
        return lax.cond(jnp.sum(v) > 0, lambda c: c + v, lambda c: c * 0.5, c), c[0]

    return lax.scan(row, jnp.zeros(x.shape[1]), x)


@program("f32[m]")
def updates_that_read_before(x):
    return lax.fori_loop(1, x.shape[0], lambda i, c: c.at[i].set(c[i - 1] * 0.5 + c[i]), x)


@program("f32[m, 4]")
def updates_that_read_after(x):
    def step(i, s):
        cache, total = s
        before = cache[i]
        cache = cache.at[i].set(jnp.sin(cache[i] + total))
        return cache, total + before + jnp.sum(cache, 0)

    return lax.fori_loop(0, x.shape[0], step, (x, jnp.zeros(4)))


@program("f32[m, m]")
def updates_of_both(x):
    """Each array is changed where the other one is read."""

    def step(i, s):
        a, b = s
        return a.at[i].set(b[:, i]), b.at[:, i].set(a[i] + 1)

    return lax.fori_loop(0, x.shape[0], step, (x, x.T * 2))


@program("f32[m]", "i32[n]")
def scatter_in_a_loop(x, where):
    return lax.scan(lambda c, i: (c.at[i % x.shape[0]].add(1.0), c[0]), x, where)


@program("f32[m, 4]", "i32[]")
def updates_in_a_branch(x, p):
    def step(i, c):
        return lax.cond(i % 2 == p % 2, lambda c: c.at[i].set(c[i] * 3), lambda c: c, c)

    return lax.fori_loop(0, x.shape[0], step, x)


@program("f32[m, 4]", "i32[]")
def updates_in_a_branch_of_a_branch(x, p):
    """Update in place in the inner branch, though the other branch of the outer one has a result of its own."""

    def other(c):
        return lax.cond(p % 4 == 1, lambda c: c.at[0].set(c[0] * 3), lambda c: c, c)

    return lax.fori_loop(0, 12, lambda i, c: lax.cond((i + p) % 2 == 0, lambda c: jnp.sin(c) + i, other, c), x)


@program("f32[m, 4]")
def updates_in_a_nested_loop(x):
    def inner(i, j, c):
        return c.at[i, j].set(c[i, j] + i * 10 + j)

    return lax.fori_loop(0, x.shape[0], lambda i, c: lax.fori_loop(0, 4, lambda j, c: inner(i, j, c), c), x)


@program("f32[t, b, 8]", "f32[8, 32]", "f32[8, 32]", "f32[32]")
def lstm(xs, wx, wh, bias):
    def cell(s, x):
        h, c = s
        i, f, g, o = jnp.split(x @ wx + h @ wh + bias, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((xs.shape[1], 8))
    return lax.scan(cell, (zeros, zeros), xs)


@program("f32[t, b, 4]", "f32[4, 4]")
def training_step(xs, w):
    def loss(w):
        def cell(h, x):
            h = jnp.tanh(x + h @ w)
            return h, jnp.sum(h * h)

        return jnp.sum(lax.scan(cell, jnp.zeros((xs.shape[1], 4)), xs)[1])

    value, gradient = jax.value_and_grad(loss)(w)
    return value, w - 0.01 * gradient


@program("f32[n]", "i32[]")
def random_in_a_loop(x, seed):
    def step(s, _):
        key, x = s
        key, use = jax.random.split(key)
        return (key, x + jax.random.uniform(use, x.shape)), None

    return lax.scan(step, (jax.random.PRNGKey(seed), x), None, length=4)[0]


_RNG = np.random.default_rng(0)
_EMBED, _OUT = (_RNG.standard_normal(shape).astype(np.float32) for shape in ((32, 8), (8, 32)))
_Q, _K, _V = _RNG.standard_normal((3, 8, 8)).astype(np.float32)


@program("i32[b]", "i32[]")
def greedy_decoding(token, count):
    length = 12

    def step(s):
        i, token, keys, values, out = s
        x = jnp.asarray(_EMBED)[token]
        keys = lax.dynamic_update_slice(keys, (x @ _K)[:, None], (0, i, 0))
        values = lax.dynamic_update_slice(values, (x @ _V)[:, None], (0, i, 0))
        scores = jnp.einsum("bd,bld->bl", x @ _Q, keys)
        scores = jnp.where(jnp.arange(length) <= i, scores, -1e9)
        y = jnp.einsum("bl,bld->bd", jax.nn.softmax(scores), values) + x
        token = jnp.argmax(y @ _OUT, -1).astype(jnp.int32)
        return i + 1, token, keys, values, lax.dynamic_update_slice(out, token[:, None], (0, i))

    b = token.shape[0]
    cache = jnp.zeros((b, length, 8))
    state = (0, token, cache, cache, jnp.zeros((b, length), jnp.int32))
    return lax.while_loop(lambda s: s[0] < jnp.minimum(count, length), step, state)[4]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    fn, specs = PROGRAMS[name]
    exe, calls = hlo_disc.compile(fn, *specs), [arrays(specs, size) for size in SIZES]
    for call, want in zip(calls, at_each(fn, calls), strict=True):
        for x, y in zip(jax.tree.leaves(exe(*call)), jax.tree.leaves(want), strict=True):
            x, y = np.asarray(x), np.asarray(y)
            assert x.dtype == y.dtype and x.shape == y.shape
            np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-4)


# --------------------------------------------------------------------------------------------- what is made of regions


def plan_of(name: str) -> str:
    fn, specs = PROGRAMS[name]
    return hlo_disc.compile(fn, *specs).explain(full=True)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("scan", "float32(t, b)"),
        ("updates_that_read_before", "float32(m)"),
        ("updates_that_read_after", "float32(m, 4)"),
        ("scatter_in_a_loop", "float32(m)"),
        ("updates_in_a_branch", "float32(m, 4)"),
        ("updates_in_a_nested_loop", "float32(m, 4)"),
        ("greedy_decoding", "float32(b, 12, 8)"),
    ],
)
def test_updates_are_in_place(name, shape):
    plan = plan_of(name)
    loop = next(line for line in plan.splitlines() if "while ->" in line)
    assert f"{shape} in place" in loop
    inside = plan[plan.index("body:") : plan.index("arena:")]
    copies = [line for line in inside.splitlines() if f"-> {shape}" in line and "[copy]" in line and "k" in line]
    assert not [line for line in copies if re.match(r" {5,}", line)], plan


def test_scalars_are_no_kernels():
    fn, specs = PROGRAMS["while_of_scalars"]
    plan = hlo_disc.compile(fn, *specs).explain(full=True)
    assert "0 launches, 0 kernels" in plan and "int32() register, int32() register" in plan


def test_weights_in_a_loop_are_packed():
    fn, specs = PROGRAMS["lstm"]
    exe = hlo_disc.compile(fn, *specs)
    assert "2 packed weights" in exe.explain(full=True)
    args = [jnp.asarray(a) for a in arrays(specs, 7)]
    results = [jax.tree.leaves(exe(*args)) for _ in range(3)]
    assert exe.native.packed_bytes() > 0
    for x, y in zip(results[0], results[2], strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-5, atol=1e-5)


def test_an_array_has_a_packed_form_for_each_product_that_reads_it():
    exe = hlo_disc.compile(lambda x, a, b: (x @ a, x @ b.T), "f32[n, 64]", "f32[64, 64]", "f32[64, 64]")
    assert "2 packed weights" in exe.explain(full=True)
    x, first, second = (jnp.asarray(np.random.default_rng(k).integers(-4, 5, (64, 64)), jnp.float32) for k in range(3))
    for a, b in [(first, second)] * 3 + [(second, first)] * 3:  # the first form of `second` is that of `b`
        for got, want in zip(exe(x, a, b), (x @ a, x @ b.T), strict=True):
            np.testing.assert_array_equal(got, want)
    assert exe.native.packed_bytes() == 2 * sum(pack.size for pack in exe.program.packs)


def test_a_closed_over_weight_is_one_packed_constant():
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)

    def fn(x):
        return lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c @ w), x @ w)

    exe = hlo_disc.compile(fn, "f32[n, 64]")
    assert "1 constants" in exe.explain(full=True) and "1 packed weights" in exe.explain(full=True)


@pytest.mark.parametrize("kind", ["arguments", "constants"])
def test_products_that_are_alike_have_weights_of_their_own(kind):
    x, *weights = (jnp.asarray(np.random.default_rng(k).integers(-4, 5, (64, 64)), jnp.float32) for k in range(4))

    def fn(x, *weights):
        return [(x + k) @ w for k, w in enumerate(weights)]

    if kind == "constants":
        exe = hlo_disc.compile(lambda x: fn(x, *weights), "f32[n, 64]")
    else:
        exe = hlo_disc.compile(fn, "f32[n, 64]", *["f32[64, 64]"] * 3)
    packs = os.environ.get("HLO_DISC_TARGET", "cpu") == "cpu"  # the others read weights as they are
    assert not packs or "3 packed weights" in exe.explain(full=True)
    for _ in range(3):
        for got, want in zip(exe(x, *weights[: 0 if kind == "constants" else 3]), fn(x, *weights), strict=True):
            np.testing.assert_array_equal(got, want)
    assert not packs or exe.native.packed_bytes() == sum(pack.size for pack in exe.program.packs)


def test_what_does_not_change_is_computed_before_the_loop():
    def fn(x, y):
        return lax.fori_loop(0, 30, lambda i, c: c + jnp.exp(y) * i, x)

    plan = hlo_disc.compile(fn, "f32[n]", "f32[n]").explain(full=True)
    assert plan.index("exponential") < plan.index("while ->")


def test_no_recompilation():
    fn = hlo_disc.jit(PROGRAMS["lstm"][0], dims={"xs": "(t, b, _)"})
    args = arrays(PROGRAMS["lstm"][1], 3)[1:]
    for t, b in ((1, 1), (5, 2), (2, 9), (31, 4)):
        fn(np.ones((t, b, 8), np.float32), *args)
    assert fn.stats().compilations == 1


# ------------------------------------------------------------------------------------------------------------ modules

LOOP = """
func.func @main(%x: tensor<?xf32>, %n: tensor<i32>) -> tensor<?xf32> {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<?xf32> cond {{
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }} do {{
    {body}
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %d : tensor<i32>, tensor<?xf32>
  }}
  return %r#1 : tensor<?xf32>
}}"""


def test_sizes_that_change_are_refused():
    body = """
    %k = stablehlo.get_dimension_size %c, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %k1 = stablehlo.add %k, %one : tensor<i32>
    %s = stablehlo.reshape %k1 : (tensor<i32>) -> tensor<1xi32>
    %d = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>"""
    with pytest.raises(UnsupportedOpError, match="stablehlo.while.*the loop changes the size of its value 1"):
        hlo_disc.compile(LOOP.format(body=body))


def test_what_must_fit_is_checked_when_it_runs():
    body = """
    %s = stablehlo.dynamic_slice %c, %i, sizes = [3] : (tensor<?xf32>, tensor<i32>) -> tensor<3xf32>
    %d = stablehlo.dynamic_update_slice %c, %s, %zero : (tensor<?xf32>, tensor<3xf32>, tensor<i32>) -> tensor<?xf32>"""
    exe = hlo_disc.compile(LOOP.format(body=body))
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(exe(x, np.int32(3)), [3, 3, 4, 3, 4])
    np.testing.assert_array_equal(exe(x[:2], np.int32(0)), x[:2])
    for _ in range(2):
        with pytest.raises(ShapeError, match="dynamic_slice at .*the size 3 .* larger than the operand's 2"):
            exe(x[:2], np.int32(1))


@pytest.mark.parametrize(("index", "expected"), [(0, 10), (1, 20), (2, 30), (3, 30), (-1, 30)])
def test_an_index_of_no_branch_means_the_last(index, expected):
    branches = ", ".join(
        f"{{ %{k} = stablehlo.constant dense<{10 * k}> : tensor<2xi64>\n stablehlo.return %{k} : tensor<2xi64> }}"
        for k in (1, 2, 3)
    )
    text = f"""func.func @main(%i: tensor<i32>) -> tensor<2xi64> {{
      %r = "stablehlo.case"(%i) ({branches}) : (tensor<i32>) -> tensor<2xi64>
      return %r : tensor<2xi64>
    }}"""
    assert hlo_disc.compile(text)(np.int32(index)).tolist() == [expected] * 2


def test_tokens_and_tuples():
    text = """func.func @main(%x: tensor<?xf32>) -> (!stablehlo.token, tuple<tensor<?xf32>, tuple<tensor<?xf32>>>) {
      %t = stablehlo.create_token : !stablehlo.token
      %u = stablehlo.after_all %t, %t : !stablehlo.token
      %b:2 = stablehlo.optimization_barrier %x, %u : tensor<?xf32>, !stablehlo.token
      %p = stablehlo.constant dense<false> : tensor<i1>
      %w:2 = stablehlo.while(%v = %u, %c = %b#0) : !stablehlo.token, tensor<?xf32> cond {
        stablehlo.return %p : tensor<i1>
      } do {
        %y = stablehlo.add %c, %c : tensor<?xf32>
        stablehlo.return %v, %y : !stablehlo.token, tensor<?xf32>
      }
      %inner = stablehlo.tuple %w#1 : tuple<tensor<?xf32>>
      %n = stablehlo.negate %x : tensor<?xf32>
      %both = stablehlo.tuple %n, %inner : tuple<tensor<?xf32>, tuple<tensor<?xf32>>>
      %first = stablehlo.get_tuple_element %both[0] : (tuple<tensor<?xf32>, tuple<tensor<?xf32>>>) -> tensor<?xf32>
      %again = stablehlo.tuple %first, %inner : tuple<tensor<?xf32>, tuple<tensor<?xf32>>>
      return %w#0, %again : !stablehlo.token, tuple<tensor<?xf32>, tuple<tensor<?xf32>>>
    }"""
    x = np.arange(3, dtype=np.float32)
    negated, same = hlo_disc.compile(text)(x)
    np.testing.assert_array_equal(negated, -x)
    np.testing.assert_array_equal(same, x)


def test_sizes_below_none_in_a_loop_that_does_not_run():
    """Negative sizes in a loop that does not run take no memory, and none away from what lies behind them."""
    sort = (
        '"stablehlo.sort"({}) <{{dimension = 0 : i64, is_stable = true}}> ({{\n'
        "^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
        "%t = stablehlo.compare {}, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "stablehlo.return %t : tensor<i1>\n}}) : (tensor<?xf32>) -> tensor<?xf32>"
    )
    exe = hlo_disc.compile(f"""
      func.func @main(%x: tensor<?xf32>, %g: tensor<?xi32>, %k: tensor<i32>) -> (tensor<?xf32>, tensor<f32>) {{
        %z = stablehlo.constant dense<0> : tensor<i32>
        %zf = stablehlo.constant dense<0.0> : tensor<f32>
        %c = stablehlo.constant dense<100000> : tensor<i32>
        %z1 = stablehlo.constant dense<0> : tensor<1xi32>
        %n = stablehlo.get_dimension_size %g, dim = 0 : (tensor<?xi32>) -> tensor<i32>
        %d = stablehlo.subtract %n, %c : tensor<i32>
        %l = stablehlo.reshape %d : (tensor<i32>) -> tensor<1xi32>
        %r:2 = stablehlo.while(%i = %z, %a = %zf) : tensor<i32>, tensor<f32> cond {{
          %t = stablehlo.compare LT, %i, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %t : tensor<i1>
        }} do {{
          %one = stablehlo.constant dense<1> : tensor<i32>
          %j = stablehlo.add %i, %one : tensor<i32>
          %p = stablehlo.dynamic_pad %x, %a, %l, %z1, %z1
            : (tensor<?xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
          %q = stablehlo.reduce(%p init: %a) applies stablehlo.add across dimensions = [0]
            : (tensor<?xf32>, tensor<f32>) -> tensor<f32>
          stablehlo.return %j, %q : tensor<i32>, tensor<f32>
        }}
        %y = {sort.format("%x", "LT")}
        %w = stablehlo.reverse %y, dims = [0] : tensor<?xf32>
        %v = {sort.format("%w", "GT")}
        return %v, %r#1 : tensor<?xf32>, tensor<f32>
      }}""")
    none, x = np.zeros(1, np.int32), np.random.default_rng(0).random(3000).astype(np.float32)
    y, total = exe(x, none, np.int32(0))
    np.testing.assert_array_equal(y, np.sort(x)[::-1])
    assert total == 0
    with pytest.raises(ShapeError, match="padded to the size -96999"):
        exe(x, none, np.int32(1))
