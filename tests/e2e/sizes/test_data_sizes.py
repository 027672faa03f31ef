"""Sizes that are computed from data: `main` defines them, checks them, and allocates what has them."""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc
from hlo_disc import ral
from hlo_disc.errors import ArgumentError, OutOfMemoryError, ShapeError
from hlo_disc.ral.contexts.jax import call_in_jit

COUNTED = """
func.func @main(%n: tensor<i32>, %x: tensor<?xf32>) -> (tensor<?xi32>, tensor<f32>) {
  %v = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %i = stablehlo.dynamic_iota %v, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %t = stablehlo.dynamic_broadcast_in_dim %two, %v, dims = [] : (tensor<i32>, tensor<1xi32>) -> tensor<?xi32>
  %j = stablehlo.multiply %i, %t : tensor<?xi32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0]
    : (tensor<?xf32>, tensor<f32>) -> tensor<f32>
  return %j, %s : tensor<?xi32>, tensor<f32>
}"""

# As many elements as are positive; then as many again as the sum of their tanh says.
CHAINED = """
func.func @main(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %zf = stablehlo.constant dense<0.0> : tensor<f32>
  %zero = stablehlo.constant dense<0> : tensor<1xi32>
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %d = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %dv = stablehlo.reshape %d : (tensor<i32>) -> tensor<1xi32>
  %zs = stablehlo.dynamic_broadcast_in_dim %zf, %dv, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  %p = stablehlo.compare GT, %x, %zs : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xi1>
  %pi = stablehlo.convert %p : (tensor<?xi1>) -> tensor<?xi32>
  %c = stablehlo.reduce(%pi init: %z) applies stablehlo.add across dimensions = [0]
    : (tensor<?xi32>, tensor<i32>) -> tensor<i32>
  %cv = stablehlo.reshape %c : (tensor<i32>) -> tensor<1xi32>
  %h = stablehlo.real_dynamic_slice %x, %zero, %cv, %one
    : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
  %m = stablehlo.tanh %h : tensor<?xf32>
  %sum = stablehlo.reduce(%m init: %zf) applies stablehlo.add across dimensions = [0]
    : (tensor<?xf32>, tensor<f32>) -> tensor<f32>
  %sb = stablehlo.dynamic_broadcast_in_dim %sum, %cv, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  %q = stablehlo.divide %m, %sb : tensor<?xf32>
  %ci = stablehlo.convert %sum : (tensor<f32>) -> tensor<i32>
  %ab = stablehlo.abs %ci : tensor<i32>
  %av = stablehlo.reshape %ab : (tensor<i32>) -> tensor<1xi32>
  %w = stablehlo.dynamic_broadcast_in_dim %sum, %av, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  return %q, %w : tensor<?xf32>, tensor<?xf32>
}"""

IN_A_LOOP = """
func.func @main(%n: tensor<i32>, %k: tensor<i32>) -> tensor<?xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %v = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %i = stablehlo.dynamic_iota %v, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
  %r:2 = stablehlo.while(%j = %c0, %a = %i) : tensor<i32>, tensor<?xf32> cond {
    %p = stablehlo.compare LT, %j, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %b = stablehlo.cosine %a : tensor<?xf32>
    %jn = stablehlo.add %j, %c1 : tensor<i32>
    stablehlo.return %jn, %b : tensor<i32>, tensor<?xf32>
  }
  %s = stablehlo.negate %r#1 : tensor<?xf32>
  return %s : tensor<?xf32>
}"""

# A first array dies before the size of a second is known; a third is as large as both.
GROWING = """
func.func @main(%n: tensor<i32>) -> tensor<?xf32> {
  %v = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %i = stablehlo.dynamic_iota %v, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
  %r = "stablehlo.sort"(%i) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %p = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) : (tensor<?xf32>) -> tensor<?xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %most = stablehlo.constant dense<-1.0> : tensor<f32>
  %m = stablehlo.reduce(%r init: %most) applies stablehlo.maximum across dimensions = [0]
    : (tensor<?xf32>, tensor<f32>) -> tensor<f32>
  %k = stablehlo.convert %m : (tensor<f32>) -> tensor<i32>
  %w = stablehlo.abs %k : tensor<i32>
  %wv = stablehlo.reshape %w : (tensor<i32>) -> tensor<1xi32>
  %j = stablehlo.dynamic_iota %wv, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
  %c = stablehlo.concatenate %i, %j, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %s = "stablehlo.sort"(%c) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %p = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) : (tensor<?xf32>) -> tensor<?xf32>
  %t = stablehlo.negate %s : tensor<?xf32>
  return %t : tensor<?xf32>
}"""

