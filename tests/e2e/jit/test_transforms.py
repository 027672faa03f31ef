"""JAX's transformations of compiled functions: values, types and how many programs they need."""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import depth
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, tree_util
from surface.compositions import attention, convolution, cross_entropy, layer_norm, lstm, strided_convolution

import hlo_disc
from hlo_disc.errors import FallbackWarning, ShapeError
from hlo_disc.import_.handlers import HANDLERS

RNG = np.random.default_rng(0)
SIZES = (5, 7, 1, 2, 8) if depth.full else (5, 7, 1)


def floats(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.standard_normal(shape), jnp.float32)


def integers(below: int, *shape: int) -> jax.Array:
    return jnp.asarray(RNG.integers(0, below, shape), jnp.int32)


@jax.custom_vjp
def own_vjp(x):
    return jnp.sin(x)


own_vjp.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (2 * ct * jnp.cos(x),))


@jax.custom_jvp
def own_jvp(x):
    return jnp.sin(x)


own_jvp.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), 3 * tangents[0] * jnp.cos(primals[0])))

Row = tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]
FUNCTIONS: dict[str, Row] = {
    "sin": (jnp.sin, lambda n: (floats(n),)),
    "mlp": (lambda x, w, v: jax.nn.gelu(x @ w) @ v, lambda n: (floats(n, 4), floats(4, 8), floats(8, 3))),
    "layer norm": (layer_norm, lambda n: (floats(n, 8), floats(8), floats(8))),
    "softmax": (jax.nn.softmax, lambda n: (floats(3, n),)),
    "attention": (attention, lambda n: (floats(2, n, 16), floats(2, n, 16), floats(2, n, 16))),
    "lstm": (lstm, lambda n: (floats(n, 3), floats(3, 16), floats(4, 16))),
    "cross entropy": (cross_entropy, lambda n: (floats(n, 5), integers(5, n))),
    "embedding": (lambda e, i: jnp.tanh(e[i]), lambda n: (floats(10, 4), integers(10, n))),
    "convolution": (convolution, lambda n: (floats(2, n, n, 3), floats(3, 3, 3, 4))),
    "cumsum": (lambda x: jnp.cumsum(x * x), lambda n: (floats(n),)),
    "sort": (lambda x: jnp.sort(x) * jnp.arange(x.shape[0]), lambda n: (floats(n),)),
    "max": (lambda x: x.max(0), lambda n: (floats(n, 3),)),
    "pytrees": (
        lambda d: {"y": d["a"] * d["b"], "z": (d["a"].sum(), d["n"])},
        lambda n: ({"a": floats(n), "b": floats(n), "n": integers(5, n)},),
    ),
    "loop": (lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) * x, x), lambda n: (floats(n),)),
    "cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), lambda n: (floats(n),)),
    "checkpoint": (jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))), lambda n: (floats(n),)),
    "own vjp": (lambda x: own_vjp(x) * x, lambda n: (floats(n),)),
    "own jvp": (lambda x: own_jvp(x) * x, lambda n: (floats(n),)),
    "fft": (lambda x: jnp.abs(jnp.fft.fft(x)) ** 2, lambda n: (floats(n),)),
    "complex": (lambda x: x * x.conj() * (1 + 2j), lambda n: (floats(n) + 1j * floats(n),)),
    "random key": (lambda key, x: (x * jax.random.normal(key, x.shape), key), lambda n: (jax.random.key(n), floats(n))),
    "segment sum": (lambda x, i: jax.ops.segment_sum(x, i, 4), lambda n: (floats(n, 2), integers(4, n))),
    "number": (lambda x, s: x * s, lambda n: (floats(n), 2.0)),
    "integers too": (lambda x: (x.sum(), jnp.argmax(x)), lambda n: (floats(n),)),
    "arguments as results": (lambda x, y: (x, y * 2), lambda n: (floats(n), floats(n))),
    "constant": (lambda x: jnp.ones(3), lambda n: (floats(n),)),
}
SMALL = ("sin", "mlp", "softmax", "lstm", "embedding", "pytrees", "complex", "random key", "number")


