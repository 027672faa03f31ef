"""Python functions that compiled programs call: as often, in the order and with the arrays that jax.jit gives them."""

from __future__ import annotations

import functools
import gc
import pickle
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import hlo_disc
from hlo_disc.errors import CallError, FallbackWarning, UnsupportedOpError

SIZES = (3, 4, 0)


@pytest.fixture(autouse=True)
def without_fallback():
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        yield


def like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def noted(log, what):
    """Return a callback that notes its arguments and gives back the first one, doubled."""

    def note(*arrays):
        log.append((what, *(np.asarray(a).tolist() for a in arrays)))
        return np.asarray(arrays[0]) * 2

    return note


def pure(log):
    return lambda x: jax.pure_callback(noted(log, "pure"), like(x), x) + 1


def unused(log):
    def f(x):
        io_callback(noted(log, "io"), like(x), x)
        jax.debug.callback(lambda a: log.append(a.tolist()), x * 2)
        return x + 1

    return f


def in_order(log):
    def f(x):
        y = io_callback(noted(log, "first"), like(x), x, ordered=True)
        io_callback(noted(log, "second"), like(x), x, ordered=True)
        z = io_callback(noted(log, "third"), like(x), y + 1, ordered=True)
        return z

    return f


def same_twice(log):
    """Equal calls with an effect are two calls."""

    def f(x):
        note = noted(log, "same")
        return io_callback(note, like(x), x) + io_callback(note, like(x), x)

    return f


def in_scan(log):
    def f(x):
        def step(carry, row):
            io_callback(noted(log, "carry"), like(row), carry, ordered=True)
            io_callback(lambda: log.append("constant"), None, ordered=True)
            return carry + io_callback(noted(log, "row"), like(row), row, ordered=True), carry

        return jax.lax.scan(step, jnp.zeros((), x.dtype), x)

    return f


def in_while(log):
    def f(x):
        def step(state):
            k, total = state
            io_callback(noted(log, "step"), like(k), k, ordered=True)
            return k + 1, total + jax.pure_callback(noted([], ""), like(total), total)

        return jax.lax.while_loop(lambda state: state[0] < 3, step, (jnp.int32(0), x.sum() + 1))

    return f


def in_condition(log):
    def f(x):
        def go_on(k):
            io_callback(noted(log, "test"), like(k), k)
            return k < 3

        return jax.lax.while_loop(go_on, lambda k: k + 1, jnp.int32(0)) + x.sum()

    return f


def in_cond(log):
    def f(x):
        def one(v):
            io_callback(noted(log, "one"), like(v), v, ordered=True)
            return v * 2

        def other(v):
            jax.debug.callback(lambda a: log.append(a.tolist()), v)
            return v * 3

        return jax.lax.cond(x.sum() > 8, one, other, x), jax.lax.switch(jnp.int32(x.size) % 3, [one, other, one], x)

    return f


def before_and_after_an_update(log):
    """An array is updated in place, though the second callback reads what it was."""

    def f(x):
        y = jnp.concatenate([x, x]) * 2
        z = y.at[:1].set(-1)
        io_callback(noted(log, "after"), like(z), z, ordered=True)
        io_callback(noted(log, "before"), like(y), y, ordered=True)
        return z

    return f


def several_results(log):
    def both(a, b):
        log.append((a.tolist(), b["k"].tolist()))
        return {"sum": a + b["k"], "count": np.int32(len(log)), "none": ()}

    def f(x):
        shapes = {"sum": like(x), "count": jax.ShapeDtypeStruct((), np.int32), "none": ()}
        return io_callback(both, shapes, x, {"k": x * 2})

    return f


def by_the_size(log):
    def f(x):
        n = x.shape[0]
        shape = jax.ShapeDtypeStruct((n, 2 * n + 1), np.float32)
        y = jax.pure_callback(lambda a: np.full((len(a), 2 * len(a) + 1), a.sum()), shape, x)
        jax.debug.callback(lambda k: log.append(int(k)), n)
        return y.sum(0)

    return f


def size_from_outside(log):
    """The callback reads a size that is not its argument, so there is a program for each size."""

    def f(x):
        n = x.shape[0]
        shape = (n, 2)
        return jax.pure_callback(
            lambda: np.full(shape, 10 if n == 3 else n, np.float32), jax.ShapeDtypeStruct(shape, np.float32)
        )

    return f


def batched(method):
    def make(log):
        def f(x):
            def one(v, w):
                return jax.pure_callback(
                    lambda a, b: (log.append((np.shape(a), np.shape(b))), np.asarray(a + b))[1],
                    like(v),
                    v,
                    w,
                    vmap_method=method,
                )

            return jax.vmap(one, in_axes=(0, None))(x, 1.5)

        return f

    return make


