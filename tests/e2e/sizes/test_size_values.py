"""Sizes as numbers among the arguments of JAX's functions, at sizes where types end: what `jax.jit` gives.

`make surface NUMBERS=1` is for all of `surface.size_values`.
"""

from __future__ import annotations

from pathlib import Path

import depth
import jax.numpy as jnp
import numpy as np
import pytest
from surface.row import on
from surface.run import check, run_row
from surface.size_values import HOW, ROWS, SIZES, unlike

from hlo_disc.conformance.run import Settings

# A function or two of each kind, and those that treat Python's numbers in a way of their own.
SOME = """jax.numpy.add:5 jax.numpy.arange:3 jax.numpy.array:4 jax.numpy.array_equal:0 jax.numpy.bitwise_and:0
jax.numpy.clip:0 jax.numpy.divide:0 jax.numpy.divmod:1 jax.numpy.eye:1 jax.numpy.full:2 jax.numpy.gcd:1
jax.numpy.imag:0 jax.numpy.isfinite:0 jax.numpy.left_shift:1 jax.numpy.linspace:3 jax.numpy.logaddexp:0
jax.numpy.pad:2 jax.numpy.pow:1 jax.numpy.power:3 jax.numpy.quantile:1 jax.numpy.roll:1 jax.numpy.searchsorted:5
jax.numpy.std:3 jax.numpy.take:7 jax.numpy.tri:1 jax.numpy.var:0 jax.numpy.where:2 jax.numpy.zeros_like:0
jax.numpy.fft.fftfreq:0 jax.lax.convert_element_type:4 jax.lax.full_like:1 jax.lax.integer_pow:5 jax.lax.mul:1
jax.lax.scan:0 jax.lax.top_k:1 jax.lax.while_loop:0 jax.nn.one_hot:1 jax.nn.leaky_relu:0 jax.random.fold_in:1
jax.random.key:0 jax.random.randint:1 jax.random.uniform:0 jax.scipy.special.xlogy:0
jax.scipy.stats.multinomial.logpmf:0 jax.scipy.stats.norm.logpdf:1"""
NAMES = list(ROWS) if depth.full else SOME.split()
QUICK = (5, 6, 46341, 2**16 + 1, 2**31 - 1, 2**31, 2**31 + 1)


@depth.sampled(2)
@pytest.mark.parametrize("name", NAMES)
def test_what_jax_gives(name: str) -> None:
    found = run_row(Path(), f"n in {name}", Settings(), lambda *where: None, SIZES if depth.full else QUICK)
    assert (found.status, found.reason, found.fallback) == ("passed", "", "")


def test_a_number_that_is_a_little_off_is_seen() -> None:
    row = on("i8[n, 0]", call=lambda f, x: f(jnp.float32(x.shape[0])))
    asked = []

    def off(y):
        asked.append(y)
        return y * (1 + 1e-5 * (len(asked) > 1))

    assert "elements differ" in check(row, off, (46341,), **HOW).reason
    assert unlike(np.float32([65537]), np.float32([65536])) and not unlike(np.float32([1.000001]), np.float32([1]))


def test_no_overflow_error_is_seen() -> None:
    def overflows(n):
        if type(n) is int and n > 5:
            raise OverflowError("too large")
        return jnp.zeros(3) * n

    row = on("i8[n, 0]", call=lambda f, x: f(x.shape[0]))
    assert "where jax.jit raises OverflowError: too large" in check(row, overflows, (5, 6), **HOW).reason


def test_large_arrays_are_left_out() -> None:
    found = check(on("i8[n, 0]", call=lambda f, x: f(x.shape[0])), jnp.arange, (5, 2**31), **HOW)
    assert (found.status, found.shapes) == ("passed", 1)