# Of the first result the shape is known later than the memory that it lies in; the second has an axis more than that.
RESHAPED = """
func.func @main(%n: tensor<i32>, %x: tensor<?xf32>) -> (tensor<?x?xf32>, tensor<1x?xf32>) {
  %m = stablehlo.negate %x : tensor<?xf32>
  %d = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %q = stablehlo.divide %d, %n : tensor<i32>
  %v = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %w = stablehlo.reshape %q : (tensor<i32>) -> tensor<1xi32>
  %s = stablehlo.concatenate %v, %w, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %y = stablehlo.dynamic_reshape %m, %s : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  %i = stablehlo.dynamic_iota %v, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %t = stablehlo.concatenate %one, %v, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %z = stablehlo.dynamic_reshape %i, %t : (tensor<?xf32>, tensor<2xi32>) -> tensor<1x?xf32>
  return %y, %z : tensor<?x?xf32>, tensor<1x?xf32>
}"""

# How many elements are taken depends on how many there are, and is checked against that.
CUT = """
func.func @main(%n: tensor<i32>, %most: tensor<i32>, %x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0> : tensor<1xi32>
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %zf = stablehlo.constant dense<0.0> : tensor<f32>
  %nv = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %i = stablehlo.dynamic_iota %nv, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
  %s = stablehlo.reduce(%i init: %zf) applies stablehlo.add across dimensions = [0]
    : (tensor<?xf32>, tensor<f32>) -> tensor<f32>
  %c = stablehlo.concatenate %i, %x, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %d = stablehlo.get_dimension_size %c, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %k = stablehlo.minimum %d, %most : tensor<i32>
  %kv = stablehlo.reshape %k : (tensor<i32>) -> tensor<1xi32>
  %h = stablehlo.real_dynamic_slice %c, %zero, %kv, %one
    : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
  %m = stablehlo.negate %h : tensor<?xf32>
  return %m, %i, %s : tensor<?xf32>, tensor<?xf32>, tensor<f32>
}"""

# That there are so many elements of x is known from a check; what is read of x stands before it.
BEFORE_ITS_CHECK = """
func.func @main(%y: tensor<?xi32>, %x: tensor<?xf32>) -> (tensor<?xf32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0> : tensor<1xi32>
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %far = stablehlo.constant dense<FAR> : tensor<1xi32>
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %nv = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %few = stablehlo.minimum %nv, %far : tensor<1xi32>
  %s = stablehlo.real_dynamic_slice %x, %zero, %few, %one
    : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%s init: %z) applies stablehlo.add across dimensions = [0]
    : (tensor<?xf32>, tensor<f32>) -> tensor<f32>
  %zi = stablehlo.constant dense<0> : tensor<i32>
  %k = stablehlo.reduce(%y init: %zi) applies stablehlo.add across dimensions = [0]
    : (tensor<?xi32>, tensor<i32>) -> tensor<i32>
  %kv = stablehlo.reshape %k : (tensor<i32>) -> tensor<1xi32>
  %h = stablehlo.real_dynamic_slice %x, %far, %kv, %one
    : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
  return %h, %r : tensor<?xf32>, tensor<f32>
}"""


@pytest.fixture(scope="module")
def chained():
    return hlo_disc.compile(CHAINED)


def test_a_size_from_an_argument():
    exe = hlo_disc.compile(COUNTED)
    for n in (0, 1, 5, 100_000):
        even, total = exe(np.int32(n), np.ones(n + 2, np.float32))
        np.testing.assert_array_equal(even, 2 * np.arange(n))
        assert total == n + 2


def test_results_that_are_reshapes():
    exe = hlo_disc.compile(RESHAPED)
    x = np.arange(12, dtype=np.float32)
    for n in (3, 4, 12, 1):
        table, line = exe(np.int32(n), x)
        np.testing.assert_array_equal(table, -x.reshape(n, -1))
        np.testing.assert_array_equal(line, np.arange(n)[None])
    with pytest.raises(ShapeError, match="has 12 elements and .* has 10"):
        exe(np.int32(5), x)


def test_a_negative_size_is_refused_and_the_next_call_works():
    exe = hlo_disc.compile(COUNTED)
    for _ in range(2):
        with pytest.raises(ShapeError, match="stablehlo.dynamic_iota at .*would have the size -3"):
            exe(np.int32(-3), np.ones(2, np.float32))
    assert exe(np.int32(2), np.ones(2, np.float32))[0].tolist() == [0, 2]


@pytest.mark.parametrize("n", [0, 1, 7, 1000, 70_001])
def test_a_size_from_a_result(chained, n):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    q, w = chained(x)
    kept = np.tanh(x[: int((x > 0).sum())].astype(np.float64))
    assert q.shape == kept.shape
    np.testing.assert_allclose(q * kept.sum(), kept, rtol=1e-3, atol=1e-4)
    assert abs(len(w) - abs(kept.sum())) <= 1.01