def batched_io(log):
    return lambda x: jax.vmap(lambda v: io_callback(noted(log, "row"), like(v), v))(x)


@jax.custom_jvp
def sine(x):
    return jax.pure_callback(np.sin, like(x), x, vmap_method="expand_dims")


sine.defjvp(lambda primals, tangents: (sine(*primals), jnp.cos(*primals) * tangents[0]))


def gradient(log):
    def loss(x):
        jax.debug.callback(lambda a: log.append(a.tolist()), x)
        return jax.vmap(sine)(x * x).sum()

    return jax.value_and_grad(loss)


def in_a_backward_pass(log):
    @jax.custom_vjp
    def seen(x):
        return x * 2

    def backward(_, ct):
        io_callback(noted(log, "cotangent"), like(ct), ct)
        return (ct * 2,)

    seen.defvjp(lambda x: (seen(x), None), backward)
    return jax.grad(lambda x: (seen(x) ** 2).sum())


def recomputed(log):
    def inner(x):
        jax.debug.callback(lambda a: log.append(a.tolist()), x, ordered=True)
        return jnp.sin(x) * x

    return jax.grad(lambda x: jax.checkpoint(inner)(x).sum())


def in_an_inner_function(log):
    @jax.jit
    def inner(x):
        jax.debug.callback(lambda a: log.append(a.tolist()), x, ordered=True)
        return x + 1

    return lambda x: inner(inner(x)) + inner(x)


def static_and_named(log):
    def note(a, *, b, text):
        log.append((a.tolist(), b.tolist(), text))

    def f(x):
        jax.debug.callback(functools.partial(note, text="t"), x, b=x + 1)
        return x

    return f


ORDERED = (
    in_order, in_scan, in_while, before_and_after_an_update, several_results, size_from_outside, recomputed,
    in_an_inner_function, static_and_named,
)  # fmt: skip
UNORDERED = (
    unused, same_twice, in_condition, in_cond, by_the_size, batched_io, gradient, in_a_backward_pass,
)  # fmt: skip
METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all")
PROGRAMS = {make.__name__: make for make in ORDERED + UNORDERED} | {f"vmap_{m}": batched(m) for m in METHODS}
PROGRAMS["pure"] = pure


def same(left, right):
    assert jax.tree_util.tree_structure(left) == jax.tree_util.tree_structure(right)
    for a, b in zip(jax.tree_util.tree_leaves(left), jax.tree_util.tree_leaves(right), strict=True):
        assert (a.dtype, a.shape, a.weak_type) == (b.dtype, b.shape, b.weak_type)
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_is_as_with_jax_jit(name):
    logs = [], []
    f, g = (wrap(PROGRAMS[name](log)) for wrap, log in zip((hlo_disc.jit, jax.jit), logs, strict=True))
    for size in SIZES:
        x = jnp.arange(1.0, size + 1)
        for log in logs:
            log.clear()
        ours, theirs = f(x), g(x)
        jax.effects_barrier()
        same(ours, theirs)
        if PROGRAMS[name] not in ORDERED:
            for log in logs:
                log.sort(key=str)
        if size or PROGRAMS[name] in ORDERED + UNORDERED:  # of nothing XLA computes nothing
            assert logs[0] == logs[1], size
    assert f.stats().calls == len(SIZES)


def test_calls_are_ordered_when_nothing_else_says_so():
    """Ordered calls keep their order though nothing else says so: other kernels make each one's arguments."""
    log = []

    @hlo_disc.jit(dims={"x": "(n)"})
    def f(x):
        for k in range(6):
            io_callback(noted(log, k), like(x), x[::-1] if k % 2 else jnp.sort(x), ordered=True)
        return jnp.sort(x)

    f(jnp.ones(3))
    assert [entry[0] for entry in log] == list(range(6))


def test_one_program_serves_all_sizes_whatever_makes_the_function():
    """A function that each trace makes anew counts as the same one, if it captures the same."""
    scale = 2.0

    @hlo_disc.jit(dims={"x": "(n, 2)"})
    def f(x):
        by = scale * 2
        y = jnp.broadcast_to(x, jnp.broadcast_shapes(x.shape, (1, 2)))
        jax.debug.callback(functools.partial(lambda a, b, c: None, b=(by, "text")), y, c=None)
        return jax.pure_callback(lambda a: np.asarray(a) * by, like(y), y)

    for n in (5, 1, 0, 3):
        np.testing.assert_array_equal(f(jnp.ones((n, 2))), np.full((n, 2), 4.0))
    assert f.stats().compilations == 1


