"""The surface table: it has all public functions of JAX, and what runs its rows sees what is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import depth
import jax
import jax.numpy as jnp
import pytest
from surface import ROWS
from surface.excluded import EXCLUDED, REFUSED
from surface.modules import function, public_functions
from surface.report import COLUMNS, show
from surface.row import each, on, table
from surface.run import check, difference, run_row
from surface.transforms import Transform

import hlo_disc
from hlo_disc.conformance.run import Settings
from hlo_disc.import_.handlers import HANDLERS

# A function of each large module.
SOME = """jax.numpy.sum:2 jax.numpy.linalg.solve:0 jax.lax.gather:0 jax.lax.psum:0 jax.nn.softmax:2 jax.image.resize:1
jax.random.split:0 jax.scipy.special.erf:0""".split()

# What runs of the two are differentiated, mapped, or both.
TRANSFORMED = """vjp of surface.compositions.lstm:0 jvp of jax.lax.sort:0 grad of surface.compositions.embedding:0
grad_in_jit of jax.scipy.special.logsumexp:0 jit_of_grad of surface.compositions.convolution:0
vmap of jax.random.bits:0 vmap_of_grad of jax.numpy.cumprod:0 jacrev of surface.compositions.rows_mapped:0
jacfwd of surface.compositions.log1pexp:0 hessian of surface.compositions.huber:0"""
TRANSFORMED = re.findall(r"\w+ of \S+", TRANSFORMED)


def in_table() -> set[str]:
    return {name.partition(":")[0] for name in ROWS}


def test_every_public_function_is_in_the_table_or_excluded():
    listed = [*in_table(), *EXCLUDED, *REFUSED]
    assert len(set(listed)) == len(listed)
    assert not set(public_functions()) - set(listed)


def test_what_is_listed_exists():
    for name in (*in_table(), *EXCLUDED, *REFUSED):
        assert callable(function(name)), name


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_said_to_be_refused_is(name):
    row = REFUSED[name]
    with pytest.raises(Exception) as refusal:
        jax.jit(row.of(function(name))).lower(*row.arrays(3))
    assert not isinstance(refusal.value, (NameError, AttributeError))


@pytest.mark.parametrize("name", SOME)
def test_some_rows(name):
    found = run_row(Path(), name, Settings(), lambda *where: None, sizes=(3, 2))
    assert (found.status, found.reason, found.fallback) == ("passed", "", "")
    assert found.name == name and 1 <= found.compilations <= 2 and not found.raises


@depth.sampled(2)
@pytest.mark.parametrize("name", TRANSFORMED)
def test_some_transforms_of_rows(name):
    found = run_row(Path(), name, Settings(), lambda *where: None, sizes=(3, 2))
    assert (found.status, found.reason, found.fallback) == ("passed", "", "")
    assert found.name == name and 1 <= found.compilations <= 2 and not found.raises


def test_a_wrong_derivative_is_seen():
    wrong = jax.custom_jvp(jnp.sin)
    wrong.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), tangents[0] * hidden[-1]))
    hidden = [2.0]
    around = Transform(lambda fn: fn, lambda fn: lambda x: (hidden.append(len(hidden)), jax.jvp(fn, (x,), (x,)))[1])
    assert "elements differ" in check(on("f32[n]"), wrong, (3,), transform=around).reason


def test_a_function_twice_in_a_table_is_an_error():
    with pytest.raises(ValueError, match="in the table twice: sin"):
        table(each("sin cos", on("f32[n]")), each("sin", on("f32[n]")))


def test_what_becomes_of_sizes_is_told():
    found = check(on("f32[n]"), lambda x: x * sum(range(x.shape[0])), (3, 4))
    assert found.status == "passed" and found.compilations == 2
    assert [text.split(" (")[0] for text in found.numbers] == ["arrays[0].shape[0] == 4"]
    assert COLUMNS[2][1](found) is False


def test_a_fallback_is_told(monkeypatch):
    monkeypatch.delitem(HANDLERS, "stablehlo.cosine")
    with pytest.warns(hlo_disc.FallbackWarning):
        found = check(on("f32[n]"), jnp.cos, (3,))
    assert found.status == "passed" and "cosine" in found.fallback
    assert COLUMNS[1][1](found) is True


def refuses(x):
    if x.shape[0] < 3:
        raise ValueError("too short")
    return x


def test_sizes_that_jax_refuses_must_be_refused():
    found = check(on("f32[n]"), refuses, (3, 2))
    assert (found.status, found.raises) == ("passed", [2])
    assert check(on("f32[n]"), refuses, (2, 1)).reason == "jax.jit raises at every size: ValueError: too short"
    assert difference(jnp.ones(2), ValueError("x")) == "a result where jax.jit raises ValueError: x"
    assert difference(TypeError("y"), ValueError("x")) == "TypeError: y where jax.jit raises ValueError: x"
    assert difference(hlo_disc.ShapeError("y"), ValueError("x")) == ""


def test_what_is_different_is_seen():
    one = jnp.ones(3)
    assert difference(one, one) == ""
    assert difference([one], (one,)).startswith("the results are ")
    assert (
        difference(one * 1.01, one)
        == "like XLA: 3 of 3 elements differ; first at [0]: got 1.0099999904632568, expected 1.0"
    )
    assert difference(jnp.ones(3, int), one) == "like XLA: got int32[3], expected float32[3]"
    assert difference(jnp.ones((3, 1)), one) == "like XLA: got float32[3, 1], expected float32[3]"
    assert difference(jnp.asarray(1.0), jnp.float32(1.0)) == "weak_type is True instead of False"
    assert difference(jax.random.key(1), jax.random.key(1)) == ""
    assert difference(jax.random.key(1), jax.random.key(2)).startswith("like XLA: 1 of 2 elements differ")
    assert difference(jax.random.key(1), jax.random.key(1, impl="rbg")) == "got key<fry>, expected key<rbg>"
    assert difference(ValueError("x"), one) == "raises ValueError: x"


def test_the_report_has_shares_and_reasons(capsys):
    found = [check(on("f32[n]"), lambda x: x + 1, (3,)), check(on("f32[n]"), refuses, (2,))]
    for result, name in zip(found, ("jax.numpy.one:0", "jax.numpy.two:0"), strict=True):
        result.name = name
    show(found)
    shown = capsys.readouterr().out
    assert "jax.numpy.two:0" in shown and "jax.jit raises at every size: ValueError: too short" in shown
    assert "50.0 %" in shown
