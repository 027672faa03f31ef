"""Linear algebra: JAX's LAPACK calls, StableHLO's cholesky and triangular_solve, at many sizes from one binary."""

from __future__ import annotations

import ctypes
import itertools
import mmap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import depth
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from comparison.by_xla import at_each
from forked import holds_in_child
from jax import lax
from jax._src.lax import linalg

import hlo_disc
from hlo_disc.errors import CallError, ShapeError, UnsupportedOpError

DTYPES = ("float32", "float64", "complex64", "complex128")
SQUARE = ((3, 5, 5), (1, 1, 1), (2, 17, 17), (0, 4, 4), (3, 0, 0))
WIDE_AND_TALL = ((3, 5, 3), (2, 3, 7), (1, 1, 1), (0, 4, 4), (3, 3, 0), (2, 0, 3))
TALL = ((3, 5, 3), (1, 1, 1), (2, 17, 9), (0, 4, 4), (3, 3, 0))


@pytest.fixture(autouse=True)
def wide_types() -> Any:
    with jax.enable_x64(True):
        yield


def anything(shape: Sequence[int], dtype: str) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else x).astype(dtype)


def positive(shape: Sequence[int], dtype: str) -> np.ndarray:
    """Hermitian and positive definite."""
    x = anything(shape, dtype)
    return (x @ x.conj().swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def hermitian(x: jax.Array) -> jax.Array:
    return x + jnp.swapaxes(x, -1, -2).conj()


def check(
    f: Callable[..., Any], dims: str, shapes: Sequence[Sequence[int]], make: Callable, dtype: str, *constraints: str
) -> None:
    """Compare one binary of `f` with jax.jit at every shape."""
    spec = jax.ShapeDtypeStruct(shapes[0], dtype)
    exe = hlo_disc.compile(lambda x: f(x), spec, dims={"x": dims}, constraints=constraints)
    tolerance = 2e-5 if np.finfo(dtype).eps > 1e-10 else 1e-12
    calls = [[make(shape, dtype)] for shape in shapes]
    for (x,), wanted in zip(calls, at_each(f, calls), strict=True):
        ours, expected = jax.tree.leaves(exe(x)), jax.tree.leaves(wanted)
        assert len(ours) == len(expected)
        for a, b in zip(ours, map(np.asarray, expected), strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max(initial=1))


def eigenspaces(x: jax.Array) -> tuple[jax.Array, ...]:
    """Return what does not depend on the signs of eigenvectors, which are those of the library on this machine."""
    vectors, values = lax.linalg.eigh(x)
    whole = (vectors * values[..., None, :].astype(x.dtype)) @ vectors.conj().swapaxes(-1, -2)
    return jnp.abs(vectors), values, whole


CASES: dict[str, tuple[Callable[..., Any], str, Sequence[Sequence[int]], Callable]] = {
    "lu": (lax.linalg.lu, "(b, n, n)", SQUARE, anything),
    "lu of any shape": (lax.linalg.lu, "(b, n, m)", WIDE_AND_TALL, anything),
    "eigh": (lambda x: eigenspaces(hermitian(x)), "(b, n, n)", SQUARE, anything),
    "eig": (lax.linalg.eig, "(b, n, n)", SQUARE, anything),
    "schur": (lax.linalg.schur, "(b, n, n)", SQUARE, anything),
    "hessenberg": (lax.linalg.hessenberg, "(b, 6, 6)", ((3, 6, 6), (0, 6, 6), (1, 6, 6)), anything),
    "tridiagonal": (lambda x: lax.linalg.tridiagonal(hermitian(x)), "(b, n, n)", SQUARE[:4], anything),
    "cholesky": (lax.linalg.cholesky, "(b, n, n)", SQUARE, positive),
    "cholesky of others": (lambda x: lax.linalg.cholesky(-x), "(b, n, n)", SQUARE, positive),
    "svd": (lax.linalg.svd, "(b, n, m)", WIDE_AND_TALL, anything),
    "svd, singular values": (lambda x: jnp.linalg.svd(x, compute_uv=False), "(b, n, m)", WIDE_AND_TALL, anything),
    "svd, thin": (lambda x: lax.linalg.svd(x, full_matrices=False), "(b, n, m)", WIDE_AND_TALL, anything),
    "svd by QR": (
        lambda x: lax.linalg.svd(x, algorithm=lax.linalg.SvdAlgorithm.QR), "(b, n, m)", WIDE_AND_TALL, anything
    ),
    "solve": (lambda x: jnp.linalg.solve(x, x + 1), "(b, n, n)", SQUARE, positive),
    "inv": (jnp.linalg.inv, "(b, n, n)", SQUARE, positive),
    "det": (jnp.linalg.det, "(b, n, n)", SQUARE, positive),
    "slogdet": (jnp.linalg.slogdet, "(b, n, n)", SQUARE, positive),
    "tridiagonal_solve": (
        lambda x: lax.linalg.tridiagonal_solve(x[..., 0], x[..., 1] + 8, x[..., 2], x), "(b, n, 4)",
        ((3, 5, 4), (1, 1, 4), (2, 17, 4), (0, 4, 4), (3, 0, 4)), anything,
    ),
}  # fmt: skip


def _types(name: str, number: int) -> Sequence[str]:
    """Return all types where the calls differ by type, else one of each class; without `--full` of one class."""
    return DTYPES if name in ("lu", "eigh", "eig", "svd") else depth.some(DTYPES[::3], number)


_RUNS = [(name, dtype) for number, name in enumerate(CASES) for dtype in _types(name, number)]


@pytest.mark.parametrize("name, dtype", _RUNS)
def test_jax(name: str, dtype: str) -> None:
    f, dims, shapes, make = CASES[name]
    check(f, dims, shapes, make, dtype)


@pytest.mark.parametrize("dtype", DTYPES[::3])
@pytest.mark.parametrize("full", [False, True])
def test_qr(dtype: str, full: bool) -> None:
    check(lambda x: lax.linalg.qr(x, full_matrices=full), "(b, n, m)", TALL, anything, dtype, "m <= n")


@pytest.mark.parametrize("dtype", ["complex128"])
@pytest.mark.parametrize("left, lower, transpose, unit", list(itertools.product([False, True], repeat=4)))
def test_triangular_solve_of_jax(dtype: str, left: bool, lower: bool, transpose: bool, unit: bool) -> None:
    options = {"left_side": left, "lower": lower, "transpose_a": transpose, "unit_diagonal": unit}
    check(lambda x: lax.linalg.triangular_solve(x, x, **options), "(b, n, n)", SQUARE, positive, dtype)


def test_hessenberg_needs_a_size_that_is_a_number() -> None:
    def f(a):
        return lax.linalg.hessenberg(a)

    with pytest.raises(ShapeError, match=r"hessenberg takes no symbolic size.*float32\[n,n\]"):
        hlo_disc.compile(f, "f32[n, n]")
    for dims in (None, {"a": "(n, n)"}):
        found = hlo_disc.jit(f, dims=dims)
        for n in (3, 5, 3, 1):
            x = positive((n, n), "float32")
            for got, want in zip(found(x), jax.jit(f)(x), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        assert (found.stats().compilations, found.stats().fallbacks) == (3, ())
        assert found.stats().records[1].asked[0].startswith("n == 5" if dims else "a.shape[0] == 5")


def test_every_routine_is_jaxlibs_bit_for_bit() -> None:
    """Every routine is called with jaxlib's arguments. Numbers that are not finite are no trap."""

    def f(x: jax.Array, wide: jax.Array) -> list[Any]:
        lowered = [lax.linalg.svd(y, full_matrices=full) for y in (x, wide) for full in (True, False)]
        by_qr = [lax.linalg.svd(y, algorithm=lax.linalg.SvdAlgorithm.QR) for y in (x, wide)]
        pivoted = [lax.linalg.qr(y, pivoting=True) for y in (x, wide)]
        nan = [
            lax.linalg.eig(x.at[1, 4, 4].set(jnp.nan)),
            lax.linalg.svd(wide * jnp.inf),
            lax.linalg.cholesky(x * jnp.nan),
        ]
        return [lowered, by_qr, pivoted, lax.linalg.schur(x), lax.linalg.tridiagonal(x, lower=False), nan]

    def products(x: jax.Array, wide: jax.Array) -> Iterator[jax.Array]:
        reflectors = linalg.geqrf(x)
        for left, y in ((True, wide), (False, jnp.swapaxes(wide, -1, -2))):
            for transpose in (True, False):
                yield linalg.ormqr(*reflectors, y, left=left, transpose=transpose)

    for dtype in DTYPES:
        x, wide = anything((2, 9, 9), dtype), anything((2, 9, 12), dtype)
        ours, expected = (jax.tree.leaves(g(x, wide)) for g in (hlo_disc.jit(f), jax.jit(f)))
        # LAPACK writes to the reflectors and takes it back: XLA must not make two products of the same at once.
        ours += hlo_disc.jit(lambda x, wide: list(products(x, wide)))(x, wide)
        expected += list(map(np.asarray, products(x, wide)))
        for a, b in zip(ours, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_reflectors_are_only_read() -> None:
    """Others may read reflectors at the same time, so they are only read. Here their memory cannot be written."""

    def f(x: jax.Array, taus: jax.Array, y: jax.Array) -> jax.Array:
        return linalg.ormqr(x.T, taus, y, left=True, transpose=True)  # with x where it is

    x, y = anything((9, 9), "float32"), anything((9, 4), "float32")
    reflectors, taus = map(np.asarray, linalg.geqrf(x))
    executable = hlo_disc.compile(f, "f32[n, n]", "f32[n]", "f32[n, m]")
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    memory[: reflectors.nbytes] = reflectors.T.tobytes()
    address = np.frombuffer(memory, np.float32).ctypes.data
    locked = np.frombuffer(memory, np.float32, reflectors.size).reshape(9, 9)
    assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ)
    assert holds_in_child(lambda: executable(locked, taus, y) is not None)


_MATRIX = ("tensor<3x3xf32>", "tensor<3x3xf32>, tensor<i32>")
_LOWER = "uplo = 76 : ui8"
_MODE = "the results of a singular value decomposition have other sizes than its mode says"
WRONG = [
    ("spotrf", "tensor<2x3xf32>", _MATRIX[1], _LOWER, r"operand 0 has shape \(2, 3\), of which dimension 1 must have"),
    ("spotrf", "tensor<3x3xf64>", _MATRIX[1], _LOWER, "operand 0 has type float64, and .* takes float32"),
    ("spotrf", "tensor<3xf32>", _MATRIX[1], _LOWER, r"operand 0 has shape \(3,\), and .* more dimensions"),
    ("spotrf", *_MATRIX, "uplo = 77 : ui8", "uplo is character 77, must be one of LU"),
    ("spotrf", *_MATRIX, "uplo = 76 : i8", "attribute uplo has another type"),
    ("spotrf", *_MATRIX, "", "no attribute uplo"),
    ("spotrf", _MATRIX[0], "tensor<3x3xf32>, tensor<3xi32>", _LOWER, r"result 1 has shape \(3,\), .* not batched"),
    ("spotrf", _MATRIX[0], "tensor<3x3xf32>, tensor<i32>, tensor<i32>", _LOWER, "another number of results"),
    ("sgetrf", _MATRIX[0], "tensor<3x3xf32>, tensor<2xi32>, tensor<i32>", "", r"result 1 has shape \(2,\), .* size 3"),
    ("sgehrd", _MATRIX[0], "tensor<3x3xf32>, tensor<2xf32>, tensor<i32>", "low = 1 : i32, high = 9 : i32", "no range"),
    ("sgesdd", _MATRIX[0], "tensor<3x3xf32>, tensor<3xf32>, tensor<3x3xf32>, tensor<2x3xf32>, tensor<i32>",
     "mode = 65 : ui8", _MODE),
]  # fmt: skip


@pytest.mark.parametrize("name, operand, results, config, message", WRONG)
def test_calls_that_lapack_would_end_the_process_for(
    name: str, operand: str, results: str, config: str, message: str
) -> None:
    first, *others = results.split(", ")
    text = f"""
    func.func @main(%a: {operand}) -> {first} {{
      %r:{1 + len(others)} = "stablehlo.custom_call"(%a) {{call_target_name = "lapack_{name}_ffi",
        api_version = 4 : i32, backend_config = {{{config}}}}} : ({operand}) -> ({results})
      return %r#0 : {first}
    }}"""
    exe = hlo_disc.compile(text)
    (row,) = exe.program.inputs
    with pytest.raises(CallError, match=f"custom_call @lapack_{name}_ffi .*INVALID_ARGUMENT: .*{message}"):
        exe(np.ones([int(d) for d in row.shape], row.dtype))


def test_lapack_after_saving_and_loading(tmp_path: Path) -> None:
    exe = hlo_disc.compile(lax.linalg.cholesky, jax.ShapeDtypeStruct((3, 3), "float32"), dims={"x": "(n, n)"})
    exe.save(tmp_path / "cholesky.disc")
    x = positive((6, 6), "float32")
    np.testing.assert_array_equal(hlo_disc.load(tmp_path / "cholesky.disc")(x), exe(x))


# ------------------------------------------------------------------------------------------------- StableHLO's own ops

_ELEMENTS = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "complex64": "complex<f32>",
    "complex128": "complex<f64>",
}  # fmt: skip


def cholesky(dtype: str, lower: bool, shape: str = "(b, n, n)") -> str:
    kind = f"tensor<?x?x?x{_ELEMENTS[dtype]}>"
    return f"""
    func.func public @main(%a: {kind} {{hlo_disc.shape = "{shape}"}}) -> {kind} {{
      %l = "stablehlo.cholesky"(%a) <{{lower = {str(lower).lower()}}}> : ({kind}) -> {kind}
      return %l : {kind}
    }}"""


@pytest.mark.parametrize("dtype", _ELEMENTS)
@pytest.mark.parametrize("lower", [False, True])
def test_cholesky(dtype: str, lower: bool) -> None:
    exe = hlo_disc.compile(cholesky(dtype, lower))
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    for shape in SQUARE:
        a = positive(shape, dtype if dtype in DTYPES else "float32").astype(kind)
        wide = a.astype("complex128" if kind.kind == "c" else "float64")
        factor = np.linalg.cholesky(wide) if a.size else wide
        expected = factor if lower else factor.conj().swapaxes(-1, -2)
        # Only one triangle counts.
        other = np.triu(np.full(a.shape, np.nan), 1)
        a = a + (other if lower else other.swapaxes(-1, -2)).astype(kind)
        np.testing.assert_allclose(
            exe(a).astype(wide.dtype),
            expected,
            rtol=20 * float(ml_dtypes.finfo(kind).eps),
            atol=float(ml_dtypes.finfo(kind).eps) * 8,
        )


def test_cholesky_of_matrices_that_are_not_positive_definite() -> None:
    a = np.stack([np.eye(3), -np.eye(3), 2 * np.eye(3)]).astype("float32")
    y = hlo_disc.compile(cholesky("float32", True))(a)
    assert np.isnan(y[1]).all() and np.isfinite(y[[0, 2]]).all()


_TRANSPOSES = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
_SOLVES = [("complex64", *rest) for rest in itertools.product(_TRANSPOSES, *[(False, True)] * 3)]
_SOLVES += [(dtype, "TRANSPOSE", True, lower, False) for dtype in _ELEMENTS for lower in (False, True)]


@pytest.mark.parametrize("dtype, transpose, left, lower, unit", _SOLVES)
def test_triangular_solve(dtype: str, transpose: str, left: bool, lower: bool, unit: bool) -> None:
    element = _ELEMENTS[dtype]
    kinds = f"tensor<?x?x?x{element}>"
    flags = f"left_side = {str(left).lower()}, lower = {str(lower).lower()}, unit_diagonal = {str(unit).lower()}"
    text = f"""
    func.func public @main(%a: {kinds} {{hlo_disc.shape = "(b, n, n)"}},
                           %b: {kinds} {{hlo_disc.shape = "({"b, n, m" if left else "b, m, n"})"}}) -> {kinds} {{
      %x = "stablehlo.triangular_solve"(%a, %b) <{{{flags}, transpose_a = #stablehlo<transpose {transpose}>}}>
        : ({kinds}, {kinds}) -> {kinds}
      return %x : {kinds}
    }}"""
    exe = hlo_disc.compile(text)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    eps = float(ml_dtypes.finfo(kind).eps)
    for b, n, m in ((2, 4, 3), (1, 1, 1), (3, 9, 5), (0, 3, 2), (2, 0, 3), (2, 3, 0)):
        whole = anything((b, n, n), dtype if dtype in DTYPES else "float32") / 4 + 2 * np.eye(n)
        a = (np.tril(whole) if lower else np.triu(whole)).astype(kind)
        rhs = anything((b, n, m) if left else (b, m, n), dtype if dtype in DTYPES else "float32").astype(kind)
        wide = a.astype("complex128" if kind.kind == "c" else "float64")
        if unit:
            wide = wide * (1 - np.eye(n)) + np.eye(n)
        turned = {"NO_TRANSPOSE": wide, "TRANSPOSE": wide.swapaxes(-1, -2), "ADJOINT": wide.conj().swapaxes(-1, -2)}
        op, right = turned[transpose], rhs.astype(wide.dtype)
        if left:
            expected = np.linalg.solve(op, right)
        else:
            expected = np.linalg.solve(op.swapaxes(-1, -2), right.swapaxes(-1, -2)).swapaxes(-1, -2)
        np.testing.assert_allclose(
            exe(a, rhs).astype(wide.dtype), expected, rtol=0, atol=64 * eps * np.abs(expected).max(initial=1)
        )


def test_sizes_that_do_not_fit() -> None:
    exe = hlo_disc.compile(cholesky("float32", True, "(b, n, m)"))
    with pytest.raises(ShapeError, match="cholesky.*rows and columns must be equal.* 2 and 3"):
        exe(np.ones((1, 2, 3), np.float32))


def test_integers_are_refused() -> None:
    text = cholesky("float32", True).replace("xf32>", "xi32>")
    with pytest.raises((UnsupportedOpError, hlo_disc.ParseError)):
        hlo_disc.compile(text)