DTYPES = ("bool", "int8", "uint16", "int32", "float16", "bfloat16", "float32", "complex64", "int4", "uint2")


@pytest.mark.parametrize("dtype", [*DTYPES, "float8_e4m3fn"])
def test_every_type_passes(dtype):
    seen, values = [], []

    def f(x):
        def note(a):
            seen.append((type(a), a.dtype, a.shape, a.weak_type, a.committed))
            values.append(np.asarray(a))
            return np.asarray(a)[::-1]

        return jax.pure_callback(note, like(x), x)

    x = jnp.array([[1, 0, 1], [0, 1, 0]]).astype(dtype)
    ours, theirs = hlo_disc.jit(f)(x), jax.jit(f)(x)
    assert seen[0] == seen[1]
    np.testing.assert_array_equal(values[0], np.asarray(x))  # jax.jit of 0.10.1 loses a uint2, there and in the result
    assert ours.dtype == theirs.dtype == dtype
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(x)[::-1])


def test_numpy_in_numpy_out():
    made = hlo_disc.jit(pure([]))(np.ones(3, np.float32))
    assert type(made) is np.ndarray and made.tolist() == [3, 3, 3]


def test_what_a_function_keeps_is_its_own():
    kept = []
    f = hlo_disc.jit(lambda x: jax.pure_callback(lambda a: (kept.append(a), a)[1], like(x), x * 2) + 1)
    for k in range(20):
        f(jnp.full(1000, float(k)))
    assert [float(a[500]) for a in kept] == [2.0 * k for k in range(20)]


def boom(*arrays):
    raise KeyError("no such thing")


WRONG = {
    "raises": (boom, "KeyError: 'no such thing'"),
    "shape": (lambda a: np.ones(2, np.float32), r"its result 0 has shape \(2,\), \(3,\) is expected"),
    "dtype": (lambda a: np.ones(3, np.int32), "its result 0 has dtype int32, float32 is expected"),
    "count": (lambda a: (a, a), "it returned 2 results, 1 are expected"),
    "nothing": (lambda a: None, "it returned 0 results"),
    "no array": (lambda a: "text", r"Dtype <U4 is not|shape \(\), \(3,\)"),  # JAX or we refuse it
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name):
    function, message = WRONG[name]

    def f(x):
        return jax.pure_callback(function, like(x), x) + 1

    ours = hlo_disc.jit(f)
    for call in (ours, jax.jit(ours), jax.jit(f)):
        with pytest.raises(jax.errors.JaxRuntimeError) as caught:
            jax.block_until_ready(call(jnp.ones(3)))
        if call is ours:
            assert isinstance(caught.value, CallError)
            assert caught.match(message) and caught.match(
                r"^pure_callback at .*test_callbacks.py:\d+:\d+ \(test_errors.*f\) failed: "
            )
            assert caught.value.__cause__ is not None
            assert name != "raises" or type(caught.value.__cause__) is KeyError


def test_an_error_ends_the_call_there_and_leaves_it_usable():
    log, wrong = [], [True]

    def second(a):
        if wrong[0]:
            raise ValueError("second")

    @hlo_disc.jit
    def f(x):
        io_callback(lambda a: log.append(1), None, x, ordered=True)
        io_callback(second, None, x, ordered=True)
        io_callback(lambda a: log.append(3), None, x, ordered=True)
        return x

    with pytest.raises(CallError, match="second"):
        f(jnp.ones(2))
    wrong[0] = False
    f(jnp.ones(2))
    assert log == [1, 1, 3] and f.stats().calls == 1


def test_what_is_no_error_passes():
    def interrupt(a):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hlo_disc.jit(lambda x: jax.pure_callback(interrupt, like(x), x))(jnp.ones(2))


def test_functions_go_when_the_program_goes():
    def made():
        class Weighs:
            pass

        held = Weighs()

        def f(x):
            # The function calls what it was compiled for: a circle through machine code.
            jax.debug.callback(lambda a: (held, f.circle), x)
            return jax.pure_callback(lambda a: (held, np.asarray(a))[1], like(x), x)

        f.circle = jitted = hlo_disc.jit(f)
        jitted(jnp.ones(2))
        jitted(jnp.ones(3))
        return weakref.ref(held), jitted

    alive, jitted = made()
    gc.collect()
    assert alive() is not None
    jitted(jnp.ones(5))
    del jitted
    jax.clear_caches()
    gc.collect()
    assert alive() is None


