"""The JAX context: jax.Array in and out, packed forms of immutable arrays, executables inside `jax.jit`."""

from __future__ import annotations

import gc
import itertools
import operator
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ral_programs as programs

import hlo_disc
from hlo_disc.abi import ALIGNMENT
from hlo_disc.errors import ArgumentError, OutOfMemoryError, ShapeError
from hlo_disc.ral import fail_next_allocation, live_bytes
from hlo_disc.ral.contexts.jax import _fast_wrap, _wrap, call_in_jit

CONTENT = (1 << 63) - 1  # a hash of nothing in particular


def live_bytes_without_garbage() -> int:
    gc.collect()
    jnp.ones(3).block_until_ready()  # JAX drops what it held when it is used next
    return live_bytes()


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "uint16", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("shape", [(), (5,), (0, 3), (2, 3, 4)])
def test_arrays_in_and_out(dtype: str, shape: tuple[int, ...]) -> None:
    x = jnp.asarray(np.random.default_rng(0).integers(0, 2, shape), dtype)
    (y,) = programs.copy(dtype, len(shape))(x)
    assert isinstance(y, jax.Array) and y.dtype == x.dtype and y.shape == shape and not y.committed and not y.weak_type
    np.testing.assert_array_equal(y, x)


def test_results_are_the_memory_that_was_computed_into() -> None:
    exe = programs.add_one()
    before = live_bytes_without_garbage()
    (y,) = exe(jnp.arange(5.0))
    assert live_bytes() == before + 20
    assert y.unsafe_buffer_pointer() % ALIGNMENT == 0
    np.testing.assert_array_equal(y, [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(exe(y)[0] * 2, [4, 6, 8, 10, 12])
    del y
    assert live_bytes_without_garbage() == before


def test_types_that_were_checked_are_looked_at_once_and_others_again() -> None:
    weak, strong = jnp.add(1.0, 2.0), jnp.float32(3)
    assert weak.weak_type and not strong.weak_type
    f = hlo_disc.jit(lambda x, unread: x + unread.shape[0])
    for n in (3, 4, 3, 0):
        for _ in range(2):
            x = jnp.ones((5,))
            np.testing.assert_array_equal(f(x, jnp.ones((n,))), x + n)
    with pytest.raises(ArgumentError, match="int32"):
        compiled = hlo_disc.compile(lambda x, unread: x + unread.shape[0], "f32[n]", "f32[m]")
        compiled(jnp.ones(3), jnp.ones(2))
        compiled(jnp.ones(3), jnp.ones(2, jnp.int32))
    with pytest.raises(ArgumentError, match="rank 2"):
        compiled(jnp.ones(3), jnp.ones((2, 2)))
    g = hlo_disc.jit(lambda x: x * jnp.bfloat16(2))
    for x in (weak, strong, weak, strong):
        assert g(x).dtype == jax.jit(lambda x: x * jnp.bfloat16(2))(x).dtype


def test_an_array_that_nothing_reads_may_be_deleted_and_any_other_may_not() -> None:
    f = hlo_disc.jit(lambda x, unread: x + unread.shape[0])
    x, unread = jnp.ones(3), jnp.ones(2)
    np.testing.assert_array_equal(f(x, unread), f(x, unread))
    unread.delete()
    np.testing.assert_array_equal(f(x, unread), x + 2)
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        f(x, unread)


def test_numpy_and_jax_arguments_mix() -> None:
    exe = programs.add_packed()
    assert isinstance(exe(np.ones(4, np.float32), jnp.ones(4))[0], jax.Array)
    assert isinstance(exe(np.ones(4, np.float32), np.ones(4, np.float32))[0], np.ndarray)


def test_results_go_where_a_committed_argument_is() -> None:
    device = jax.devices("cpu")[0]
    (y,) = programs.add_one()(jax.device_put(np.ones(3, np.float32), device))
    assert y.committed and y.devices() == {device}


def test_the_public_api_gives_the_same_results() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    likes = (None, jnp.ones(2), jax.device_put(np.ones(2), jax.devices("cpu")[0]))
    for like, weak in itertools.product(likes, (False, True)):
        fast = _fast_wrap()
        assert fast is not None
        one, other = fast(x, like, weak), _wrap(x, like, weak)
        assert one.weak_type == weak
        np.testing.assert_array_equal(one, other)
        assert (one.dtype, one.sharding, one.committed, one.aval) == (
            other.dtype,
            other.sharding,
            other.committed,
            other.aval,
        )


def test_types_of_results_are_known_by_all_that_they_say() -> None:
    fast = _fast_wrap()
    assert fast is not None
    shapes = [shape for n in range(60) for shape in ((n,), (n, 1), (1, n), (n, 31))]  # more than are remembered
    for shape, dtype, weak in [*itertools.product(shapes, (np.float32, np.int32), (False, True))] * 2:
        y = fast(np.zeros(shape, dtype), None, weak)
        assert (y.shape, y.dtype, y.weak_type) == (shape, dtype, weak)
    with pytest.raises(TypeError):
        fast([1.0], None, False)


def test_arrays_that_are_still_being_computed_are_waited_for() -> None:
    slow = jax.jit(lambda m: jnp.linalg.matrix_power(m, 40)[0])
    m = jnp.eye(300)
    (y,) = programs.add_one()(slow(m))
    np.testing.assert_array_equal(y, np.eye(300)[0] + 1)


def test_wrong_arrays() -> None:
    exe = programs.add_one()
    with pytest.raises(ArgumentError, match="argument 'x' has dtype bfloat16, but float32 was compiled"):
        exe(jnp.ones(3, jnp.bfloat16))
    with pytest.raises(ArgumentError, match="argument 'x' has rank 2"):
        exe(jnp.ones((3, 3)))
    with pytest.raises(ArgumentError, match="argument 'x' is a .*PRNGKeyArray"):
        exe(jax.random.key(0))
    deleted = jnp.ones(3) + 1
    deleted.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        exe(deleted)
    with pytest.raises(ArgumentError, match="Tracer"):
        jax.jit(exe)(jnp.ones(3))
    np.testing.assert_array_equal(exe(jnp.ones(3))[0], [2, 2, 2])


def test_an_array_that_comes_again_is_read_from_a_copy() -> None:
    exe = programs.copy("float32", 1)
    arrays = [jnp.full(n, float(k)) for k, n in enumerate((3, 5, 5, 2000, 0))]
    after_a_large_one = [arrays[0], arrays[0], arrays[3], arrays[0]]
    for x in itertools.chain(*([x] * 4 for x in arrays), arrays, reversed(arrays), after_a_large_one):
        np.testing.assert_array_equal(exe(x)[0], x)
    for k in range(50):  # arrays that die leave their addresses to others
        x = jnp.full(3, float(k))
        for _ in range(1 + k % 4):
            np.testing.assert_array_equal(exe(x)[0], np.full(3, k))


@pytest.mark.parametrize("times", [1, 2, 3])
def test_the_memory_of_an_array_that_comes_again_is_not_held(times: int) -> None:
    exe, donate = programs.copy("float32", 1), jax.jit(lambda x: x + 1, donate_argnums=0)
    for take in (operator.methodcaller("delete"), donate):
        x = jnp.full(3, 7.0) * 2
        for _ in range(times):
            exe(x)
        take(x)
        assert x.is_deleted()
        with pytest.raises(RuntimeError, match="deleted"):
            exe(x)


def test_copies_from_many_threads() -> None:
    exe = programs.copy("float32", 1)
    shared = [jnp.full(n, float(n)) for n in (1, 4, 5)]

    def calls(seed: int) -> None:
        for k in range(300):
            x = shared[(k // 3 + seed) % 3] if k % 2 else jnp.full(4, float(k))
            for _ in range(3):
                np.testing.assert_array_equal(exe(x)[0], x)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(calls, range(8)))


def test_packed_inputs_are_kept_while_the_array_lives() -> None:
    exe = programs.add_packed()
    x = np.ones(4, np.float32)
    before = live_bytes_without_garbage()
    w = jnp.arange(4.0)
    np.testing.assert_array_equal(exe(x, w)[0], x + 2 * np.arange(4))  # the program doubles what is not packed
    assert exe.packed_bytes() == 0  # an array that comes once is not worth it
    for _ in range(3):
        np.testing.assert_array_equal(exe(x, w)[0], x + np.arange(4))
    assert exe.packed_bytes() == 16
    v = jnp.full(4, 3.0)
    exe(x, v)
    np.testing.assert_array_equal(exe(x, v)[0], x + 3)
    assert exe.packed_bytes() == 32
    np.testing.assert_array_equal(exe(x, w)[0], x + np.arange(4))
    del w
    assert exe.packed_bytes() == 16
    del v
    assert exe.packed_bytes() == 0
    assert live_bytes_without_garbage() == before


def test_only_immutable_arrays_are_packed() -> None:
    exe = programs.add_packed()
    x = np.ones(4, np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(exe(x, x)[0], 3 * x)
    assert exe.packed_bytes() == 0


def test_the_bound_on_packed_bytes() -> None:
    x = np.ones(4, np.float32)
    exe = programs.add_packed(packed_bytes=40)
    weights = [jnp.ones(4) * k for k in range(4)]
    for expected in ([1, 3, 5, 7], [1, 2, 5, 7], [1, 2, 5, 7]):
        assert [float(exe(x, w)[0][0]) for w in weights] == expected  # only the first two are ever packed
    assert exe.packed_bytes() == 32
    another = programs.add_packed(packed_bytes=40)
    for _ in range(3):
        assert float(another(x, weights[1])[0][0]) == 3  # the bound holds over all executables
    del exe
    assert float(another(x, weights[1])[0][0]) == 2
    never = programs.add_packed(packed_bytes=0)
    for _ in range(3):
        assert float(never(x, weights[1])[0][0]) == 3


def test_packing_without_memory_falls_back() -> None:
    exe = programs.add_packed(packed_bytes=16)  # which the failure gives back
    x, w = np.ones(4, np.float32), jnp.ones(4)
    exe(x, w)
    fail_next_allocation(2)  # the first is the output
    np.testing.assert_array_equal(exe(x, w)[0], 3 * x)
    np.testing.assert_array_equal(exe(x, w)[0], 2 * x)


def test_packing_from_many_threads() -> None:
    exe = programs.add_packed()
    x = np.zeros(4, np.float32)

    def calls(seed: int) -> None:
        for k in range(150):
            w = jnp.full(4, float(k))
            assert [float(exe(x, w)[0][1]) for _ in range(3)] == [2 * k, k, k]
            assert float(exe(x, shared)[0][1]) == 77

    shared = jnp.full(4, 77.0)
    exe(x, shared)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(calls, range(8)))
    gc.collect()
    assert exe.packed_bytes() == 16


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("size", [0, 1, 31, 1000])
def test_inside_jit(threads: int, size: int) -> None:
    exe = programs.add_one(arena=100, scratch=64, threads=threads, launches=3)

    @jax.jit
    def f(x: jax.Array) -> jax.Array:
        for _ in range(10):
            (x,) = call_in_jit(exe, CONTENT, x * 2)
        return x

    x = jnp.linspace(-1, 1, size)
    expected = x
    for _ in range(10):
        expected = expected * 2 + 1
    np.testing.assert_allclose(f(x), expected)
    np.testing.assert_array_equal(call_in_jit(exe, CONTENT, x)[0], x + 1)


def test_inside_jit_with_constants_and_without_packed_inputs() -> None:
    exe = programs.add_packed()
    x = jnp.ones(4)
    np.testing.assert_array_equal(jax.jit(lambda x, w: call_in_jit(exe, CONTENT, x, w))(x, x)[0], 3 * x)


def test_errors_inside_jit() -> None:
    exe = programs.add_one()
    with pytest.raises(ShapeError, match="size 13 of x must not be 13"):
        jax.jit(lambda x: call_in_jit(exe, CONTENT, x))(jnp.ones(13))
    with pytest.raises(ArgumentError, match="argument 'x' has dtype int32"):
        jax.jit(lambda x: call_in_jit(exe, CONTENT, x))(jnp.ones(3, jnp.int32))
    with pytest.raises(ArgumentError, match="2 arguments given"):
        jax.jit(lambda x: call_in_jit(exe, CONTENT, x, x))(jnp.ones(3))


def call_target(x: jax.Array, result: int, temporary: int, number: int) -> jax.Array:
    types = [jax.ShapeDtypeStruct((result,), x.dtype), jax.ShapeDtypeStruct((temporary,), np.dtype(np.uint8))]
    return jax.ffi.ffi_call("hlo_disc_call", types)(x, executable=np.int64(number))[0]


def test_the_handler_trusts_nobody() -> None:
    exe = programs.add_one(arena=64, threads=1)
    call_in_jit(exe, CONTENT, jnp.ones(3))
    number, enough = exe.publish(CONTENT), exe.infer([("float32", [3])]).temporary
    np.testing.assert_array_equal(call_target(jnp.ones(3), 3, enough, number), [2, 2, 2])
    for arguments, message in (
        ((jnp.ones(3), 3, enough, 12345), "an hlo_disc executable of another process"),
        (
            (jnp.ones(3), 4, enough, number),
            r"result 0 of the custom call has another dtype, or shape \(4,\), but the executable computes \(3,\)",
        ),
        ((jnp.ones(3), 3, 10, number), f"must have {enough} bytes"),
        ((jnp.ones(3, jnp.int32), 3, enough, number), "argument 'x' has dtype XLA type 4"),
        ((jnp.ones((3, 1)), 3, enough, number), "argument 'x' has rank 2"),
        ((jnp.ones(13), 13, enough, number), "size 13 of x must not be 13"),
    ):
        with pytest.raises(jax.errors.JaxRuntimeError, match=message):
            jax.block_until_ready(call_target(*arguments))  # type: ignore[arg-type]
    np.testing.assert_array_equal(call_target(jnp.ones(3), 3, enough, number), [2, 2, 2])


def test_executables_with_one_hash_stay_apart() -> None:
    one, two = programs.add_one(), programs.add_one()
    numbers, enough = [x.publish(CONTENT - 1) for x in (one, two, one)], one.infer([("float32", [3])]).temporary
    assert (numbers[0] == numbers[2], numbers[0] == numbers[1]) == (True, False)
    for number, times in zip(numbers, (1, 2, 3), strict=True):
        for _ in range(times):
            call_target(jnp.ones(3), 3, enough, number).block_until_ready()
    assert [(x.count.value, x.count.in_jit) for x in (one, two)] == [(0, 4), (0, 2)]


def test_jit_from_many_threads() -> None:
    exe = programs.add_one(scratch=64, threads=2)
    f = jax.jit(lambda x: call_in_jit(exe, CONTENT, x)[0])

    def calls(size: int) -> None:
        x = jnp.arange(float(size))
        for _ in range(100):
            np.testing.assert_array_equal(f(x), np.arange(1.0, size + 1))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(calls, range(40, 48)))


def test_a_failed_allocation_with_jax_arrays() -> None:
    exe = programs.add_one(arena=200)
    x = jnp.ones(10)
    exe(x)
    for n in (1, 2):
        fail_next_allocation(n)
        with pytest.raises(OutOfMemoryError):
            exe(x)
        np.testing.assert_array_equal(exe(x)[0], x + 1)