def is_float(x: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(x), jnp.inexact)


def direction(x: Any) -> np.ndarray:
    """Return a tangent or cotangent of an array."""
    if not is_float(x):
        return np.zeros(jnp.shape(x), jax.dtypes.float0)
    return np.cos(np.arange(jnp.size(x))).reshape(jnp.shape(x)).astype(jnp.result_type(x))


def assert_same(found: Any, wanted: Any) -> None:
    """Check structure, types, dtypes, shapes and weak types, and that values are equal but for rounding."""
    left, right = tree_util.tree_flatten(found), tree_util.tree_flatten(wanted)
    assert left[1] == right[1]
    for a, b in zip(left[0], right[0], strict=True):
        assert (a.dtype, a.shape, type(a)) == (b.dtype, b.shape, type(b))
        assert getattr(a, "weak_type", False) == getattr(b, "weak_type", False)
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        if a.dtype != jax.dtypes.float0:
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * max(1, np.abs(b).max(initial=0)))


@pytest.fixture(autouse=True)
def no_fallback_and_one_seed():
    global RNG
    RNG = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        yield


def most_of_one(compiled: Any) -> int:
    """Return the number of compilations of the program that has the most."""
    return max(Counter((record.of, record.backward) for record in compiled.stats().records).values())


@depth.sampled(2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_vjp(name: str) -> None:
    fn, make = FUNCTIONS[name]
    compiled = hlo_disc.jit(fn)

    def both(arguments: Any, cotangents: Any) -> Any:
        results, pull = jax.vjp(fn, *arguments)
        return results, pull(cotangents)

    for n in SIZES:
        arguments = make(n)
        results, pull = jax.vjp(compiled, *arguments)
        cotangents = tree_util.tree_map(direction, results)
        assert_same((results, pull(cotangents)), jax.jit(both)(arguments, cotangents))
    # One for the first sizes, one for all; some differ at one element.
    assert most_of_one(compiled) <= 2 + (name in ("cross entropy", "sort", "segment sum"))


def test_gradients_of_strided_convolutions_and_of_nothing() -> None:
    """A gradient's padding follows from sizes. JAX leaves it out where there is nothing."""
    compiled = hlo_disc.jit(strided_convolution)
    for n in (7, 32, 1, 0, 12):
        arguments = floats(2, n, 3), floats(3, 3, 4)
        results, pull = jax.vjp(compiled, *arguments)
        wanted, of_jax = jax.vjp(strided_convolution, *arguments)
        assert_same((results, pull(jnp.cos(wanted))), (wanted, of_jax(jnp.cos(wanted))))
    assert most_of_one(compiled) == 2


def test_a_size_that_only_the_whole_program_knows_is_a_number() -> None:
    """One element has one frequency, and no element has no transform. So one frequency means one element."""
    compiled = hlo_disc.jit(jnp.fft.rfft)
    for n in (7, 32, 1, 31):
        x = floats(n)
        wanted, of_jax = jax.vjp(jnp.fft.rfft, x)
        assert_same(jax.vjp(compiled, x)[1](wanted), of_jax(wanted))


@depth.sampled(2)
@pytest.mark.parametrize("name", SMALL)
def test_jvp_and_vmap(name: str) -> None:
    fn, make = FUNCTIONS[name]
    compiled = hlo_disc.jit(fn)
    for n in (5, 7, 4):
        arguments = make(n)
        moved = tree_util.tree_map(direction, arguments)
        assert_same(jax.jvp(compiled, arguments, moved), jax.jit(lambda a, t: jax.jvp(fn, a, t))(arguments, moved))
        stacked = tree_util.tree_map(lambda x: jnp.stack([jnp.asarray(x)] * 3), arguments)
        assert_same(jax.vmap(compiled)(*stacked), jax.jit(jax.vmap(fn))(*stacked))
    assert most_of_one(compiled) <= 2


def tanh_sum(x, w):
    return jnp.tanh(x @ w).sum()


NESTED: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "grad": lambda f: jax.grad(f, (0, 1)),
    "value and grad": jax.value_and_grad,
    "jit of grad": lambda f: jax.jit(jax.grad(f, 1)),
    "grad of jit": lambda f: jax.grad(jax.jit(f)),
    "grad of checkpoint": lambda f: jax.grad(jax.checkpoint(f)),
    "vmap, one batched": lambda f: lambda x, w: jax.vmap(f, (0, None))(x[:, None], w),
    "vmap, last axis": lambda f: lambda x, w: jax.vmap(f, (None, 2))(x, jnp.stack([w, w * 2], 2)),
    "vmap of vmap": lambda f: lambda x, w: jax.vmap(jax.vmap(f, (0, None)), (None, 0))(x[:, None], jnp.stack([w, -w])),
    "vmap of grad": lambda f: lambda x, w: jax.vmap(jax.grad(f), (0, None))(x[:, None], w),
    "vmap of jit of grad": lambda f: lambda x, w: jax.vmap(jax.jit(jax.grad(f)), (0, None))(x[:, None], w),
    "grad of vmap": lambda f: jax.grad(lambda x, w: jax.vmap(f, (0, None))(x[:, None], w).sum()),
    "grad of grad": lambda f: jax.grad(lambda x, w: (jax.grad(f)(x, w) ** 2).sum(), (0, 1)),
    "forward over reverse": lambda f: jax.jacfwd(jax.grad(f)),
    "reverse over forward": lambda f: lambda x, w: jax.grad(lambda x: jax.jvp(f, (x, w), (x, w))[1])(x),
    "reverse over reverse": lambda f: jax.jacrev(jax.grad(f)),
    "hessian": jax.hessian,
    "linearize": lambda f: lambda x, w: jax.linearize(f, x, w)[1](x, w),
    "transpose of linearize": lambda f: lambda x, w: jax.linear_transpose(jax.linearize(f, x, w)[1], x, w)(1.0),
    "vmap of linearize": lambda f: lambda x, w: jax.vmap(jax.linearize(f, x, w)[1])(jnp.stack([x]), jnp.stack([w])),
    "scan": lambda f: lambda x, w: lax.scan(lambda c, row: (c + f(row[None], w),) * 2, 0.0, x),
    "grad of scan": lambda f: jax.grad(
        lambda x, w: lax.scan(lambda c, r: (c * f(r[None], w), None), 1.0, x)[0], (0, 1)
    ),
    "vmap of grad of scan": lambda f: (
        lambda x, w: jax.vmap(
            jax.grad(lambda x, w: lax.scan(lambda c, r: (c * f(r[None], w), None), 1.0, x)[0]), (None, 0)
        )(x, jnp.stack([w, w / 2]))
    ),
    "while": lambda f: lambda x, w: lax.while_loop(lambda c: c < 9.0, lambda c: c + 1 + f(x, w) ** 2, 0.0),
    "cond": lambda f: lambda x, w: lax.cond(x[0, 0] > 0, f, lambda x, w: -f(x, w), x, w),
    "grad of cond": lambda f: jax.grad(lambda x, w: lax.cond(x[0, 0] > 0, f, lambda x, w: -f(x, w), x, w)),
    "custom vjp around": lambda f: jax.grad(_around(f)),
    "one result of many": lambda f: jax.grad(lambda x, w: (x * f(x, w))[0, 0]),
}