def test_functions_call_programs_and_jax():
    double = hlo_disc.jit(lambda x: x * 2 + jnp.sort(x)[0])

    @hlo_disc.jit
    def f(x, deep=0):
        y = jax.pure_callback(lambda a: double(a), like(x), x)
        z = jax.pure_callback(lambda a: jax.jit(jnp.sin)(a) + f_of_two(a), like(x), y)
        return z.sum()

    f_of_two = hlo_disc.jit(lambda x: jax.pure_callback(lambda a: double(a) + 1, like(x), x))
    for n in (3, 5, 200_000):
        x = jnp.ones(n)
        y = 3 * x
        np.testing.assert_allclose(f(x), (jnp.sin(y) + 3 * y + 1).sum(), rtol=1e-5)
        np.testing.assert_allclose(jax.jit(f)(x), (jnp.sin(y) + 3 * y + 1).sum(), rtol=1e-5)


def test_many_threads():
    log = []
    f = hlo_disc.jit(lambda x: jax.pure_callback(lambda a: (log.append(len(a)), a * 2)[1], like(x), x + 1).sum())
    in_jit = jax.jit(f)

    def call(k):
        n = 1 + k % 7
        return float((in_jit if k % 10 == 0 else f)(jnp.full(n, float(k)))) == 2 * n * (k + 1)

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(call, range(300)))
    assert len(log) == 300


def test_inside_jax():
    """A callback without effects is compiled by us. One with effects is part of what JAX traces, which orders it."""
    f = hlo_disc.jit(lambda x: jax.vmap(sine)(x * x).sum())
    x = jnp.arange(1.0, 5)
    expected = jax.grad(lambda x: jnp.sin(x * x).sum())(x)
    for gradient in (jax.grad(f), jax.jit(jax.grad(f)), hlo_disc.jit(jax.grad(f))):
        np.testing.assert_allclose(gradient(x), expected, rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(f)(x[None]), jnp.sin(x * x).sum()[None], rtol=1e-6)
    np.testing.assert_allclose(jax.lax.map(f, jnp.stack([x, x]))[1], jnp.sin(x * x).sum(), rtol=1e-6)
    assert f.stats().compilations == 4 and not f.stats().fallbacks  # two for the gradient


def test_effects_inside_jax():
    log = []

    def noisy(x):
        jax.debug.callback(lambda a: log.append(float(a)), x, ordered=True)
        return x * 2

    f = hlo_disc.jit(noisy)

    def both(of):
        def g(x):
            jax.debug.callback(lambda a: log.append("before"), x, ordered=True)
            y = jax.lax.scan(lambda c, _: (of(c), None), x, length=3)[0]
            jax.debug.callback(lambda a: log.append("after"), x, ordered=True)
            return of(y)

        return g

    with pytest.warns(FallbackWarning, match="has the effects OrderedDebug"):
        assert jax.jit(both(f))(jnp.float32(1)) == 16
    jax.effects_barrier()
    assert log == ["before", 1, 2, 4, "after", 8]
    log.clear()
    assert jax.grad(f)(jnp.float32(3)) == 2 and log == [3]
    jax.effects_barrier()
    assert log == [3]


def test_a_program_called_while_jax_traces_runs_now():
    """A program whose arrays are known runs at once, though JAX traces. Arrays that the function makes are known."""
    f = hlo_disc.jit(lambda x: jax.pure_callback(lambda a: jnp.asarray(a) + jnp.ones(2), like(x), x))
    constant = jnp.ones(2)
    assert jax.jit(lambda x: x + f(constant).sum())(1.0) == 5


def test_cannot_be_saved(tmp_path):
    exe = hlo_disc.compile(pure([]), "f32[n]")
    assert exe(np.ones(2, np.float32)).tolist() == [3, 3]
    with pytest.raises(UnsupportedOpError, match=r"pure_callback at .*test_callbacks.py:.*cannot be saved"):
        exe.save(tmp_path / "x.disc")
    assert not (tmp_path / "x.disc").exists()
    with pytest.raises(UnsupportedOpError, match="cannot be saved"):
        pickle.dumps(exe)
    text = hlo_disc.jit(pure([])).lower(jnp.ones(2)).as_text()
    assert "@hlo_disc.callback" in text
    with pytest.raises(UnsupportedOpError, match="calls a Python function of the process that made the module"):
        hlo_disc.compile(text)


def test_programs_that_call_other_functions_have_other_contents():
    one, other = (hlo_disc.compile(pure([]), "f32[3]") for _ in range(2))
    assert one.content != other.content and one.content == one.content


def test_a_size_that_a_function_reads_has_to_be_known():
    with pytest.raises(UnsupportedOpError, match="reads the size n: pass it as an argument"):
        hlo_disc.compile(size_from_outside([]), "f32[n]")
