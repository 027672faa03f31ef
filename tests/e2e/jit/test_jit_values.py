"""JAX's values in and out of hlo_disc.jit: random keys, weak types, float0, elements of fewer than 8 bits."""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc
from hlo_disc.errors import ArgumentError

FLOAT0 = jax.dtypes.float0
KINDS = ["threefry2x32", "rbg", "unsafe_rbg"]


def same(got, want, arrays=jax.Array):
    """Check that results are those of jax.jit. arrays: the type of an array that has a form in numpy too."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if jax.dtypes.issubdtype(b.dtype, jax.dtypes.prng_key):
            assert type(a) is type(b)
            same(jax.random.key_data(a), jax.random.key_data(b))
        elif b.dtype == FLOAT0:
            assert isinstance(a, np.ndarray)
        else:
            assert isinstance(a, arrays)
            np.testing.assert_array_equal(a, b)
            if arrays is jax.Array:
                assert (a.weak_type, a.committed, a.sharding) == (b.weak_type, b.committed, b.sharding)


def check(fn, *calls, arrays=jax.Array, **settings):
    """Compare calls with jax.jit: one after another, each twice, and then each inside jax.jit."""
    f, reference = hlo_disc.jit(fn, **settings), jax.jit(fn)
    for args in calls:
        for _ in range(2):
            same(f(*args), reference(*args), arrays)
    assert not f.stats().fallbacks and f.stats().calls == 2 * len(calls)
    for args in calls:
        same(jax.jit(lambda *args: f(*args))(*args), reference(*args))
    return f


# ------------------------------------------------------------------------------------------------------- random keys


@pytest.mark.parametrize("kind", KINDS)
def test_keys_as_results(kind):
    check(lambda: jax.random.key(3, impl=kind), ())
    check(lambda: {"keys": jax.random.split(jax.random.key(3, impl=kind), 3), "n": jnp.arange(2)}, ())
    check(lambda x: (jax.random.key(x, impl=kind), x), (jnp.uint32(5),), (7,))
    check(lambda x: (jax.random.key(x, impl=kind), x), (np.uint32(5),), arrays=np.ndarray)


@pytest.mark.parametrize("kind", KINDS)
def test_keys_as_arguments(kind):
    key = jax.random.key(1, impl=kind)
    check(lambda k: jax.random.bits(k, (3,)), (key,), (jax.random.key(2, impl=kind),))
    check(lambda k, x: (k, x + 1), (key, np.ones(2, np.float32)))
    check(lambda k, n: jax.random.fold_in(k, n), (key, 3), (key, 4))


def test_keys_in_trees():
    keys = jax.random.split(jax.random.key(1), (2, 3))
    f = check(
        lambda state, x: {"key": state["keys"][1], "x": state["w"] * x, "all": [state["keys"]]},
        ({"keys": keys, "w": jnp.ones(2)}, 2.0),
        ({"keys": keys[:, :2], "w": jnp.ones(2)}, 3.0),
    )
    assert f.stats().records[1].arguments[0] == "state['keys']: key<fry>[2, d0]"


@pytest.mark.parametrize("dims", [None, {"keys": "(n)"}])
@pytest.mark.parametrize("kind", ["threefry2x32", "rbg"])
def test_keys_of_any_number(dims, kind):
    keys = jax.random.split(jax.random.key(1, impl=kind), 5)
    f = check(lambda keys: (keys, keys[::-1]), *[(keys[:n],) for n in (3, 5, 1, 2, 0)], dims=dims)
    assert f.stats().compilations == (1 if dims else 2)


def test_another_kind_of_key_is_another_program():
    f = hlo_disc.jit(lambda k: k)
    for kind in (*KINDS, *KINDS):
        key = jax.random.key(1, impl=kind)
        same(f(key), key)
    assert f.stats().compilations == 3


def test_executables_have_the_data_of_keys():
    exe = hlo_disc.compile(
        lambda k, x: (jax.random.wrap_key_data(jax.random.key_data(k) + 1), x), jax.random.key(0), "f32[n]"
    )
    data, x = exe(np.array([3, 4], np.uint32), np.ones(2, np.float32))
    assert data.tolist() == [4, 5] and data.dtype == np.uint32
    with pytest.raises(ArgumentError, match="'k' is a PRNGKeyArray.*uint32 \\(2,\\) is expected"):
        exe(jax.random.key(0), np.ones(2, np.float32))


# -------------------------------------------------------------------------------------------------------- weak types


def test_weak_arguments():
    weak = jnp.asarray(2.0)
    strong = jnp.asarray(2.0, jnp.float32)
    assert weak.weak_type and not strong.weak_type
    x = jnp.ones(2, jnp.bfloat16)
    f = check(lambda s, x: s * x, (weak, x), (strong, x), (weak, x), (2.0, x), (jnp.full(2, 2.0), x))
    assert f.stats().compilations == 3  # weak and strong scalars, and a weak vector; a number is a weak scalar
    assert f.stats().records[0].arguments == ("s: weak float32[]", "x: bfloat16[2]")


def test_weak_arguments_of_64_bits():
    with jax.enable_x64(True):
        check(lambda s: (s, s * np.float32(1)), (jnp.asarray(2.0),), (jnp.asarray(2.0, jnp.float64),), (2.0,))


def test_weak_results():
    check(lambda: (jnp.asarray(1.0) + 2, jnp.arange(3), jnp.full((2, 3), 1)), ())
    check(lambda x: (x, x * 2, x + jnp.float32(1)), (jnp.asarray(1.0),), (1.0,), (jnp.float32(1),))
    check(lambda x: (jnp.asarray(1.0), x), (np.ones(2, np.float32),), arrays=np.ndarray)
    check(lambda k, x: (jnp.asarray(1.0), x), (jax.random.key(0), 3))


def test_weak_results_of_any_size():
    check(lambda x: (x * 2, x.sum()), *[(jnp.full(n, 1.0),) for n in (3, 5, 0)], *[(jnp.ones(n),) for n in (3, 5, 0)])


def test_weak_types_from_many_threads():
    f = hlo_disc.jit(lambda s, x: s * x)
    x = jnp.ones(2, jnp.bfloat16)
    scales = [jnp.asarray(2.0), jnp.asarray(2.0, jnp.float32)]
    wrong = []

    def loop(thread):
        for call in range(200):
            strong = (call + thread) % 2
            if f(scales[strong], x).dtype != (jnp.float32 if strong else jnp.bfloat16):
                wrong.append(call)

    threads = [threading.Thread(target=loop, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and f.stats().calls == 800


def test_an_executable_takes_weak_arrays():
    exe = hlo_disc.jit(lambda x: x * 2).lower(jnp.ones(())).compile()
    assert exe(jnp.asarray(1.0)) == 2 and not exe(jnp.asarray(1.0)).weak_type


# ------------------------------------------------------------------------------------------------------------ float0


def test_float0():
    zeros = np.zeros(3, FLOAT0)
    check(lambda x: (x, jnp.ones(2)), (zeros,), (np.zeros((2, 3), FLOAT0),), arrays=np.ndarray)
    check(lambda x, y: (x, y), (zeros, jnp.ones(2)), (np.zeros(4, FLOAT0), jnp.ones(3)))
    check(lambda: zeros, ())
    f = check(lambda x: x, (zeros,), (np.ones(3, bool),), (np.ones(3, np.float32),), (zeros,), arrays=np.ndarray)
    assert f.stats().compilations == 3


def test_float0_with_dims():
    f = check(lambda x: x, *[(np.zeros(n, FLOAT0),) for n in (3, 5, 0)], dims={"x": "(n)"})
    assert f.stats().compilations == 1


def test_gradients_of_integers():
    """A gradient by integers inside the function has type float0."""
    fn = lambda n, x: jax.grad(lambda t: t[0] * t[1].sum(), allow_int=True)((n, x))  # noqa: E731
    check(fn, (jnp.int32(2), jnp.ones(3)))


# --------------------------------------------------------------------------------------- elements of fewer than 8 bits

NARROW = {"int4": [-8, -1, 0, 7, 3], "uint4": [0, 1, 15, 8, 3], "int2": [-2, -1, 0, 1, 1], "uint2": [0, 1, 2, 3, 3]}
NARROW["float4_e2m1fn"] = [-6.0, -0.5, 0.0, 1.5, 6.0]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("dims", [None, {"x": "(n)"}])
def test_narrow_elements(dtype, dims):
    x = jnp.array(NARROW[dtype], dtype)
    fn = lambda x: (x, x[::-1], x.astype(jnp.float32) + 1, (x.astype(jnp.int32) * 1).astype(x.dtype))  # noqa: E731
    check(fn, *[(x[:n],) for n in (5, 4, 1, 0)], dims=dims)
    check(fn, (np.asarray(x),), arrays=np.ndarray, dims=dims)


@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_results(dtype):
    check(lambda x: x.astype(dtype), (jnp.array(NARROW[dtype], jnp.float32),))
    check(lambda: jnp.array(NARROW[dtype], dtype), ())


def test_narrow_elements_with_two_axes():
    x = jnp.array(NARROW["int4"] * 3, "int4").reshape(3, 5)
    check(lambda x: (x.T, x[1:, 1:]), (x,), (x[:, :4],), (x.T,))


def test_memory_with_several_elements_in_a_byte_is_refused():
    class Packed:
        def __init__(self, array):
            self.array, self.dtype = array, array.dtype

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    exe = hlo_disc.compile(lambda x: x, "float4_e2m1fn[n]")
    x = jnp.array(NARROW["float4_e2m1fn"], "float4_e2m1fn")
    same(exe(x), x)
    with pytest.raises(ArgumentError, match="'x' gives its memory as elements of 4 bits.*takes 8"):
        exe(Packed(x))


def test_python_bools_are_no_weak_type():
    check(lambda x: (x, x | False, jnp.stack([x, x])), (True,), (jnp.array(False),), (3,))


# ------------------------------------------------------------------------------------------------------- no transfers


@pytest.mark.parametrize("level", ["disallow", "disallow_explicit"])
def test_where_no_array_may_move(level):
    x, narrow, key = jnp.ones(3), jnp.ones(3, "int4"), jax.random.key(0)
    calls = [
        (lambda: jnp.arange(3), ()),
        (lambda: jax.random.key(0), ()),
        (lambda x: (x + 1, x), (x,)),
        (lambda x: x, (narrow,)),
        (lambda x: x, (key,)),
        (lambda x: x, (x.astype(jnp.bfloat16),)),
    ]
    for fn, args in calls:
        with jax.transfer_guard(level):
            want, got = jax.jit(fn)(*args), hlo_disc.jit(fn)(*args)
        same(got, want)


# ------------------------------------------------------------------------------------------------------ numpy's arrays

MASKED = [
    np.ma.masked_array(np.full(3, 9.0, np.float32), [1, 0, 0]),
    np.ma.masked_array(np.ones(3, np.float32)),  # with no mask yet
    np.ma.masked_array(np.float32(2), True),
    np.ma.masked,
]


@pytest.mark.parametrize("x", MASKED, ids=["masked", "no mask", "number", "constant"])
@pytest.mark.parametrize("dims", [None, {"x": "(...)"}])
def test_masked_arrays_are_refused_as_by_jax(x, dims):
    f = hlo_disc.jit(lambda x: x.sum(), dims=dims)
    plain = np.ones(np.shape(x), np.asarray(x).dtype)
    for call in (f, f.lower, jax.grad(f), jax.vmap(f), jax.jit(lambda y: f(x) + y)):
        with pytest.raises(ValueError, match="numpy masked arrays are not supported"):
            call(x)
        assert float(f(plain)) == plain.size


def test_masked_arrays_inside_of_others_are_refused():
    f = hlo_disc.jit(lambda d, s: d["a"].sum() * s)
    for _ in range(2):
        with pytest.raises(ValueError, match="numpy masked arrays are not supported"):
            f({"a": MASKED[0]}, 2.0)
        assert f({"a": np.ones(3, np.float32)}, 2.0) == 6


def test_programs_refuse_masked_arrays():
    class Holder:
        def __array__(self, *_: object, **__: object) -> np.ndarray:
            return MASKED[0]

    exe = hlo_disc.compile(lambda x: x.sum(), "f32[n]")
    for x in (MASKED[0], MASKED[1], Holder()):
        with pytest.raises(ArgumentError, match="argument 'x' is a masked array"):
            exe(x)
    assert exe(MASKED[0].filled(1)) == 19


def test_other_classes_of_numpy_arrays_are_arrays():
    class Own(np.ndarray):
        pass

    check(lambda x: x * 2, (np.ones((2, 3), np.float32).view(Own),), (np.matrix([[1.0, 2.0]]),), arrays=np.ndarray)