def test_a_size_that_is_checked_by_a_size_that_it_decides():
    exe = hlo_disc.compile(CUT)
    x = np.array([8, 9], np.float32)
    for n in (0, 1, 5):
        for most in (0, 1, n + 2, n + 3):
            cut, line, total = exe(np.int32(n), np.int32(most), x)
            np.testing.assert_array_equal(cut, -np.r_[np.arange(n), x][:most])
            np.testing.assert_array_equal(line, np.arange(n))
            assert total == np.arange(n).sum()
    with pytest.raises(ShapeError, match="would have the size -1"):
        exe(np.int32(3), np.int32(-1), x)


def test_nothing_runs_that_relies_on_a_check_before_it():
    x = np.arange(6, dtype=np.float32)
    rest, few = hlo_disc.compile(BEFORE_ITS_CHECK.replace("FAR", "4"), dims={0: "(m)", 1: "(n)"})(np.int32([2, 3]), x)
    assert rest.tolist() == [4] and few == 6
    exe = hlo_disc.compile(BEFORE_ITS_CHECK.replace("FAR", "1000000000"), dims={0: "(m)", 1: "(n)"})
    with pytest.raises(ShapeError, match="limit 1000000000 in dimension 0 must be at most the size 6"):
        exe(np.int32([1_000_000_000]), x)


def test_arrays_of_such_a_size_in_a_loop():
    exe = hlo_disc.compile(IN_A_LOOP)
    for n in (0, 1, 33):
        for turns in (0, 1, 2, 5):
            expected = np.arange(n, dtype=np.float32)
            for _ in range(turns):
                expected = np.cos(expected)
            np.testing.assert_allclose(exe(np.int32(n), np.int32(turns)), -expected, rtol=1e-5)


def test_no_memory(chained):
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    gc.collect()
    before, failures = ral.live_bytes(), 0
    for number in range(1, 12):
        ral.fail_next_allocation(number)
        try:
            chained(x)
        except OutOfMemoryError:
            failures += 1
        finally:
            ral.fail_next_allocation(0)
        gc.collect()
        assert ral.live_bytes() <= before
    assert failures >= 3
    assert len(chained(x)) == 2


def test_memory_that_is_free_is_not_taken_for_a_size_that_comes_later():
    exe = hlo_disc.compile(GROWING)
    for n in (0, 1, 5, 1000):
        np.testing.assert_array_equal(exe(np.int32(n)), -np.sort(np.r_[np.arange(n), np.arange(abs(n - 1))]))


def allocations(exe, *args) -> int:
    """Return the number of allocations of a call."""
    for number in range(1, 100):
        ral.fail_next_allocation(number)
        try:
            exe(*args)
        except OutOfMemoryError:
            continue
        finally:
            ral.fail_next_allocation(0)
        return number - 1
    raise AssertionError("it never ends")


def test_values_that_share_memory_allocate_it_once():
    def sorts(times: int) -> str:
        lines = [
            f"""
  %r{k} = stablehlo.reverse %x{k}, dims = [0] : tensor<?xf32>
  %x{k + 1} = "stablehlo.sort"(%r{k}) ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %p = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }}) : (tensor<?xf32>) -> tensor<?xf32>"""
            for k in range(times)
        ]
        return f"""
func.func @main(%n: tensor<i32>) -> tensor<?xf32> {{
  %v = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %x0 = stablehlo.dynamic_iota %v, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>{"".join(lines)}
  return %x{times} : tensor<?xf32>
}}"""

    few, many = (allocations(hlo_disc.compile(sorts(times)), np.int32(100)) for times in (4, 8))
    assert 2 <= few == many


def test_what_is_known_is_counted(chained):
    assert chained.memory(d0=10).outputs == 0


def test_jax_cannot_have_such_a_result(chained):
    with pytest.raises(ArgumentError, match="depend on data"):
        jax.jit(lambda x: call_in_jit(chained.native, chained.content, x))(np.ones(3, np.float32))


@pytest.mark.parametrize("target", ["cpu", "cuda", "rocm"])
@pytest.mark.parametrize("function", [lambda x: x.sum(0), lambda x: x.argmax(1), lambda x: jnp.cumsum(x, 0)])
def test_what_blocks_leave_each_other_takes_bounded_memory(target, function):
    """The memory that blocks leave each other is bounded, whether they share a long axis or have many results."""
    executable = hlo_disc.compile(function, "f32[m, n]", target=target)
    for m, n in ((4, 1 << 33), (1 << 33, 4), (1 << 16, 1 << 16)):
        assert executable.memory(m=m, n=n).temporary <= 160 << 20
