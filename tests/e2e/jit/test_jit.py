"""hlo_disc.jit: what is compiled when, what is found by itself, and what calls look like from the user's side.

`backend` stands in for the compiler where a test is about jit's own decisions: it runs the traced function in JAX at
the call's sizes, and refuses calls as a compiled program does.
"""

from __future__ import annotations

import functools
import logging
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlo_disc
from hlo_disc.errors import ArgumentError, ShapeError
from hlo_disc.jitted import flat as jit_module
from hlo_disc.tracing.generalise import changes, generalise
from hlo_disc.tracing.trace import Traced
from hlo_disc.tracing.values import Result


class Native:
    """Stands in for the runtime's executable: runs, and counts the calls that came back."""

    def __init__(self, run):
        self.run = run
        self.count = SimpleNamespace(value=0, in_jit=0)

    def set_weak(self, inputs, outputs):
        pass

    def __call__(self, *leaves):
        results = self.run(*leaves)
        with lock:
            self.count.value += 1
        return results


lock = threading.Lock()


class Backend:
    """Compiles nothing: a `trace` that keeps the function, a `build` that makes a callable with a program's checks."""

    def __init__(self):
        self.traces = []

    def trace(self, fn, tree, leaves, dims, names, constraints):
        specs = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.weak) for leaf in leaves]
        args, kwargs = tree.unflatten(specs)
        out = jax.eval_shape(lambda a, k: fn(*a, **k), args, kwargs)
        self.traces.append(dims)
        dtypes = [x.dtype for x in jax.tree.leaves(out)]
        graph = SimpleNamespace(fn=fn, tree=tree, leaves=leaves, dims=dims, names=names, dtypes=dtypes)
        results = tuple(Result(x.dtype, x.weak_type) for x in jax.tree.leaves(out))
        return Traced(graph, jax.tree.structure(out), results, dims)

    def build(self, source, options, sizes):
        graph = source() if callable(source) else source
        native = Native(lambda *leaves: self.run(graph, leaves))
        program = SimpleNamespace(compile_ms={"read": 1.0})
        return SimpleNamespace(
            native=native,
            linked=program,
            program=program,
            tally=None,
            first_call=nullcontext,
            explain=lambda: f"program for {graph.dims}",
        )

    @staticmethod
    def run(graph, leaves):
        values = {}
        for name, dims, was, leaf in zip(graph.names, graph.dims, graph.leaves, leaves, strict=True):
            if leaf.dtype != was.dtype:
                raise ArgumentError(f"{name} is {leaf.dtype}, must be {was.dtype}")
            if leaf.ndim != len(was.shape):
                raise ArgumentError(f"{name} has rank {leaf.ndim}")
            for dim, old, new in zip(dims, was.shape, leaf.shape, strict=True):
                if (old if dim is None else values.setdefault(dim, new)) != new:
                    raise ShapeError(f"{name} is {leaf.shape}, not {dims}")
        args, kwargs = graph.tree.unflatten(leaves)
        outs = jax.tree.leaves(graph.fn(*args, **kwargs))
        outs = [x.astype(dtype) for x, dtype in zip(outs, graph.dtypes, strict=True)]
        return tuple(map(np.asarray, outs)) if not any(isinstance(x, jax.Array) for x in leaves) else tuple(outs)


@pytest.fixture
def backend(monkeypatch):
    fake = Backend()
    monkeypatch.setattr(jit_module, "trace_call", fake.trace)
    monkeypatch.setattr(jit_module, "build", fake.build)
    monkeypatch.setattr(jit_module, "repeated", lambda executable, weak: executable.native)
    return fake


def ones(*shape, dtype=jnp.float32):
    return jnp.ones(shape, dtype)


# ------------------------------------------------------------------------------------------ dims found by itself


def test_first_call_is_compiled_for_its_sizes_and_the_second_for_all(backend):
    f = hlo_disc.jit(lambda x: x + 1)
    for size in (3, 5, 0, 1, 7, 257):
        np.testing.assert_array_equal(f(ones(size, 4)), np.full((size, 4), 2, np.float32))
    assert backend.traces == [((None, None),), (("d0", None),)]
    stats = f.stats()
    assert (stats.calls, stats.compilations) == (6, 2)
    assert [r.reason for r in stats.records] == ["first call", "x.shape[0] was always 3 and is now 5"]
    assert stats.records[1].arguments == ("x: float32[d0, 4]",)
    assert stats.compile_seconds > 0


