"""Fourier transforms: every kind, every sort of length, one to three axes, from StableHLO and at symbolic lengths."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc
from hlo_disc.errors import OutOfMemoryError, ShapeError, UnsupportedOpError
from hlo_disc.ral import fail_next_allocation

KINDS = ("FFT", "IFFT", "RFFT", "IRFFT")
# Small radices, their products, primes with and without passes of their own, and what needs a convolution.
LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 30, 31, 37, 60, 64, 97, 121, 127, 128, 131, 256, 1000, 1009, 1024)
# Taken apart in two steps, a prime that is not, and factors that are too unequal for it.
LONG = (4099, 5000, 8192, 10007, 65537, 2 * 65537)
# A type and its name in StableHLO: (real, complex).
SINGLE, DOUBLE = (
    (("f32", "complex<f32>"), (np.float32, np.complex64)),
    (("f64", "complex<f64>"), (np.float64, np.complex128)),
)


def half(length: tuple[int, ...]) -> tuple[int, ...]:
    return (*length[:-1], length[-1] // 2 + 1)


def shapes(kind: str, length: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of operand and result, without batch."""
    return (half(length) if kind == "IRFFT" else length), (half(length) if kind == "RFFT" else length)


def module(kind: str, length: tuple[int, ...], names: tuple[str, str] = SINGLE[0]) -> str:
    """One transform with a batch of any size."""

    def tensor(sizes: tuple[int, ...], element: str) -> str:
        return f"tensor<?x{''.join(f'{n}x' for n in sizes)}{element}>"

    taken, made = shapes(kind, length)
    source, target = tensor(taken, names[kind != "RFFT"]), tensor(made, names[kind != "IRFFT"])
    return f"""
    func.func public @main(%x: {source} {{hlo_disc.shape = "(b, {", ".join(map(str, taken))})"}}) -> {target} {{
      %y = stablehlo.fft %x, type = {kind}, length = [{", ".join(map(str, length))}] : ({source}) -> {target}
      return %y : {target}
    }}"""


def sample(kind: str, shape: tuple[int, ...], dtypes: tuple[type, type] = SINGLE[1]) -> np.ndarray:
    rng = np.random.default_rng(len(shape))
    x = rng.standard_normal(shape)
    return x.astype(dtypes[0]) if kind == "RFFT" else (x + 1j * rng.standard_normal(shape)).astype(dtypes[1])


def reference(kind: str, x: np.ndarray, length: tuple[int, ...]) -> np.ndarray:
    axes = tuple(range(-len(length), 0))
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    if kind == "IRFFT":
        return np.fft.irfftn(wide, s=length, axes=axes)
    return {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn}[kind](wide, axes=axes)


def check(exe: hlo_disc.Executable, kind: str, x: np.ndarray, length: tuple[int, ...]) -> None:
    y, expected = exe(x), reference(kind, x, length)
    assert y.shape == expected.shape
    error = np.abs(y - expected).max(initial=0) / np.abs(expected).max(initial=1e-30)
    assert error < (2e-15 if np.finfo(y.dtype).eps < 1e-10 else 1e-6), (kind, x.shape, error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", LENGTHS)
def test_one_axis(kind: str, length: int) -> None:
    exe = hlo_disc.compile(module(kind, (length,)))
    for batch in (0, 1, 3, 16, 37):
        x = sample(kind, (batch, *shapes(kind, (length,))[0]))
        check(exe, kind, x, (length,))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", LONG)
def test_long_ones(kind: str, length: int) -> None:
    exe = hlo_disc.compile(module(kind, (length,)), threads=2)
    check(exe, kind, sample(kind, (2, *shapes(kind, (length,))[0])), (length,))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [(5, 6), (7, 1), (1, 8), (64, 33), (3, 4, 5), (2, 3, 16), (1, 1, 1)])
def test_several_axes(kind: str, length: tuple[int, ...]) -> None:
    exe = hlo_disc.compile(module(kind, length))
    for batch in (0, 1, 5):
        check(exe, kind, sample(kind, (batch, *shapes(kind, length)[0])), length)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [(9,), (37,), (1009,), (6000,), (65537,), (12, 20)])
def test_double_precision(kind: str, length: tuple[int, ...]) -> None:
    exe = hlo_disc.compile(module(kind, length, DOUBLE[0]))
    check(exe, kind, sample(kind, (2, *shapes(kind, length)[0]), DOUBLE[1]), length)


@pytest.mark.parametrize("kind", KINDS)
def test_lanes_do_not_mix(kind: str) -> None:
    """A number that is not finite in one row stays in that row."""
    exe = hlo_disc.compile(module(kind, (12,)))
    x = sample(kind, (20, *shapes(kind, (12,))[0]))
    clean = exe(x)
    x[3], x[7, 2] = np.nan, np.inf
    y = exe(x)
    rest = [i for i in range(20) if i not in (3, 7)]
    np.testing.assert_array_equal(y[rest], clean[rest])
    assert np.isnan(y[3]).all() and not np.isfinite(y[7]).any()


