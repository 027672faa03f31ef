"""Functions that hlo_disc cannot compile run through jax.jit: warned of once, counted, right in every kind of call."""

from __future__ import annotations

import functools
import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import core, dtypes
from jax._src.interpreters import mlir, pxla

import hlo_disc
from hlo_disc.errors import FallbackWarning, UnsupportedOpError
from hlo_disc.import_.handlers import HANDLERS
from hlo_disc.tracing.values import is_symbolic


@pytest.fixture(autouse=True)
def without_cosine(monkeypatch):
    """Remove an op from what the compiler knows, so that these tests hold whatever it learns."""
    monkeypatch.delitem(HANDLERS, "stablehlo.cosine")


def unsupported_line(x: Any) -> Any:
    """Return twice `x`, by an op that the compiler does not know here."""
    return jnp.cos(x * 0) + (x * 2 - 1)


def program(x: Any) -> Any:
    return jnp.sum(unsupported_line(x)) + 1


def test_runs_through_jax_and_warns_once():
    f = hlo_disc.jit(program)
    with pytest.warns(FallbackWarning) as caught:
        assert f(jnp.arange(4.0)) == 13
        assert f(jnp.arange(4.0)) == 13
        assert f(jnp.arange(5.0)) == 21
        assert f(jnp.arange(0.0)) == 1
    (warning,) = caught
    message = str(warning.message)
    assert message.startswith("hlo_disc.jit cannot compile program, which runs through jax.jit instead: ")
    assert "stablehlo.cosine" in message and "(unsupported_line)" in message and "test_jit_fallback.py:" in message
    assert Path(warning.filename).name == "test_jit_fallback.py"


def test_stats_count_the_calls():
    f = hlo_disc.jit(program)
    with pytest.warns(FallbackWarning):
        for size in (3, 4, 3):
            f(jnp.ones(size))
    stats = f.stats()
    assert (stats.calls, stats.compilations) == (3, 0)
    (fallback,) = stats.fallbacks
    assert fallback.calls == 3 and "stablehlo.cosine" in fallback.reason
    assert fallback.arguments == ("float32[3]",)
    assert "3 calls through jax.jit: stablehlo.cosine" in str(stats)


def test_nothing_is_said_of_what_compiles():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f = hlo_disc.jit(lambda x: x + 1)
        f(jnp.ones(3))
    assert f.stats().fallbacks == ()


def test_compile_raises():
    with pytest.raises(UnsupportedOpError, match=r"stablehlo.cosine.*\(unsupported_line\)"):
        hlo_disc.compile(program, "f32[b]")


def test_lower_raises():
    with pytest.raises(UnsupportedOpError, match="stablehlo.cosine"):
        hlo_disc.jit(program).lower(jnp.ones(3))


def test_the_warning_can_be_an_error():
    f = hlo_disc.jit(program)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for _ in range(2):
            with pytest.raises(FallbackWarning, match="cannot compile program"):
                f(jnp.ones(3))


@pytest.mark.filterwarnings("ignore::hlo_disc.FallbackWarning")
class TestCalls:
    def test_pytrees_and_keywords(self):
        f = hlo_disc.jit(lambda params, *, scale: {"y": unsupported_line(params["w"]) * scale, "n": None})
        result = f({"w": jnp.ones((2, 3))}, scale=3.0)
        assert result["n"] is None and np.array_equal(result["y"], np.full((2, 3), 6.0))

    def test_static_arguments(self):
        @hlo_disc.jit(static_argnames="times")
        def f(x, times):
            for _ in range(times):
                x = unsupported_line(x)
            return x

        assert [float(f(jnp.ones(()), n)) for n in (0, 1, 2, 2)] == [1, 2, 4, 4]
        assert [fallback.calls for fallback in f.stats().fallbacks] == [1, 2]  # not of 0 times

    def test_results_are_numpy_for_numpy(self):
        f = hlo_disc.jit(program)
        assert isinstance(f(np.ones(3, np.float32)), np.ndarray)
        assert isinstance(f(jnp.ones(3)), jax.Array)
        assert f(np.float32([1, 2])) == 7

    def test_numbers_are_weak(self):
        f = hlo_disc.jit(lambda x, y: unsupported_line(x) + y)
        assert f(jnp.ones(2, jnp.bfloat16), 2).dtype == jnp.bfloat16

    def test_inside_jax_jit_grad_and_vmap(self):
        @hlo_disc.jit
        def f(x):
            return jnp.sum(unsupported_line(jax.lax.stop_gradient(x)) * x)

        assert jax.jit(lambda x: f(x) + 1)(jnp.ones(3)) == 7
        assert np.array_equal(jax.grad(f)(jnp.ones(3)), np.full(3, 2.0))
        assert f.stats().fallbacks[0].calls == 0  # none from Python

    def test_of_a_method(self):
        class Model:
            w = 2.0

            @hlo_disc.jit(static_argnums=0)
            def apply(self, x):
                return unsupported_line(x) * self.w

        assert np.array_equal(Model().apply(jnp.ones(2)), [4, 4])

    def test_inside_another_program_it_is_that_programs_affair(self):
        inner = hlo_disc.jit(program)
        outer = hlo_disc.jit(lambda x: inner(x) + 1)
        assert outer(jnp.ones(2)) == 6
        assert inner.stats().calls == 0 and outer.stats().fallbacks[0].calls == 1

    def test_with_dims(self):
        f = hlo_disc.jit(program, dims={"x": "(b)"})
        assert [float(f(jnp.ones(n))) for n in (0, 1, 5)] == [1, 3, 11]
        assert len(f.stats().fallbacks) == 1

    def test_errors_of_the_function_are_its_own(self):
        def f(x):
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            hlo_disc.jit(f)(jnp.ones(2))