def test_dims_that_change_together_share_a_symbol(backend):
    f = hlo_disc.jit(lambda x, y: x + y[:, None])
    f(ones(2, 2), ones(2))
    f(ones(5, 2), ones(5))
    assert backend.traces[-1] == (("d0", None), ("d0",))
    f(ones(9, 2), ones(9))
    assert f.stats().compilations == 2


def test_a_broken_assumption_compiles_again_and_says_why(backend, caplog):
    f = hlo_disc.jit(lambda x, y: (x.sum(), y.sum()))
    f(ones(2), ones(2))
    f(ones(5), ones(5))
    with caplog.at_level(logging.INFO, logger="hlo_disc"):
        f(ones(6), ones(7))
    assert backend.traces[-1] == (("d0",), ("d1",))
    assert "x.shape[0] and y.shape[0] were always equal and are now 6 and 7" in caplog.text
    f(ones(1), ones(0))
    assert f.stats().compilations == 3


def test_an_argument_that_changes_twice_is_free():
    f = hlo_disc.jit(lambda x, w: jnp.tanh(x) + w.sum())
    for shape in ((2, 3, 8), (4, 3, 8), (4, 5, 8), (2, 2, 7), (5, 4, 3)):
        assert f(ones(*shape), ones(8)).shape == shape
    assert [r.arguments[0] for r in f.stats().records] == [
        "x: float32[2, 3, 8]",
        "x: float32[d0, 3, 8]",
        "x: float32[d0, d1, d2]",
    ]


def test_two_sizes_that_change_at_once_say_nothing_of_others():
    assert generalise([((2, 3, 8),), ((4, 5, 8),)]) == (("d0", "d1", None),)


def test_a_free_size_that_has_to_be_one_number_costs_nothing_more():
    traced = []

    def fn(x, w):
        traced.append(x.shape)
        return x @ w

    f = hlo_disc.jit(fn)
    for shape in ((2, 3, 8), (4, 3, 8), (4, 5, 8), (7, 9, 8)):
        assert f(ones(*shape), ones(8, 4)).shape == (*shape[:2], 4)
    assert f.stats().compilations == 3 and f.stats().records[-1].arguments[0] == "x: float32[d0, d1, 8]"
    assert len(traced) == 4  # the last program twice: the size was asked for


def test_static_arguments_share_what_is_known_of_sizes():
    f = hlo_disc.jit(lambda x, n: x * n, static_argnames="n")
    for size, n in ((2, 3), (4, 3), (4, 5), (7, 5), (1, 9), (6, 9), (3, 3)):
        assert f(ones(size), n).tolist() == [n] * size
    assert [r.arguments for r in f.stats().records] == [("x: float32[2]",)] + [("x: float32[d0]",)] * 3


sizes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6)


@given(sizes)
def test_found_dims_serve_every_call_seen(calls):
    history = [((a, b), (c,)) for a, b, c in calls]
    dims = generalise(history)
    assert not [change for call in history for change in changes("xy", dims, history[-1], call)]
    assert generalise([*history, history[0]]) == dims  # a call that is served changes nothing


@given(sizes)
def test_a_call_that_does_not_fit_changes_the_dims(calls):
    *seen, last = [((a, b), (c,)) for a, b, c in calls]
    if seen:
        dims = generalise(seen)
        assert bool(list(changes("xy", dims, seen[-1], last))) == (generalise([*seen, last]) != dims)


# ----------------------------------------------------------------------------------------------- dims by the user


def test_given_dims_compile_once(backend):
    f = hlo_disc.jit(lambda w, x: x @ w, dims={"x": "(b, _)"})
    for size in (4, 1, 0, 9):
        assert f(ones(3, 2), ones(size, 3)).shape == (size, 2)
    assert backend.traces == [((None, None), ("b", None))]


def test_a_size_that_breaks_the_dims_is_an_error_and_not_a_compilation(backend):
    f = hlo_disc.jit(lambda a, b: a.sum() + b.sum(), dims={"a": "(b, s)", "b": "(b, s)"})
    f(ones(2, 3), ones(2, 3))
    with pytest.raises(ShapeError):
        f(ones(2, 3), ones(2, 4))
    assert f(ones(1, 7), ones(1, 7)) == 14
    assert f.stats().compilations == 1


