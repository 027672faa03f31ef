"""The vector math functions: their error in ulp over the whole range, special values, and that every width agrees."""

from __future__ import annotations

import decimal
import functools
import math

import numpy as np
import pytest
from comparison.ulps import DTYPES, REFERENCES, SPECIAL, exact_of, numbers_of_all_sizes, ulps
from hand_written import kernel_runner as kernels

from hlo_disc.targets.math.vecmath import FUNCTIONS, ULP_BOUNDS

LEVELS = kernels.levels()
BINARY = ("pow", "atan2", "fmod")
UNARY = [f for f in FUNCTIONS if f not in BINARY]


def _call(function: str, arguments: list[np.ndarray], dtype: str, lanes: int, level: str = "host") -> np.ndarray:
    operands = ", ".join(f"%x{k}" for k in range(len(arguments)))
    name = {"pow": "math.powf", "fmod": "arith.remf"}.get(function, f"math.{function}")
    op = f"%r = {name} {operands} : V({dtype})"
    size = -(-arguments[0].size // 64) * 64
    padded = [np.resize(x.astype(DTYPES[dtype]), size) for x in arguments]
    return kernels.apply(op, padded, DTYPES[dtype], lanes, level)[: arguments[0].size]


def _check(function: str, arguments: list[np.ndarray], dtype: str, lanes: int, level: str = "host") -> None:
    actual = _call(function, arguments, dtype, lanes, level)
    exact = exact_of(function, arguments)
    errors = ulps(actual, exact, dtype)
    worst = int(np.argmax(errors))
    where = f"{function}({', '.join(repr(x[worst]) for x in arguments)}) = {actual[worst]!r}, not {exact[worst]!r}"
    assert errors[worst] <= ULP_BOUNDS[function, dtype], f"{where}: {errors[worst]:.2f} ulp"
    both = ~np.isnan(exact) & ~np.isnan(actual.astype(np.float64))
    signs = np.signbit(actual.astype(np.float64)) == np.signbit(exact)
    assert np.all(signs[both]), f"{function}: wrong sign for {arguments[0][both & ~signs][:3]}"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("function", UNARY)
def test_f32_is_within_its_bound(function, level):
    _check(function, [numbers_of_all_sizes("f32", 60_000)], "f32", 16, level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("function", BINARY)
def test_binary_f32_is_within_its_bound(function, level):
    x = numbers_of_all_sizes("f32", 20_000)
    _check(function, [x, np.random.default_rng(1).permutation(x)], "f32", 16, level)
    grid = np.array(np.meshgrid(SPECIAL, SPECIAL)).astype(np.float32)
    _check(function, [grid[0].ravel(), grid[1].ravel()], "f32", 16, level)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("function", UNARY)
def test_small_floats_are_rounded_once(function, dtype):
    x = np.arange(2**16, dtype=np.uint16).view(DTYPES[dtype])
    _check(function, [x], dtype, 16)


EDGES = [
    709.78, 709.79, -708.4, -745.1, -745.2, 5e-324, 2.2e-308, 1.7976931348623157e308, 1024.0, -1074.5, 26.5, 27.2, 27.3,
    0.46875, 2.0**30, 2.0**31,
]  # fmt: skip


def _doubles(count: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    ranges = (
        (-760, 720), (-1, 1), (0.5, 2), (-1e-3, 1e-3), (0, 1e-300), (1e100, 1e300), (-1.2, -0.8), (-1100, 1030),
        (-3, 3), (2.0**29, 2.0**31), (0.9999, 1.0001),
    )  # fmt: skip
    pieces = [rng.uniform(low, high, count) for low, high in ranges]
    return np.concatenate(
        [rng.integers(0, 256, (3 * count, 8), np.uint8).view(np.float64)[:, 0], *pieces, SPECIAL, EDGES]
    )


def _check_double(function: str, arguments: list[np.ndarray], level: str) -> None:
    """Check a function of f64 against the C library's extended precision."""
    with np.errstate(all="ignore"):
        exact = REFERENCES[function](*[x.astype(np.longdouble) for x in arguments])
    _check_exact(function, arguments, exact, level)


def _check_exact(function: str, arguments: list[np.ndarray], exact: np.ndarray, level: str) -> None:
    actual = _call(function, arguments, "f64", 8, level)
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float64)
        error = np.abs(actual - exact) / np.maximum(np.spacing(np.abs(rounded)), 5e-324)
    special = ~np.isfinite(rounded)
    np.testing.assert_array_equal(actual[special], rounded[special])
    assert error[~special].max() <= ULP_BOUNDS[function, "f64"]
    signs = np.signbit(actual) == np.signbit(rounded)
    assert np.all(signs | np.isnan(rounded))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("function", [f for f in UNARY if f not in ("erf", "erfc")])
def test_f64_is_within_its_bound(function, level):
    _check_double(function, [_doubles(2000)], level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("function", BINARY)
def test_binary_f64_is_within_its_bound(function, level):
    x, rng = _doubles(2000), np.random.default_rng(1)
    grid = np.array(np.meshgrid(SPECIAL + EDGES, SPECIAL + EDGES))
    # and what neither over- nor underflows
    base, exponent = np.exp(rng.uniform(-700, 700, 5000)), rng.uniform(-10, 10, 5000)
    near_one, large = rng.uniform(0.5, 2, 5000), rng.uniform(-1000, 1000, 5000)
    denormal = rng.integers(1, 2**50, (2, 1000)) >> rng.integers(0, 50, (2, 1000))
    tiny = denormal.astype(np.int64).view(np.float64)
    _check_double(
        function,
        [
            np.concatenate([x, grid[0].ravel(), base, near_one, tiny[0]]),
            np.concatenate([rng.permutation(x), grid[1].ravel(), exponent, large, tiny[1]]),
        ],
        level,
    )


@functools.cache
def _root_of_pi() -> decimal.Decimal:
    """Return the square root of pi by J. Machin's series, with 400 digits."""
    with decimal.localcontext(prec=400):
        fifth, rest = (
            sum((-1) ** k / (decimal.Decimal(n) ** (2 * k + 1) * (2 * k + 1)) for k in range(300)) for n in (5, 239)
        )
        return (16 * fifth - 4 * rest).sqrt()


def _erf_in_decimals(x: float) -> tuple[np.longdouble, np.longdouble]:
    """erf and erfc of x >= 0, by the series of erf whose terms are all positive."""
    with decimal.localcontext(prec=400):
        number = decimal.Decimal(x)
        term = total = number
        k = 0
        while term > total * decimal.Decimal(10) ** -360:
            k += 1
            term *= 2 * number * number / (2 * k + 1)
            total += term
        erf = total * 2 / _root_of_pi() * (-number * number).exp()
        return np.longdouble(f"{erf:.30e}"), np.longdouble(f"{1 - erf:.30e}")


@pytest.mark.parametrize("level", LEVELS)
def test_f64_error_functions_are_within_their_bounds(level):
    rng = np.random.default_rng(2)
    x = np.concatenate(
        [rng.uniform(0, 2, 150), rng.uniform(2, 27, 50), rng.uniform(0.4, 0.5, 50), [26.54, 27.2, 1e-300]]
    )
    exact = np.array([_erf_in_decimals(v) for v in x]).T
    for function, values in zip(("erf", "erfc"), exact, strict=True):
        _check_exact(function, [x], values, level)
        special = _doubles(200)  # the C library's is within 2 ulp itself
        got, expected = _call(function, [special], "f64", 8, level), exact_of(function, [special])
        np.testing.assert_allclose(got, expected, rtol=1e-15, atol=1e-323)
        np.testing.assert_array_equal(np.signbit(got) | np.isnan(expected), np.signbit(expected) | np.isnan(expected))
    _check_exact("erf", [-x], -exact[0], level)


@pytest.mark.parametrize("dtype", DTYPES)
def test_remainders_are_exact(dtype):
    x = numbers_of_all_sizes(dtype, 1000)
    with np.errstate(all="ignore"):
        special = np.array(np.meshgrid(SPECIAL, SPECIAL)).astype(DTYPES[dtype])
        multiples = (x.astype(np.float64) * 7).astype(DTYPES[dtype])
    above = np.concatenate([x, special[0].ravel(), multiples])
    below = np.concatenate([np.random.default_rng(1).permutation(x), special[1].ravel(), x])
    actual = _call("fmod", [above, below], dtype, 8).astype(np.float64)
    with np.errstate(all="ignore"):
        expected = np.fmod(above, below).astype(np.float64)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual) | np.isnan(expected), np.signbit(expected) | np.isnan(expected))


@pytest.mark.parametrize("function", list(FUNCTIONS))
def test_every_width_gives_the_same_bits(function):
    x = np.concatenate([numbers_of_all_sizes("f32", 100), np.array([1e6, -3e9, 1e38, 5e4] * 4, np.float32)])
    arguments = [x, np.roll(x, 5)] if function in BINARY else [x]
    expected = _call(function, arguments, "f32", 16)
    for level in LEVELS:
        for lanes in (0, 2, 8, 32):
            np.testing.assert_array_equal(_call(function, arguments, "f32", lanes, level), expected)


def test_trigonometry_near_multiples_of_half_pi():
    # the f32 numbers nearest to n pi/2: where a sloppy reduction has no right digit left
    n = np.unique(np.concatenate([np.arange(1, 70_000), np.random.default_rng(0).integers(1, 2**55, 5000)]))
    # of those above 2^126 the nearest one, which needs the last bits of 2/pi
    nearest = np.array([math.ldexp(12438944, 103), -math.ldexp(12438944, 104)], np.float32)
    powers = np.ldexp(np.float32(1.5703125), np.arange(-20, 127))
    x = np.concatenate([(n * (math.pi / 2)).astype(np.float32), powers, nearest])
    for function in ("sin", "cos", "tan"):
        _check(function, [x], "f32", 16)


@pytest.mark.parametrize("level", LEVELS)
def test_f64_trigonometry_near_multiples_of_half_pi(level):
    n = np.random.default_rng(0).integers(1, 2**62, 3000) >> np.random.default_rng(1).integers(0, 61, 3000)
    # of all doubles the one that is nearest to a multiple of pi/2
    nearest = [math.ldexp(6381956970095103, 797)]
    x = np.concatenate([n * (math.pi / 2), np.ldexp(math.pi / 2, np.arange(-20, 1023)), nearest])
    for function in ("sin", "cos", "tan"):
        _check_double(function, [x], level)
        _check_double(function, [-x], level)


def test_saturated_results_stay_in_range():
    x = np.linspace(3, 12, 100_000, dtype=np.float32)
    for function in ("tanh", "erf"):
        y = _call(function, [x], "f32", 16)
        assert y.max() == 1 and np.all(y[x > 9.2] == 1)


def test_a_bound_is_tabulated_for_every_function_and_type():
    assert set(ULP_BOUNDS) == {(function, dtype) for function in FUNCTIONS for dtype in DTYPES}