def _around(f):
    @jax.custom_vjp
    def g(x, w):
        return f(x, w)

    g.defvjp(lambda x, w: (f(x, w), (x, w)), lambda kept, ct: jax.vjp(f, *kept)[1](2 * ct))
    return g


@depth.sampled(2)
@pytest.mark.parametrize("name", NESTED)
def test_nested(name: str) -> None:
    compiled = hlo_disc.jit(tanh_sum)
    for n in (3, 2):
        x, w = floats(n, n), floats(n, 4)
        assert_same(NESTED[name](compiled)(x, w), jax.jit(NESTED[name](tanh_sum))(x, w))


def test_nothing_is_compiled_before_it_runs() -> None:
    compiled = hlo_disc.jit(tanh_sum)
    x, w = floats(3, 4), floats(4, 2)
    assert jax.eval_shape(compiled, x, w).shape == ()
    assert "hlo_disc_call" in str(jax.make_jaxpr(compiled)(x, w))
    assert compiled.stats().compilations == 0
    jax.eval_shape(jax.jit(compiled), x, w)
    assert compiled.stats().compilations == 0


def test_inside_another_and_inside_jit() -> None:
    inner = hlo_disc.jit(tanh_sum)
    outer = hlo_disc.jit(lambda x, w: jax.grad(inner)(x, w) * inner(x, w))
    for n in (3, 5):
        x, w = floats(n, 4), floats(4, 2)
        assert_same(outer(x, w), jax.jit(lambda x, w: jax.grad(tanh_sum)(x, w) * tanh_sum(x, w))(x, w))
    assert inner.stats().compilations == 0  # its code is part of the other's