def test_a_half_spectrum_has_real_ends() -> None:
    """The imaginary parts of the first and the middle element count for nothing."""
    for n in (8, 9, 2, 1):
        exe = hlo_disc.compile(module("IRFFT", (n,)))
        x = sample("IRFFT", (3, n // 2 + 1))
        y = exe(x)
        x[:, 0].imag = 7
        if n % 2 == 0:
            x[:, -1].imag = 5
        np.testing.assert_array_equal(exe(x), y)


def test_symbolic_lengths_from_jax() -> None:
    cases = [
        (jnp.fft.fft, np.complex64, "(b, n)", ["n >= 1"], [(3, 5), (1, 1), (0, 4), (2, 1024), (5, 7), (4, 131)]),
        (jnp.fft.rfft, np.float32, "(b, n)", ["n >= 1"], [(3, 5), (1, 1), (0, 4), (2, 1024), (5, 7), (4, 131)]),
        (jnp.fft.irfft, np.complex64, "(b, n)", ["n >= 2"], [(3, 5), (1, 2), (0, 4), (2, 513), (5, 7), (4, 67)]),
        (jnp.fft.ifft2, np.complex64, "(b, n, m)", ["n >= 1", "m >= 1"], [(3, 5, 2), (1, 1, 1), (0, 4, 3), (5, 7, 64)]),
        (jnp.fft.rfft2, np.float32, "(b, n, m)", ["n >= 1", "m >= 1"], [(3, 5, 2), (1, 1, 1), (0, 4, 3), (5, 7, 64)]),
    ]
    for function, dtype, dims, constraints, sizes in cases:
        exe = hlo_disc.compile(
            lambda x, f=function: f(x), jax.ShapeDtypeStruct(sizes[0], dtype), dims={"x": dims}, constraints=constraints
        )
        for shape in sizes:
            x = sample("RFFT" if dtype is np.float32 else "FFT", shape)
            y, expected = exe(x), np.asarray(function(x))
            assert y.shape == expected.shape and y.dtype == expected.dtype
            np.testing.assert_allclose(y, expected, rtol=0, atol=2e-6 * np.abs(expected).max(initial=1))


def test_half_a_spectrum_of_one_element() -> None:
    f = hlo_disc.jit(lambda x: (jnp.fft.irfft(x), jnp.fft.hfft(x)))
    for n in (1, 4, 1, 5, 1):
        x = sample("FFT", (2, n))
        for y, of_jax in zip(f(x), (jnp.fft.irfft, jnp.fft.hfft), strict=True):
            expected = np.asarray(of_jax(x))
            assert y.shape == expected.shape == (2, 2 * n - 2) and y.dtype == expected.dtype
            np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5)
    assert not f.stats().fallbacks


def test_lengths_that_do_not_fit() -> None:
    text = module("FFT", (8,)).replace("(b, 8)", "(b, n)").replace("tensor<?x8x", "tensor<?x?x")
    exe = hlo_disc.compile(text)
    assert exe(np.ones((2, 8), np.complex64)).shape == (2, 8)
    with pytest.raises(ShapeError, match="dimension 1 of the operand and the length of the transform .* 7 and 8"):
        exe(np.ones((2, 7), np.complex64))


def test_types_that_are_not_supported() -> None:
    text = module("FFT", (8,)).replace("complex<f32>", "f32")
    with pytest.raises((UnsupportedOpError, hlo_disc.ParseError)):
        hlo_disc.compile(text)


def test_no_memory(no_leak: None) -> None:
    exe = hlo_disc.compile(module("RFFT", (5003,)))
    x = sample("RFFT", (2, 5003))
    expected = exe(x)
    failures = 0
    for nth in range(1, 20):
        fail_next_allocation(nth)
        try:
            exe(x)
        except OutOfMemoryError:
            failures += 1
        finally:
            fail_next_allocation(0)
    assert failures >= 3
    np.testing.assert_array_equal(exe(x), expected)


def test_many_threads_at_once() -> None:
    exe = hlo_disc.compile(module("FFT", (600,)), threads=2)
    x = sample("FFT", (40, 600))
    expected = exe(x)
    with ThreadPoolExecutor(8) as pool:
        for y in pool.map(lambda _: exe(x), range(40)):
            np.testing.assert_array_equal(y, expected)


def test_a_module_is_opened_again() -> None:
    for kind in KINDS:
        text = re.sub(r" {hlo_disc.*?}", "", module(kind, (6, 8)).replace("tensor<?x", "tensor<2x"))
        last = "5" if kind == "IRFFT" else "m"
        exe = hlo_disc.compile(text, dims={"args[0]": f"(b, n, {last})"})
        for b, n, m in ((2, 6, 8), (1, 1, 8 if kind == "IRFFT" else 1), (3, 9, 8 if kind == "IRFFT" else 11)):
            check(exe, kind, sample(kind, (b, *shapes(kind, (n, m))[0])), (n, m))