def test_a_program_that_was_compiled_stays_in_use():
    """A program for the first size stays in use, though the second size needs an op that is not supported."""

    @hlo_disc.jit
    def f(x):
        return x + 1 if not is_symbolic(x) and x.shape[0] == 2 else unsupported_line(x)

    assert np.array_equal(f(jnp.ones(2)), [2, 2])
    with pytest.warns(FallbackWarning):
        assert np.array_equal(f(jnp.ones(3)), [2, 2, 2])
    assert np.array_equal(f(jnp.ones(2)), [2, 2])
    stats = f.stats()
    assert (stats.calls, stats.compilations, stats.fallbacks[0].calls) == (3, 1, 1)


def test_what_has_to_know_its_sizes():
    """A loop over a size needs one program for each size."""
    f = hlo_disc.jit(lambda x: sum(x[i] * i for i in range(x.shape[0])))
    for n, total in ((3, 3), (4, 6), (5, 10), (3, 3), (4, 6)):
        assert f(jnp.ones(n)) == total
    assert (f.stats().compilations, f.stats().fallbacks) == (3, ())
    assert re.fullmatch(r"x.shape\[0\] == 5 \(test_jit_fallback.py:\d+\)", f.stats().records[2].asked[0])


def test_sizes_that_the_program_for_all_sizes_refuses():
    """`x[:1]` of a symbolic size needs one element. An empty `x` takes the same program, with an empty result."""
    for dims in (None, {"x": "(n)"}):
        f = hlo_disc.jit(lambda x: x[:1], dims=dims)
        for n in (3, 5, 0):
            assert f(jnp.arange(n)).tolist() == [0][:n]
        assert jax.jit(f)(jnp.arange(0)).tolist() == []
        assert f(np.arange(0)).tolist() == [] and f(jnp.arange(7)).tolist() == [0]
        assert (f.stats().compilations, f.stats().fallbacks) == (1 if dims else 2, ())


def test_random_keys():
    f = hlo_disc.jit(lambda x: (unsupported_line(x), jax.random.split(jax.random.key(1))))
    with pytest.warns(FallbackWarning):
        y, keys = f(np.ones(2, np.float32))
    assert isinstance(y, np.ndarray)
    assert np.array_equal(jax.random.key_data(keys), jax.random.key_data(jax.random.split(jax.random.key(1))))


def test_arrays_that_change():
    def add(total, x):
        total[...] = total[...] + x
        return total[...] * 2

    total = jax.new_ref(jnp.ones(3))
    with pytest.warns(FallbackWarning, match=r"Ref\{float32\[3\]\} as an argument is not supported"):
        assert hlo_disc.jit(add)(total, 2).tolist() == [6, 6, 6]
    with pytest.warns(FallbackWarning, match=r"it reads or writes a jax.Ref from outside"):
        assert hlo_disc.jit(lambda x: add(total, x))(2).tolist() == [10, 10, 10]
    assert total[...].tolist() == [5, 5, 5]
    inside = hlo_disc.jit(lambda x: add(jax.new_ref(x), 1))
    assert inside(jnp.ones(2)).tolist() == [4, 4] and not inside.stats().fallbacks