VMAPPED: dict[str, Row] = {
    "softmax": (jax.vmap(jax.nn.softmax), lambda n: (floats(n, 4),)),
    "max": (lambda x, w: jax.vmap(lambda r: jnp.exp(r - r.max()))(x @ w) @ w, lambda n: (floats(n, 4), floats(4, 4))),
    "argmax": (lambda x: x[jnp.arange(x.shape[0]), jax.vmap(jnp.argmax)(x)], lambda n: (floats(n, 4),)),
    "attention": (
        jax.vmap(jax.nn.dot_product_attention),
        lambda n: (floats(2, n, 2, 8), floats(2, n, 2, 8), floats(2, n, 2, 8)),
    ),
    "of a named axis": (
        lambda x, w: jax.vmap(lambda r: lax.psum(r @ w, "b") + r.max(), axis_name="b")(x) @ w,
        lambda n: (floats(n, 4), floats(4, 4)),
    ),
}


@pytest.mark.parametrize("name", VMAPPED)
def test_a_vmapped_reduction_is_no_collective(name: str) -> None:
    """A vmapped reduction has numpy's integers as axes, and the function stays whole."""
    fn, make = VMAPPED[name]
    compiled = hlo_disc.jit(fn)

    def slopes(f: Callable[..., Any]) -> Callable[..., Any]:
        return jax.grad(lambda *a: f(*a).sum(), tuple(range(len(make(1)))))

    def twice(f: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(lambda *a: f(*a) * 2)

    for n in (5, 7, 8):
        arguments = make(n)
        assert_same(slopes(compiled)(*arguments), jax.jit(slopes(fn))(*arguments))
        assert_same(twice(compiled)(*arguments), twice(fn)(*arguments))
    # Forward, backward and inside of jit: for the first sizes, and for all.
    assert compiled.stats().compilations == 6


def test_an_export_has_the_function_itself() -> None:
    compiled = hlo_disc.jit(tanh_sum)
    x, w = floats(3, 4), floats(4, 2)
    for fn in (compiled, jax.grad(compiled), jax.vmap(compiled, (0, None))):
        at = (jnp.stack([x, x]), w) if fn is not compiled and "grad" not in fn.__name__ else (x, w)
        exported = jax.export.export(jax.jit(fn))(*at)
        assert "@hlo_disc" not in exported.mlir_module()
        np.testing.assert_allclose(exported.call(*at), fn(*at), rtol=1e-4, atol=1e-6)
    (n,) = jax.export.symbolic_shape("n")
    symbolic = jax.export.export(jax.jit(compiled))(jax.ShapeDtypeStruct((n, 4), x.dtype), w)
    np.testing.assert_allclose(symbolic.call(x, w), compiled(x, w), rtol=1e-5, atol=1e-6)


def test_a_value_from_outside_is_differentiated_too() -> None:
    def outer(y, wrap):
        return wrap(lambda x: jnp.sin(x * y).sum())(floats(3) * 0 + 1)

    with pytest.warns(FallbackWarning, match="reads a value from outside"):
        found = jax.grad(lambda y: outer(y, hlo_disc.jit))(2.0)
    assert_same(found, jax.grad(lambda y: outer(y, jax.jit))(2.0))


def test_what_has_no_derivative_of_ours() -> None:
    @hlo_disc.jit
    def chatty(x):
        jax.debug.print("{}", x.sum())
        return jnp.sin(x)

    x = floats(3)
    with pytest.warns(FallbackWarning, match="effects"):
        assert_same(jax.vjp(chatty, x)[1](x)[0], x * jnp.cos(x))


def test_a_custom_vjp_is_differentiated_twice_as_in_jax() -> None:
    """A second derivative differentiates the forward rule, not the function: the value's is that of `round`."""

    @jax.custom_vjp
    def straight(x):
        return jnp.round(x)

    straight.defvjp(lambda x: (jnp.round(x) + x * 0.5, x), lambda x, ct: (ct * x,))
    compiled = hlo_disc.jit(lambda x: (straight(x) * x).sum())
    ways = (jax.hessian, lambda f: jax.grad(lambda x: jax.value_and_grad(f)(x)[0]))
    with pytest.warns(FallbackWarning, match="differentiated twice"):
        for way in ways:
            x = floats(3)
            assert_same(way(compiled)(x), jax.jit(way(lambda x: (straight(x) * x).sum()))(x))


def test_what_cannot_be_compiled_with_its_derivatives(monkeypatch) -> None:
    monkeypatch.delitem(HANDLERS, "stablehlo.popcnt")

    def fn(x, k):
        marked = jax.lax.population_count(k)
        return jnp.sin(x) * marked, marked

    x = floats(3)
    compiled = hlo_disc.jit(fn)
    with pytest.warns(FallbackWarning, match="stablehlo.popcnt"):
        results, pull = jax.vjp(compiled, x, 2)
    wanted, of_jax = jax.vjp(fn, x, 2)
    assert_same(results, wanted)
    cotangents = tree_util.tree_map(direction, results)
    assert_same(pull(cotangents), of_jax(cotangents))


def test_dims_and_constraints_of_the_user() -> None:
    compiled = hlo_disc.jit(tanh_sum, dims={"x": "(n, ...)"}, constraints="n <= 6")
    for n in (5, 3, 6):
        x, w = floats(n, 4), floats(4, 2)
        assert_same(jax.grad(compiled)(x, w), jax.jit(jax.grad(tanh_sum))(x, w))
        assert_same(jax.vmap(compiled, (1, None))(x[:, None], w), jax.vmap(tanh_sum, (1, None))(x[:, None], w))
        assert_same(jax.jvp(compiled, (x, w), (x, w)), jax.jvp(tanh_sum, (x, w), (x, w)))
    assert Counter(record.of for record in compiled.stats().records) == {
        "grad(tanh_sum)": 3,  # two masks, of one of which nobody wanted the backward program
        "jvp(tanh_sum)": 1,
        "vmap(tanh_sum)": 1,
    }
    with pytest.raises(ShapeError, match="n <= 6"):
        jax.grad(compiled)(floats(7, 4), floats(4, 2))


def test_what_derivatives_took_is_told() -> None:
    compiled = hlo_disc.jit(tanh_sum)
    x, w = floats(3, 4), floats(4, 2)
    compiled(x, w)
    jax.grad(compiled)(x, w)
    jax.jit(jax.grad(compiled))(x, w)
    jax.jvp(compiled, (x, w), (x, w))
    stats = compiled.stats()
    assert (stats.calls, stats.calls_in_jit, stats.backward_calls) == (4, 1, 2)
    of = [(record.of, record.backward) for record in stats.records]
    assert of[:3] == [("", False), ("grad(tanh_sum)", False), ("grad(tanh_sum)", True)]
    assert ": grad(tanh_sum), backward: first call" in str(stats)
    shown = compiled.explain(full=True)
    assert shown.count("program jit_") == len(of) == stats.compilations
    assert "input   cotangent 0: float32[]" in shown


def test_questions_about_sizes_in_derivatives() -> None:
    def fn(x):
        return x**2 if x.shape[0] == 1 else x**3

    compiled = hlo_disc.jit(fn)
    for n in (5, 7, 1, 3, 1, 2):
        x = floats(n)
        assert_same(jax.vjp(compiled, x)[1](x), jax.vjp(fn, x)[1](x))
        assert_same(jax.vmap(compiled)(x[None]), jax.vmap(fn)(x[None]))


def test_other_settings_than_at_the_trace() -> None:
    compiled = hlo_disc.jit(lambda x: x * np.pi)
    with jax.enable_x64(True):
        jaxpr = jax.make_jaxpr(compiled)(np.ones(3))
    x = np.ones(3, np.float64)
    with jax.enable_x64(True):
        assert_same(jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x)[0], jnp.full(3, np.pi, jnp.float64))
        assert_same(jax.grad(lambda x: compiled(x).sum())(jnp.ones(3)), jnp.full(3, np.pi, jnp.float64))
    assert_same(jax.grad(lambda x: compiled(x).sum())(jnp.ones(3)), jnp.full(3, np.pi, jnp.float32))


