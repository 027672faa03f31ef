"""Complex numbers: every op on both precisions, from one binary at several sizes, with values where mistakes are made.

Finite results are compared with numpy in more precision; where a part of the argument is no finite number, the result
must be XLA's or numpy's, which differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import depth
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_disc
from hlo_disc.errors import CompileError
from hlo_disc.ral.contexts.jax import call_in_jit

C64, C128 = np.dtype(np.complex64), np.dtype(np.complex128)
DTYPES = pytest.mark.parametrize("dtype", (C64, C128), ids=str)
SIZES = (0, 1, 7, 33)
SPECIAL = (0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def numbers(dtype: np.dtype, count: int, seed: int = 0) -> np.ndarray:
    """Numbers of all magnitudes whose squares mostly leave the range, and ordinary ones."""
    rng = np.random.default_rng(seed)
    decades = 25 if dtype == C64 else 200

    def line() -> np.ndarray:
        ordinary = rng.standard_normal(count) * 3
        return np.where(np.arange(count) % 3, ordinary, ordinary * 10.0 ** rng.uniform(-decades, decades, count))

    return (line() + 1j * line()).astype(dtype)


def special(dtype: np.dtype) -> np.ndarray:
    parts = np.array(list(itertools.product(SPECIAL, SPECIAL)), dtype.type(0).real.dtype)
    return parts.view(dtype)[:, 0]


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype == C64 else np.clongdouble) if x.dtype.kind == "c" else x


def assert_close(got: np.ndarray, want: np.ndarray, ulps: float) -> None:
    """Check complex numbers: they are within `ulps` of the size of the number, or both too large."""
    assert got.shape == want.shape
    finite, tiny = np.finfo(got.dtype), 2 * float(np.finfo(got.dtype).smallest_subnormal)
    want = np.asarray(want).astype(want.dtype)
    large = ~(np.abs(want) < float(finite.max) / 2)
    error = np.abs(wide(got) - want)
    bad = (error > ulps * float(finite.eps) * np.abs(want) + tiny) & ~large
    assert not bad.any(), (got[bad][:3], want[bad][:3], (error / np.abs(want) / finite.eps)[bad].max())


def parts(x: np.ndarray) -> np.ndarray:
    """The parts of complex numbers, on a last axis."""
    return np.stack([x.real, x.imag], axis=-1)


def assert_one_of(got: np.ndarray, *expected: np.ndarray, infinities_alike: bool = False) -> None:
    """Check that every number is that of one of `expected`, part by part: both NaN, equal infinities, or close.

    infinities_alike: as C99 has it, a number with an infinite part is an infinity, whatever the other one is.
    """
    got = parts(got)
    fits = np.zeros(got.shape[:-1], bool)
    for other in expected:
        want = parts(np.asarray(other))
        same = np.isnan(got) & np.isnan(want) | (got == want) | (np.abs(got - want) <= 1e-5 * np.abs(want))
        fits |= same.all(axis=-1)
        fits |= infinities_alike & np.isinf(got).any(axis=-1) & np.isinf(want).any(axis=-1)
    assert fits.all(), [(g, [parts(np.asarray(e))[~fits][0] for e in expected]) for g in got[~fits][:1]]


# name: (the program, numpy's, error allowed in ulps of the result's size)
UNARY: dict[str, tuple[Callable, Callable, float]] = {
    "negate": (lax.neg, np.negative, 0),
    "abs": (lax.abs, np.abs, 2),
    "sign": (lax.sign, lambda z: np.where(z == 0, z, z / np.abs(z)), 3),
    "exp": (lax.exp, np.exp, 3),
    "expm1": (lax.expm1, np.expm1, 4),
    "log": (lax.log, np.log, 3),
    "log1p": (lax.log1p, lambda z: np.log1p(z.real * (2 + z.real) + z.imag**2) / 2 + 1j * np.angle(1 + z), 4),
    "sqrt": (lax.sqrt, np.sqrt, 3),
    "rsqrt": (lax.rsqrt, lambda z: 1 / np.sqrt(z), 3),
    "sine": (lax.sin, np.sin, 3),
    "cosine": (lax.cos, np.cos, 3),
    "tan": (lax.tan, np.tan, 4),
    "tanh": (lax.tanh, np.tanh, 4),
    "real": (lax.real, np.real, 0),
    "imag": (lax.imag, np.imag, 0),
    "conjugate": (jnp.conj, np.conj, 0),
    "square": (lax.square, lambda z: z * z, 2),
}
# JAX writes these in terms of others, or not at all.
WITHOUT_JAX: dict[str, tuple[Callable, float]] = {
    "logistic": (lambda z: 1 / (1 + np.exp(-z)), 6),
    "cbrt": (lambda z: np.cbrt(np.abs(z)) * np.exp(1j * np.angle(z) / 3), 4),
}
BINARY: dict[str, tuple[Callable, Callable, float]] = {
    "add": (lax.add, np.add, 1),
    "subtract": (lax.sub, np.subtract, 1),
    "multiply": (lax.mul, np.multiply, 2),
    "divide": (lax.div, np.divide, 4),
}


@DTYPES
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: np.dtype):
    function, reference, ulps = UNARY[name]
    compiled = hlo_disc.compile(function, f"{dtype}[n]")
    for size in (*SIZES, 1000):
        x = numbers(dtype, size)
        assert_close(compiled(x), reference(wide(x)), ulps)
    x = special(dtype)
    # numpy's own expm1 knows less of infinities than its exp.
    numpys = np.exp(x) - 1 if name == "expm1" else getattr(np, name, reference)(x)
    assert_one_of(compiled(x), jax.jit(function)(x), numpys)


@DTYPES
@pytest.mark.parametrize("name", WITHOUT_JAX)
def test_without_jax(name: str, dtype: np.dtype):
    reference, ulps = WITHOUT_JAX[name]
    kind = f"tensor<?xcomplex<f{dtype.itemsize * 4}>>"
    compiled = hlo_disc.compile(
        f"func.func @main(%x: {kind}) -> {kind} {{ %0 = stablehlo.{name} %x : {kind} return %0 : {kind} }}"
    )
    for size in SIZES:
        x = numbers(dtype, size)
        assert_close(compiled(x), reference(wide(x)), ulps)


@DTYPES
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, dtype: np.dtype):
    function, reference, ulps = BINARY[name]
    compiled = hlo_disc.compile(function, f"{dtype}[n]", f"{dtype}[n]")
    for size in (*SIZES, 1000):
        x, y = numbers(dtype, size), numbers(dtype, size, seed=1)
        assert_close(compiled(x, y), reference(wide(x), wide(y)), ulps)
    x, y = (np.ravel(side) for side in np.meshgrid(special(dtype), special(dtype)))
    assert_one_of(compiled(x, y), jax.jit(function)(x, y), reference(x, y), infinities_alike=name == "divide")


@DTYPES
def test_power(dtype: np.dtype):
    compiled = hlo_disc.compile(lax.pow, f"{dtype}[n]", f"{dtype}[n]")
    rng = np.random.default_rng(0)
    for size in (*SIZES, 1000):
        x, y = (rng.standard_normal((2, size, 2)) * 3).astype(dtype.type(0).real.dtype).view(dtype)[..., 0]
        assert_close(compiled(x, y), wide(x) ** wide(y), 60)
    zero = np.zeros(4, dtype)
    assert_one_of(compiled(zero, np.array([0, 2, 1 + 1j, 0.5], dtype)), np.array([1, 0, 0, 0], dtype))


@DTYPES
def test_near_one_the_logarithm_keeps_its_digits(dtype: np.dtype):
    rng = np.random.default_rng(0)
    compiled = hlo_disc.compile(lambda x: lax.real(lax.log(x)), f"{dtype}[n]")
    angle, step = rng.uniform(0, 2 * np.pi, 500), rng.standard_normal(500) * np.finfo(dtype).eps * 8
    x = ((1 + step) * np.exp(1j * angle)).astype(dtype)
    if dtype == C64:
        square = x.real.astype(float) ** 2 + x.imag.astype(float) ** 2
    else:
        square = x.real.astype(np.longdouble) ** 2 + x.imag.astype(np.longdouble) ** 2
    got, want = compiled(x), np.log1p(square - 1) / 2
    # In double precision numpy's own digits end at 1e-19.
    assert (np.abs(got - want) <= 2 * np.finfo(dtype).eps * np.abs(want) + 1e-18).all()


@DTYPES
def test_comparisons(dtype: np.dtype):
    compiled = hlo_disc.compile(lambda x, y: (x == y, x != y, jnp.where(x == y, x, -y)), f"{dtype}[n]", f"{dtype}[n]")
    x, y = (np.ravel(side) for side in np.meshgrid(special(dtype), special(dtype)))
    equal, different, chosen = compiled(x, y)
    np.testing.assert_array_equal(equal, x == y)
    np.testing.assert_array_equal(different, x != y)
    np.testing.assert_array_equal(chosen, np.where(x == y, x, -y))


@pytest.mark.parametrize("target", (C64, C128), ids=str)
@pytest.mark.parametrize(
    "source", ("bool", "int8", "uint32", "int64", "bfloat16", "float64", "complex64", "complex128")
)
def test_convert_to_complex(source: str, target: np.dtype):
    def program(x):
        return lax.convert_element_type(x, target)

    compiled = hlo_disc.compile(program, f"{source}[n]")
    for size in SIZES:
        x = jnp.asarray(numbers(C128, size) if source.startswith("c") else np.arange(size)).astype(source)
        np.testing.assert_array_equal(compiled(x), program(x))


@DTYPES
def test_moving_data(dtype: np.dtype):
    def program(x, y, i):
        z = jnp.concatenate([x, y[:, ::-1]], axis=1).T.reshape(4, -1)
        return (
            z,
            x[i],
            jnp.pad(x, ((1, 2), (0, 1)), constant_values=2 - 1j),
            lax.dynamic_slice(y, (i[0], np.int32(1)), (1, 2)),
            lax.dynamic_update_slice(x, y[:1, :2], (i[0], np.int32(0))),
            jnp.broadcast_to(x[:, None, :1], (x.shape[0], 2, 3)),
            x * jnp.array([1, 2j, 3, 4], dtype) + lax.iota(dtype, 4),
        )

    compiled = hlo_disc.compile(program, f"{dtype}[n, 4]", f"{dtype}[n, 4]", "int32[m]")
    for n, m in ((1, 1), (7, 3), (33, 5)):
        rng = np.random.default_rng(n)
        x, y = (numbers(dtype, 4 * n, seed).reshape(n, 4) for seed in (0, 1))
        i = rng.integers(0, n, m).astype(np.int32)
        for got, want in zip(compiled(x, y, i), program(x, y, i), strict=True):
            assert got.dtype == want.dtype
            assert_close(got, np.asarray(want), 2)


@DTYPES
def test_sums(dtype: np.dtype):
    def program(x):
        return x.sum(), x.sum(0), x.mean(1), jnp.abs(x).max(initial=0.0)

    compiled = hlo_disc.compile(program, f"{dtype}[m, n]")
    rng = np.random.default_rng(0)
    for m, n in ((0, 3), (1, 1), (7, 33), (33, 7), (3, 0)):
        x = (rng.standard_normal((m, n)) + 1j * rng.standard_normal((m, n))).astype(dtype)
        for got, want in zip(compiled(x), program(x), strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=100 * np.finfo(dtype).eps)


CONTRACTIONS = [
    "ij,jk->ik",
    "ij,kj->ik",
    "ji,jk->ik",
    "bij,bjk->bik",
    "bij,bkj->bik",
    "ij,kl->ikjl",
    "ij,ij->",
    "i,i->",
]


@depth.sampled(3)
@DTYPES
@pytest.mark.parametrize("text", CONTRACTIONS)
@pytest.mark.parametrize("real", ("", "left", "right"))
def test_contractions(text: str, real: str, dtype: np.dtype):
    """Complex operands are contracted with complex ones, and with real ones on either side."""
    part = "float32" if dtype == C64 else "float64"
    kinds = [part if real == "left" else dtype.name, part if real == "right" else dtype.name]

    def program(x, y):
        return jnp.einsum(text, x, y)

    left, right = text.split("->")[0].split(",")
    specs = [f"{kind}[{', '.join(axes)}]" for kind, axes in zip(kinds, (left, right), strict=True)]
    compiled = hlo_disc.compile(program, *specs)
    for sizes in (dict(b=1, i=1, j=1, k=1, l=1), dict(b=3, i=7, j=33, k=5, l=2), dict(b=2, i=3, j=0, k=4, l=1)):
        rng = np.random.default_rng(0)
        arrays = []
        for kind, axes in zip(kinds, (left, right), strict=True):
            shape = [sizes[a] for a in axes]
            x = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if kind.startswith("c") else 0)
            arrays.append(x.astype(kind))
        want = np.einsum(text, *(x.astype(np.complex128) for x in arrays))
        got = compiled(*arrays)
        assert got.dtype == dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=0, atol=200 * np.finfo(dtype).eps)


def test_arguments_and_results():
    compiled = hlo_disc.compile(lambda x, s: (x, x * s, x), "c64[n]", "complex64[]")
    x = np.arange(5, dtype=C64) + 2j
    for given in (x, jnp.asarray(x), np.arange(10, dtype=C64)[::2] + 2j):
        same, twice, again = compiled(given, 2j)
        np.testing.assert_array_equal(same, np.asarray(given))
        np.testing.assert_array_equal(again, np.asarray(given))
        np.testing.assert_array_equal(twice, np.asarray(given) * 2j)
    assert isinstance(compiled(jnp.asarray(x), 2j)[0], jax.Array)
    assert compiled.memory(n=10).outputs == 240

    @jax.jit
    def inside(x):
        return call_in_jit(compiled.native, compiled.content, x, jnp.asarray(2j, C64))[1] + 1

    np.testing.assert_array_equal(inside(x), x * 2j + 1)


def random(rng: np.random.Generator, *shape: int, dtype: np.dtype = C64) -> np.ndarray:
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def convolution(x, w, **options):
    return lax.conv_general_dilated(x, w, (2, 1), "SAME", **options)


LAYOUT = ("NHWC", "HWIO", "NHWC")
# name: (program, specs with the size n, arrays for n)
PROGRAMS: dict[str, tuple[Callable, list[str], Callable[[np.random.Generator, int], list]]] = {
    "product": (lambda x: x.prod(0), ["complex64[n, 3]"], lambda r, n: [random(r, n, 3) * 0.9]),
    "cumulative sum": (lambda x: jnp.cumsum(x, 0), ["complex64[n, 3]"], lambda r, n: [random(r, n, 3)]),
    "cumulative product": (
        lambda x: jnp.cumprod(x, 0),
        ["complex64[n, 3]"],
        lambda r, n: [random(r, n + 1, 3) * 0.6],
    ),
    "sort": (jnp.sort, ["complex64[n]"], lambda r, n: [random(r, n)]),
    "sort by a key": (
        lambda k, x: lax.sort((k, x), num_keys=1),
        ["float32[n]", "complex64[n]"],
        lambda r, n: [random(r, n).real, random(r, n)],
    ),
    "scatter": (
        lambda x, u: (x.at[jnp.array([0, 2, 0])].add(u), x.at[jnp.array([1, 0, 1])].multiply(u)),
        ["complex64[n, 3]", "complex64[3, 3]"],
        lambda r, n: [random(r, n + 3, 3), random(r, 3, 3)],
    ),
    "largest": (
        lambda x: (jnp.argmax(jnp.abs(x)), jnp.max(x)),
        ["complex64[n]"],
        lambda r, n: [random(r, n + 1)],
    ),
    "scan": (
        lambda x: lax.scan(lambda c, v: (c * v + 1j, jnp.abs(c)), jnp.ones(3, C64), x),
        ["complex64[n, 3]"],
        lambda r, n: [random(r, n, 3) * 0.5],
    ),
    "loop": (
        lambda x: lax.while_loop(lambda c: jnp.abs(c[0]) < 100, lambda c: (c[0] * (1 + 1j), c[1] * 0.5j), (1 + 0j, x)),
        ["complex64[n]"],
        lambda r, n: [random(r, n)],
    ),
    "condition": (
        lambda x, p: lax.cond(p, lambda v: v * 2j, lambda v: v + 1, x),
        ["complex64[n]", "bool[]"],
        lambda r, n: [random(r, n), np.array(n > 1)],
    ),
    "fourier": (
        lambda x: jnp.fft.ifft(jnp.fft.fft(x) * 2) + jnp.fft.fft(x.real),
        ["complex64[m, n]"],
        lambda r, n: [random(r, 3, n + 1)],
    ),
    "convolution": (
        lambda x, w: convolution(x, w, dimension_numbers=LAYOUT),
        ["complex64[n, 8, 8, 4]", "complex64[3, 3, 4, 6]"],
        lambda r, n: [random(r, n, 8, 8, 4), random(r, 3, 3, 4, 6)],
    ),
    "convolution in groups": (
        lambda x, w: convolution(x, w, feature_group_count=2),
        ["complex64[n, 4, 8, h]", "complex64[6, 2, 3, 3]"],
        lambda r, n: [random(r, n, 4, 8, 9), random(r, 6, 2, 3, 3)],
    ),
    "convolution of reals": (
        lambda x, w: convolution(x.real + 0j, w, dimension_numbers=LAYOUT),
        ["complex64[n, 8, 8, 4]", "complex64[3, 3, 4, 6]"],
        lambda r, n: [random(r, n, 8, 8, 4), random(r, 3, 3, 4, 6)],
    ),
    "solve": (
        jnp.linalg.solve,
        ["complex64[n, n]", "complex64[n, 2]"],
        lambda r, n: [random(r, n, n) + 9 * np.eye(n, dtype=C64), random(r, n, 2)],
    ),
    "inverse functions": (
        lambda x: jnp.arccos(x) + jnp.arcsinh(x) + jnp.sinh(x) + jnp.cosh(x) + jnp.arctanh(x),
        ["complex64[n]"],
        lambda r, n: [random(r, n)],
    ),
    "gradient": (
        jax.grad(lambda x: jnp.abs(jnp.exp(x * 1j)).sum() + (x * x.conj()).real.sum()),
        ["complex64[n]"],
        lambda r, n: [random(r, n)],
    ),
    "softmax of sizes": (
        lambda x, w: jax.nn.softmax(jnp.abs(x @ w), axis=-1) * jnp.exp(1j * jnp.angle(x @ w)),
        ["complex64[n, k]", "complex64[k, 8]"],
        lambda r, n: [random(r, n, 16), random(r, 16, 8)],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str):
    program, specs, arguments = PROGRAMS[name]
    compiled = hlo_disc.compile(program, *specs)
    for size in (1, 2, 7, 33):
        arrays = arguments(np.random.default_rng(size), size)
        found, expected = (jax.tree.leaves(f(*arrays)) for f in (compiled, jax.jit(program)))
        for got, want in zip(found, expected, strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


def test_what_has_no_meaning_is_an_error():
    text = """
    func.func @main(%x: tensor<?xcomplex<f32>>) -> tensor<?xcomplex<f32>> {
      %0 = stablehlo.floor %x : tensor<?xcomplex<f32>>
      return %0 : tensor<?xcomplex<f32>>
    }
    """
    with pytest.raises((CompileError, hlo_disc.errors.ParseError), match="floor"):
        hlo_disc.compile(text)