def test_other_static_sizes_are_another_program(backend):
    f = hlo_disc.jit(lambda w, x: x @ w, dims={"x": "(b, _)"})
    f(ones(3, 2), ones(4, 3))
    f(ones(5, 2), ones(4, 5))
    f(ones(3, 2), ones(8, 3))
    assert f.stats().compilations == 2
    assert "w.shape[0] was always 3 and is now 5" in f.stats().records[1].reason


def test_dims_of_pytrees_rest_and_keywords(backend):
    def f(params, *xs, scale):
        return params["a"].sum() + sum(x.sum() for x in xs) + scale.sum()

    g = hlo_disc.jit(f, dims={"params": {"a": "(n, _)", "b": None}, "xs": ["(m)", "(k, ...)"], "scale": "s,"})
    g({"a": ones(2, 3), "b": ones(1)}, ones(4), ones(5, 6, 7), scale=ones(8))
    assert backend.traces == [(("n", None), (None,), ("m",), ("k", None, None), ("s",))]


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"y": "(b)"}, "dims names 'y'.*parameters x"),
        ({"x": "(b)"}, "has 1 dims.*2"),
        ({"x": {"k": "(b, s)"}}, "does not fit"),
    ],
)
def test_dims_that_do_not_fit(backend, dims, message):
    with pytest.raises(ArgumentError, match=message):
        hlo_disc.jit(lambda x: x, dims=dims)(ones(2, 2))


# ------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize("dims", ["(n)", ["(n)"], ("(n)",)])
def test_dims_are_a_mapping(backend, dims):
    with pytest.raises(
        ArgumentError, match=r"dims is .*\(n\)'.*must map the parameters of .* to shape strings, as in dims={'x': '"
    ):
        hlo_disc.jit(lambda x: x, dims=dims)


def test_one_constraint_is_a_string():
    f = hlo_disc.jit(lambda x: x + 1, dims={"x": "(n)"}, constraints="n <= 4")
    assert f(ones(4)).tolist() == [2] * 4
    with pytest.raises(ShapeError, match="n <= 4"):
        f(ones(5))
    with pytest.raises(ArgumentError, match="constraints=.*4.*: pass a string"):
        hlo_disc.jit(lambda x: x, dims={"x": "(n)"}, constraints=["n <= 4", 4])


@pytest.mark.parametrize(
    ("constraints", "n", "wrong"),
    [
        ("n == 5", 5, 4),
        (["n >= 5", "n <= 5"], 5, 6),
        ("2*n == 10", 5, 4),
        (["m == n", "m == 5"], 5, 4),
        ("n <= 0", 0, 1),
    ],
    ids=str,
)
def test_a_constraint_that_leaves_one_size(constraints, n, wrong):
    """The function is traced at that number, for it may have to know it."""

    def fn(x, y):
        return x + jnp.arange(float(n)), jnp.where(y > 0, y, 3), [*range(x.shape[0])], x.sum()

    wanted = jax.jit(fn)(ones(n), ones(n))
    compiled = hlo_disc.compile(fn, "f32[n]", "f32[m]", constraints=constraints)
    for f in (hlo_disc.jit(fn, dims={"x": "(n)", "y": "(m)"}, constraints=constraints), compiled):
        got = f(ones(n), ones(n))
        assert [np.asarray(x).tolist() for x in jax.tree.leaves(got)] == list(
            map(np.ndarray.tolist, map(np.asarray, jax.tree.leaves(wanted)))
        )
        with pytest.raises(ShapeError, match="the sizes do not meet the constraint"):
            f(ones(wrong), ones(wrong))


def test_a_constraint_on_what_is_no_dim():
    for dims in ({"x": "(m)"}, {"x": "(m, n)"}):
        f = hlo_disc.jit(lambda x: x, dims=dims, constraints="k <= 4")
        names = ", ".join(dims["x"][1:-1].split(", "))
        with pytest.raises(ShapeError, match=rf"nothing says what k is: .*\(the arguments have {names}\)"):
            f(np.ones((2,) * len(names.split(", ")), np.float32))
    with pytest.raises(ArgumentError, match=r"constraints='n <= 4' are about dims that have a name: name them"):
        hlo_disc.jit(lambda x: x, constraints="n <= 4")