def test_a_jaxpr_that_runs_under_other_settings() -> None:
    compiled = hlo_disc.jit(lambda k: k * np.pi)
    k = np.arange(3, dtype=np.int32)
    with jax.enable_x64(True):
        jaxpr = jax.make_jaxpr(compiled)(k)
    with pytest.warns(FallbackWarning, match="settings are others than"):
        jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, k)
    with jax.enable_x64(True):
        assert compiled(jnp.asarray(k)).dtype == np.float64
        np.testing.assert_array_equal(compiled(jnp.asarray(k)), k * np.pi)


def test_training() -> None:
    """A step differentiated through the call gives the losses of JAX's, at lengths that change."""

    def loss(params, x, y):
        hidden = jax.nn.relu(x @ params["w"] + params["b"])
        return ((hidden @ params["v"] - y) ** 2).mean()

    def train(loss: Callable[..., Any]) -> list[float]:
        rng = np.random.default_rng(1)
        params = {"w": jnp.asarray(rng.normal(size=(4, 8)), jnp.float32), "b": jnp.zeros(8), "v": jnp.ones((8, 1))}
        found = []
        for n in (3, 9, 5, 17, 1, 8):
            x = jnp.asarray(rng.normal(size=(n, 4)), jnp.float32)
            value, gradients = jax.value_and_grad(loss)(params, x, x.sum(1, keepdims=True))
            params = jax.tree.map(lambda p, g: p - 0.01 * g, params, gradients)
            found.append(float(value))
        return found

    compiled = hlo_disc.jit(loss)
    np.testing.assert_allclose(train(compiled), train(jax.jit(loss)), rtol=1e-4)
    assert most_of_one(compiled) == 2


def test_threads() -> None:
    compiled = hlo_disc.jit(tanh_sum)
    failed: list[Exception] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for n in rng.integers(1, 9, 6):
                x, w = jnp.asarray(rng.normal(size=(n, 4)), jnp.float32), jnp.ones((4, 2))
                assert_same(jax.grad(compiled)(x, w), jax.jit(jax.grad(tanh_sum))(x, w))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