class Pair(dtypes.ExtendedDType):
    """An element type of JAX's that is two numbers in memory, and no random key."""

    type = dtypes.extended
    name = "pair"

    class _rules:
        @staticmethod
        def physical_element_aval(dtype):
            return core.ShapedArray((2,), np.dtype(np.float32))

        @staticmethod
        def global_sharded_result_handler(aval, sharding, committed):
            make = pxla.global_result_handlers[core.ShapedArray](core.physical_aval(aval), sharding, committed)
            return make.wrap(Pairs)


class Pairs:
    def __init__(self, data):
        self.data, self.shape = data, data.shape[:-1]


@pytest.fixture
def pair(monkeypatch):
    """Register a primitive that makes two arrays a `Pairs`."""
    primitive = core.Primitive("pair")
    primitive.def_abstract_eval(lambda x, y: core.ShapedArray(x.shape, Pair()))
    mlir.register_lowering(primitive, mlir.lower_fun(lambda x, y: jnp.stack([x, y], -1), multiple_results=False))
    monkeypatch.setitem(core.pytype_aval_mappings, Pairs, lambda x: core.ShapedArray(x.shape, Pair()))
    if hasattr(dtypes, "register_canonicalize_value_handler"):
        dtypes.register_canonicalize_value_handler(Pairs, None)
    else:  # JAX 0.10.1
        monkeypatch.setitem(dtypes.canonicalize_value_handlers, Pairs, lambda x: x)
    monkeypatch.setitem(
        pxla.shard_arg_handlers, Pairs, lambda xs, *_: [jax.device_put(x.data, jax.devices()[0]) for x in xs]
    )
    return primitive.bind


def test_element_types_of_jax_alone(pair):
    x = jnp.arange(3.0)
    with pytest.warns(FallbackWarning, match=r"pair\[3\] as a result is not supported"):
        made = hlo_disc.jit(lambda x: pair(x, x + 1))(x)
    assert isinstance(made, Pairs) and made.data.tolist() == [[0, 1], [1, 2], [2, 3]]
    with pytest.warns(FallbackWarning, match=r"pair\[3\] as an argument is not supported"):
        again = hlo_disc.jit(lambda pairs: pairs)(made)
    assert isinstance(again, Pairs) and again.data.tolist() == made.data.tolist()


def test_calls_are_counted_in_threads():
    """Calls are counted by types alone, without looking into the arguments."""
    f = hlo_disc.jit(program)
    with pytest.warns(FallbackWarning):
        f(jnp.ones(3))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda k: [f(jnp.ones(3)) for _ in range(100)], range(8)))
    assert [f.stats().calls for _ in range(3)] == [801] * 3


@pytest.mark.filterwarnings("ignore::hlo_disc.FallbackWarning")
def test_arguments_of_the_same_types_that_are_other_things():
    """A call that runs through jax.jit is recognised by the types of its arguments, whatever is in them."""
    f = hlo_disc.jit(lambda tree, x=1.0: jax.tree.map(lambda v: unsupported_line(v) * x, tree))
    ones = np.ones(2, np.float32)
    for kind in (jnp.asarray, np.asarray):
        for tree in ({"a": ones}, {"b": ones, "c": [ones]}, {"b": []}, {}):
            made = f(jax.tree.map(kind, tree))
            assert jax.tree.structure(made) == jax.tree.structure(tree)
            assert all(isinstance(x, jax.Array if kind is jnp.asarray else np.ndarray) for x in jax.tree.leaves(made))
    assert jax.jit(f)({"a": jnp.ones(2)})["a"].tolist() == [2, 2]
    assert jax.vmap(f)({"a": jnp.ones((1, 2))})["a"].tolist() == [[2, 2]]
    assert f({"a": jnp.ones(2)}, 3.0)["a"].tolist() == f({"a": jnp.ones(2)}, x=3.0)["a"].tolist() == [6, 6]
    assert f({"a": jnp.ones(2, int)})["a"].tolist() == [2, 2]
    outer = hlo_disc.jit(lambda x: f({"a": x})["a"])
    assert outer(jnp.ones(2)).tolist() == [2, 2]