def test_decorator_with_and_without_arguments(backend):
    @hlo_disc.jit
    def f(x):
        """Doubles."""
        return 2 * x

    @hlo_disc.jit(dims={"x": "(n)"})
    def g(x):
        return 2 * x

    assert (f.__name__, f.__doc__) == ("f", "Doubles.")
    assert f(ones(2)).tolist() == g(ones(2)).tolist() == [2, 2]


def test_methods(backend):
    class Model:
        @hlo_disc.jit(static_argnums=0)
        def apply(self, x):
            return x + 1

    assert Model().apply(ones(2)).tolist() == [2, 2]


def test_partials_jitted_functions_and_rest_arguments(backend):
    assert hlo_disc.jit(functools.partial(lambda k, x: x + k, 2))(ones(2)).tolist() == [3, 3]
    assert hlo_disc.jit(jax.jit(lambda x, y=3: x * y))(ones(2)).tolist() == [3, 3]
    assert hlo_disc.jit(lambda *xs, **ks: sum(xs) + sum(ks.values()))(ones(2), ones(2), k=ones(2)).tolist() == [3, 3]
    assert hlo_disc.jit(lambda: jnp.arange(3))().tolist() == [0, 1, 2]


def test_pytrees_keywords_and_constants(backend):
    table = jnp.arange(3.0)

    @hlo_disc.jit
    def f(params, x, *, bias=None):
        y = x * params["w"] + table
        return {"y": y if bias is None else y + bias, "n": [x.sum(), None]}

    out = f({"w": ones(3)}, ones(3))
    assert out["y"].tolist() == [1, 2, 3]
    assert out["n"][1] is None
    assert f({"w": ones(3)}, x=ones(3))["y"].tolist() == [1, 2, 3]
    assert f.stats().compilations == 1  # by keyword or by position is one program
    assert f({"w": ones(3)}, ones(3), bias=ones(3))["y"].tolist() == [2, 3, 4]
    assert f.stats().records[1].reason == "first call with this structure of arguments"


def test_static_arguments(backend):
    @hlo_disc.jit(static_argnames=("n", "mode"))
    def f(x, n, mode="add"):
        return x + n if mode == "add" else x * n

    assert f(ones(2), 3).tolist() == [4, 4]
    assert f(ones(2), n=3).tolist() == [4, 4]
    assert f.stats().compilations == 1
    assert f(ones(2), 3, mode="mul").tolist() == [3, 3]
    assert f(ones(2), True).dtype == jnp.float32
    assert [r.reason for r in f.stats().records[1:]] == ["first call with these static arguments"] * 2
    with pytest.raises(ArgumentError, match="static argument n of f is a list.*hashable"):
        f(ones(2), [3])
    with pytest.raises(ArgumentError, match="static_argnames='k'.*parameters x, n, mode"):
        hlo_disc.jit(f.__wrapped__, static_argnames="k")


def test_numpy_in_numpy_out_and_numbers(backend):
    f = hlo_disc.jit(lambda x, y: x + y)
    assert isinstance(f(np.ones(2, np.float32), 1), np.ndarray)
    assert isinstance(f(ones(2), 1), jax.Array)
    assert isinstance(f(1, 2), jax.Array)
    assert f(np.ones(2), 1.0).dtype == np.float32  # JAX's 32-bit types
    assert f(jnp.ones(2, jnp.bfloat16), 1.5).dtype == jnp.bfloat16  # a number takes the array's type


def test_dtypes_and_ranks_are_programs_of_their_own(backend):
    f = hlo_disc.jit(lambda x: x + x)
    for x in (ones(2), ones(2, dtype=jnp.int32), ones(2, 2), ones(2), ones(2, dtype=jnp.int32), ones(2, 2)):
        assert f(x).dtype == x.dtype
    assert [r.reason for r in f.stats().records[1:]] == ["first call with these dtypes and ranks"] * 2
    assert f.stats().calls == 6


@pytest.mark.parametrize("bad", ["text", object(), np.array(["a"])])
def test_what_is_no_array_is_named(backend, bad):
    with pytest.raises(ArgumentError, match=r"the argument params\['w'\] is a "):
        hlo_disc.jit(lambda params: params["w"])({"w": bad})


def test_too_few_and_unknown_arguments(backend):
    f = hlo_disc.jit(lambda x, y: x + y)
    with pytest.raises(ArgumentError, match="missing a required argument: 'y'"):
        f(ones(2))
    with pytest.raises(ArgumentError, match="unexpected keyword argument 'z'"):
        f(ones(2), ones(2), z=1)
    assert f(ones(2), ones(2)).tolist() == [2, 2]


def test_unknown_option():
    with pytest.raises(ArgumentError, match="unknown option 'threds'; the options are .*threads"):
        hlo_disc.jit(lambda x: x, threds=2)


# ------------------------------------------------------------------------------------------------- threads


def test_threads_compile_once(backend):
    f = hlo_disc.jit(lambda x: x + 1, dims={"x": "(n)"})
    start = threading.Barrier(8)
    wrong = []

    def work(size):
        start.wait()
        for _ in range(50):
            if f(ones(size)).shape != (size,):
                wrong.append(size)

    threads = [threading.Thread(target=work, args=(size,)) for size in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert f.stats().compilations == 1
    assert f.stats().calls == 400


# --------------------------------------------------------------------------------- through the whole compiler


def softmax(x, scale):
    return jax.nn.softmax(x * scale, axis=-1)


@pytest.mark.parametrize("dims", [{"x": "(n, m)"}, None])
def test_compiled_at_every_size(dims):
    f = hlo_disc.jit(softmax, dims=dims)
    for shape in [(3, 4), (5, 9), (0, 4), (4, 1), (1, 1), (33, 31)]:
        x = jnp.linspace(-3, 3, shape[0] * shape[1]).reshape(shape)
        np.testing.assert_allclose(f(x, 2.0), softmax(x, 2.0), rtol=1e-5)
    assert f.stats().compilations == (1 if dims else 2)


def test_inside_jax_jit():
    f = hlo_disc.jit(softmax, dims={"x": "(n, m)"})
    g = jax.jit(lambda x: f(x * 2, np.float32(3)).sum(axis=0) + 1)
    for shape in [(3, 4), (7, 2)]:
        x = jnp.linspace(-1, 1, shape[0] * shape[1]).reshape(shape)
        np.testing.assert_allclose(g(x), softmax(x * 2, 3).sum(axis=0) + 1, rtol=1e-5)
    assert f.stats().compilations == 1
    assert "hlo_disc_call" in g.lower(x).as_text()


def test_a_broken_guard_inside_jax_jit():
    f = hlo_disc.jit(lambda a, b: a.sum() + b.sum(), dims={"a": "(n)", "b": "(n)"})
    g = jax.jit(lambda a, b: f(a, b))
    with pytest.raises(ShapeError, match="'b' dimension 0 is 3.*'n' is 2"):
        g(ones(2), ones(3))
    assert g(ones(2), ones(2)) == 4


def test_a_jitted_function_in_another_is_one_program():
    inner = hlo_disc.jit(lambda x: x + 1)
    outer = hlo_disc.jit(lambda x: inner(x) * 2)
    for size in (3, 5):
        assert outer(ones(size)).tolist() == [4] * size
    assert inner.stats().compilations == 0
    assert outer.stats().compilations == 2


def test_exports_see_the_function_itself():
    inner = hlo_disc.jit(lambda x: x + 1)
    (n,) = jax.export.symbolic_shape("n")
    exported = jax.export.export(jax.jit(lambda x: inner(x)))(jax.ShapeDtypeStruct((n,), jnp.float32))
    assert exported.call(ones(4)).tolist() == [2] * 4


@pytest.mark.parametrize(
    ("call", "error", "parts"),
    [
        (lambda f: f(ones(2, 3), ones(2, 4)), ShapeError, ["'b' dimension 1", "4", "3"]),
        (lambda f: f(ones(2, 3)), ArgumentError, ["'b'"]),
        (lambda f: f(ones(2, 3), ones(2)), ArgumentError, ["dims of b", "has 2 dims", "1"]),
    ],
    ids=["guard", "too few", "rank"],
)
def test_a_bad_call_is_refused_and_the_next_one_works(call, error, parts):
    f = hlo_disc.jit(lambda a, b: a + b, dims={"a": "(b, s)", "b": "(b, s)"})
    f(ones(2, 3), ones(2, 3))
    with pytest.raises(error) as caught:
        call(f)
    assert not [part for part in parts if part not in str(caught.value)], caught.value
    assert f(ones(2, 3), ones(2, 3)).tolist() == [[2] * 3] * 2
    assert (f.stats().compilations, f.stats().calls) == (1, 2)


def test_sizes_that_jax_cannot_compare():
    f = hlo_disc.jit(lambda x, y: x + y)
    f(ones(3), ones(3))
    f(ones(4), ones(4))
    for n, m in ((4, 1), (5, 5), (7, 1), (1, 8), (6, 6)):
        assert f(ones(n), ones(m)).tolist() == [2] * max(n, m)
    assert (f.stats().compilations, f.stats().fallbacks) == (4, ())
    with pytest.raises(TypeError, match=r"\(4,\), \(5,\)"):  # a mistake of the call, as from jax.jit
        f(ones(4), ones(5))
    f = hlo_disc.jit(lambda x, y: x + y, dims={"x": "(n)", "y": "(m)"})
    for n, m in ((4, 4), (4, 1), (5, 5), (1, 8)):
        assert f(ones(n), ones(m)).tolist() == [2] * max(n, m)
    assert f.stats().compilations == 3


def test_sizes_that_differ_by_a_constant():
    f = hlo_disc.jit(lambda cache, new, mask: jnp.concatenate([cache, new]) * mask)
    for n in (3, 5, 0, 8):
        assert f(ones(n), ones(1), ones(n + 1)).tolist() == [1] * (n + 1)
    assert f.stats().records[1].arguments[2] == "mask: float32[d1]"
    [equal] = f.stats().records[1].asked
    assert "cache.shape[0] + 1" in equal and "mask.shape[0]" in equal and "==" in equal and "test_jit.py" in equal
    assert f.stats().compilations == 2
    with pytest.raises(TypeError, match=r"\(4,\), \(9,\)"):  # a mistake of the call, as from jax.jit
        f(ones(3), ones(1), ones(9))


def test_lower_and_explain():
    f = hlo_disc.jit(softmax, dims={"x": "(n, m)"})
    lowered = f.lower(jax.ShapeDtypeStruct((2, 3), jnp.float32), 1.0)
    assert "(n, m)" in lowered.as_text()
    np.testing.assert_allclose(lowered.compile()(ones(4, 2), np.float32(1)), np.full((4, 2), 0.5), rtol=1e-6)
    f(ones(2, 3), 1.0)
    assert "x: float32[n, m]" in f.explain(full=True)
    assert "first call" in str(f.stats())


def test_64_bit_types():
    with jax.enable_x64(True):
        f = hlo_disc.jit(lambda x: x + 1)
        assert f(np.ones(2)).dtype == np.float64
        assert f(jnp.ones(2, jnp.float32)).dtype == jnp.float32


def test_results_that_are_arguments_or_constants():
    f = hlo_disc.jit(lambda x, y: (x, y, x, jnp.arange(3)), dims={"x": "(n)"})
    x = ones(2)
    a, b, c, d = f(x, 1.5)
    assert (a.tolist(), float(b), c.tolist(), d.tolist()) == ([1, 1], 1.5, [1, 1], [0, 1, 2])


@pytest.mark.parametrize(
    "static",
    [
        {"static_argnums": (1,), "static_argnames": ("mode",)},
        {"static_argnums": np.int64(2)},
        {"static_argnames": "mode"},
        {"static_argnums": 2, "static_argnames": ("mode", "k")},
        {"static_argnums": (), "static_argnames": ("mode",)},
    ],
    ids=str,
)
def test_what_is_static_by_number_and_by_name_is_so_for_jax_too(static):
    def fn(x, k, mode):
        return getattr(x * k, mode)() if isinstance(mode, str) else x * k * mode

    def outcome(jitted, args, kwargs):
        try:
            return np.asarray(jitted(*args, **kwargs)).tolist()
        except TypeError:  # a string that is no array
            return TypeError

    x = ones(3)
    for args, kwargs in [
        ((x, 2, "sum"), {}),
        ((x, 2), {"mode": "sum"}),
        ((x,), {"mode": "sum", "k": 2}),
        ((x,), {"mode": 3, "k": 2}),
    ]:
        jitted = (hlo_disc.jit(fn, **static), jax.jit(fn, **static))
        assert outcome(jitted[0], args, kwargs) == outcome(jitted[1], args, kwargs)