def test_what_compiles_stays_compiled():
    f = hlo_disc.jit(lambda x, y=None: x + 1 if y is None else unsupported_line(x))
    f(jnp.ones(2))
    with pytest.warns(FallbackWarning):
        f(jnp.ones(2), jnp.ones(2))
    f(jnp.ones(2))
    assert [fallback.calls for fallback in f.stats().fallbacks] == [1] and f.stats().calls == 3


# ------------------------------------------------------------------------------------------------------ what is said


def reads_a_tracer(jit):
    def outer(y):
        return jit(lambda x: x + y)(jnp.ones(2))

    return jax.grad(lambda y: outer(y).sum())(1.0)


def has_effects(jit):
    def noisy(x):
        jax.debug.callback(lambda a: None, x)
        return x

    return jax.grad(jit(noisy))(1.0)


def talks_to_others(jit):
    def step(_, x):
        return x + jax.lax.psum(x, "i")

    return jax.vmap(jit(lambda x: jax.lax.fori_loop(0, 2, step, x)), axis_name="i")(jnp.ones(2))


def is_spread(jit):
    with jax.set_mesh(jax.make_mesh((1,), ("i",))):
        return jax.jit(jit(lambda x: x + 1))(jnp.ones(2))


def takes_a_ref(jit):
    return jit(lambda ref: ref[...] + 1)(jax.new_ref(jnp.ones(2)))


def reads_a_ref(jit):
    ref = jax.new_ref(jnp.ones(2))
    return jit(lambda x: ref[...] + x)(jnp.ones(2))


def looks_for_nans(jit):
    with jax.debug_nans(True):
        return jit(lambda x: x + 1)(jnp.ones(2))


def has_many_operands(jit):
    return jit(lambda *xs: [unsupported_line(jnp.concatenate(xs))])(*(jnp.ones((1, 3)) for _ in range(300)))


# What is said, and what is to be done about it.
KINDS = {
    lambda jit: jit(program)(jnp.ones(3)): ("stablehlo.cosine", "where jax.pure_callback calls it"),
    has_many_operands: ("stablehlo.cosine", "where jax.pure_callback calls it"),
    reads_a_tracer: ("that JAX is tracing", "pass it as an argument"),
    has_effects: ("it has the effects Debug", "let hlo_disc.jit be outermost"),
    talks_to_others: ("it talks to other devices inside of a scan", "compile what is between such calls"),
    is_spread: ("spreads it over the devices of a mesh", "call it in jax.shard_map"),
    takes_a_ref: ("as an argument is not supported", "pass its data"),
    reads_a_ref: ("jax.Ref from outside", "changes nothing but its results"),
    looks_for_nans: ("jax_debug_nans", "is set"),
}


@pytest.mark.parametrize("call", KINDS, ids=lambda call: call.__name__)
def test_messages(call):
    """A message names the user's line, is short and without colours, and says what to do. It is an error on demand."""
    texts = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FallbackWarning)
        call(hlo_disc.jit)
        texts += [str(w.message) for w in caught if issubclass(w.category, FallbackWarning)]
    assert len(texts) == (call is not looks_for_nans)
    with pytest.raises(UnsupportedOpError) as error:
        call(functools.partial(hlo_disc.jit, fallback=False))
    assert "with fallback=False it does not run through jax.jit: " in str(error.value)
    for text in (*texts, str(error.value)):
        assert text.startswith("hlo_disc.jit cannot compile ") and len(text.splitlines()) <= 6
        assert "\x1b" not in text and len(text) < 1500
        assert re.search(r"test_jit_fallback.py:\d+", text), text
        assert all(part in text for part in KINDS[call]), text


def test_what_a_message_quotes_is_shortened():
    text = str(UnsupportedOpError("\x1b[31mred\x1b[0m\n" * 20 + "x" * 10_000))
    assert text.splitlines() == ["red"] * 5
    assert len(str(UnsupportedOpError("x" * 10_000))) == 501


def test_without_fallback_each_call_is_an_error():
    f = hlo_disc.jit(program, fallback=False)
    for _ in range(2):
        with pytest.raises(UnsupportedOpError, match="stablehlo.cosine"):
            f(jnp.ones(3))
    assert f.stats().fallbacks == () and f.stats().calls == 0
    assert hlo_disc.jit(lambda x: x + 1, fallback=False)(1) == 2


def test_the_environment_may_forbid_it(monkeypatch):
    monkeypatch.setenv("HLO_DISC_FALLBACK", "0")
    with pytest.raises(UnsupportedOpError, match="fallback=False"):
        hlo_disc.jit(program)(jnp.ones(3))
