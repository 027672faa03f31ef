"""Sizes as numbers: what JAX computes with Python's integers and floats, and an OverflowError where it has one.

Arrays have a second axis of 0, so that they may have any number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_disc
from hlo_disc.errors import HloDiscError, SizeOverflowError

# Where a number, its square, or half of n * (n - 1) is the last one that 8, 16 or 32 bits hold, and where f32 rounds.
SIZES = (
    *(1, 5, 127, 128, 255, 256, 32767, 32768, 32769, 46340, 46341, 46342, 65535, 65536, 65537, 2**24 + 1),
    *(2**31 - 1, 2**31, 2**31 + 1),
)
Y, SMALL = jnp.float32(3.7), jnp.array([1, -1], jnp.int8)


def rows(n: int) -> np.ndarray:
    return np.zeros((n, 0), np.float32)


def exact(x, y):
    """Return expressions that have a value at all sizes."""
    n = x.shape[0]
    return {
        "divided by the pairs": y / (n * (n - 1) / 2),
        "pairs": y * (n * (n - 1) / 2),
        "square": y * (1.0 / n**2),
        "cube": y * (1.0 / n**3),
        "reciprocal": y * (1 / n),
        "half": y + n / 2,
        "quotient": y * (n / (n + 1)),
        "of both": y * ((n + 0.5) ** 2 / (n - 1.5) - 0.25 * n),
        "negative": y * -(n / 7),
        "root": y * n**0.5,
        "reciprocal root": y * n**-0.5,
        "power": y * 0.999**n,
        "power of an array": jnp.stack([-jnp.sign(y), y * 0.27]) ** n,
        "power of a constant": SMALL ** (n + 1),
        "reciprocal of a power": jnp.power(y, -n),
        "power's derivative": jax.grad(lambda v: lax.integer_pow(v, n))(-jnp.sign(y)),
        "divided by a product": y * (1.0 / (n * n * n)),
        "divided by a sum of products": y * (3 / (n * n * n + n)),
        "floor": y * (n // 2.0),
        "rest": y * (n % 2.5) + (-n) % 2.5,
        "numpy's float": y * (n * np.float64(0.1)),
        "numpy's f32": np.float32(0.5) + n,
        "numpy's integer and a float": np.int8(3) * (n / 3),
        "quotient of numpy's integer": np.int8(7) / n,
        "numpy's array": np.arange(3) * n,
        "complex": 1j * n,
        "as it is": n / 3,
        "as an array": jnp.asarray(n / 3) * 3,
        "larger": jnp.maximum(y, n / 2),
        "f32": jnp.float32(n),
        "f32 array": jnp.array(n, jnp.float32),
        "f16": lax.convert_element_type(n / 3, jnp.float16),
        "bf16": lax.convert_element_type(n, jnp.bfloat16),
        "bf16 and a float": y.astype(jnp.bfloat16) * (n / 3),
        "lowest bits": lax.convert_element_type(n, jnp.int8),
        "filled": jnp.full(2, n, jnp.float32),
        "filled with lowest bits": jnp.full(2, n),
        "truth": jnp.asarray(n, bool),
        "beyond any diagonal": jnp.eye(3, k=n),
        "like": jnp.zeros_like(n),
        "average": jnp.average(x, returned=True)[1],
        "average of rows": jnp.average(x, axis=0, returned=True)[1],
        "divided into steps": jnp.linspace(0.0, n / 3, 4),
        "in a loop": lax.fori_loop(0, 3, lambda i, c: c + n / 2, y),
        "derivative": jax.grad(lambda v: v * v * (n * (n - 1) / 2))(y),
        "mapped": jax.vmap(lambda v: v * (n / 3))(jnp.arange(3.0) * y),
    }


def same(got: Any, want: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(want)
    theirs = dict(jax.tree.leaves_with_path(want))
    for path, ours in jax.tree.leaves_with_path(got):
        one = theirs[path]
        assert (ours.dtype, ours.shape, ours.weak_type) == (one.dtype, one.shape, one.weak_type), path
        near = 2.0**-23 if "divided" in str(path) else 0  # XLA multiplies by the reciprocal of what it knows
        np.testing.assert_allclose(np.asarray(ours), np.asarray(one), rtol=near, err_msg=str(path))


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("x64", [False, True])
def test_computed_exactly_and_rounded_once(x64: bool) -> None:
    with jax.enable_x64(x64):
        ours, theirs = hlo_disc.jit(exact, dims={"x": "(n, _)"}, fallback=False), jax.jit(exact)
        for n in SIZES if not x64 else (5, 46342, 2**31 + 1):
            got, want = ours(rows(n), Y), theirs(rows(n), Y)
            if x64:  # Python's powers are rounded right, ours within two units
                for name in ("power", "of both", "root", "reciprocal root"):
                    np.testing.assert_allclose(got.pop(name), want.pop(name), rtol=1e-13)
            same(got, want)
        assert ours.stats().compilations <= 2  # Python wants to know whether there are rows


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_without_a_call_to_go_by() -> None:
    executable = hlo_disc.compile(exact, rows(5), Y, dims={"x": "(n, _)"})
    for n in (5, 46342, 2**31 + 1):
        want = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), jax.jit(exact)(rows(n), Y))
        same(executable(rows(n), Y), want)  # no program of its own has weak types


# What a type has to hold, with the sizes around which that ends.
OVERFLOWS: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
    "int8": ((127, 128, 256), lambda x, y: jnp.int8(x.shape[0])),
    "uint8": ((255, 256, 2**31), lambda x, y: jnp.uint8(x.shape[0])),
    "int16": ((32767, 32768), lambda x, y: jnp.array(x.shape[0], jnp.int16)),
    "uint16": ((65535, 65536), lambda x, y: jnp.asarray(x.shape[0], jnp.uint16)),
    "uint32": ((2**31, 2**32 - 1, 2**32), lambda x, y: jnp.uint32(x.shape[0])),
    "of a sum": ((126, 127), lambda x, y: jnp.int8(x.shape[0] + 1)),
    "of a difference": ((127, 128, 129), lambda x, y: jnp.int8(x.shape[0] - 1)),
    "of a negative": ((128, 129), lambda x, y: jnp.int8(-x.shape[0])),
    "of a square": ((46340, 46341, 65536, 2**31), lambda x, y: jnp.asarray(x.shape[0] ** 2)),
    "of a cube": ((1290, 1291, 2**22, 2**31), lambda x, y: jnp.asarray(x.shape[0] ** 3)),
    "of part of a square": ((2**31 - 1,), lambda x, y: y / (x.shape[0] ** 2 * 3 // 2)),
    "array": ((2**31 - 1, 2**31), lambda x, y: jnp.asarray(x.shape[0])),
    "array of sizes": ((2**31 - 1, 2**31), lambda x, y: jnp.array([x.shape[0], 3])),
    "result": ((2**31 - 1, 2**31), lambda x, y: x.shape[0]),
    "times a float": ((46341, 2**31 - 1, 2**31), lambda x, y: y * x.shape[0]),
    "times an integer": ((2**31 - 1, 2**31), lambda x, y: jnp.int32(7) * x.shape[0]),
    "smaller": ((2**31 - 1, 2**31), lambda x, y: y < x.shape[0]),
    "chosen": ((2**31 - 1, 2**31), lambda x, y: jnp.where(y > 0, x.shape[0], 3)),
    "root": ((2**31 - 1, 2**31), lambda x, y: jnp.sqrt(x.shape[0])),
    "lowest bits of an array": ((300, 2**31), lambda x, y: jnp.asarray(x.shape[0]).astype(jnp.int8)),
    "product of arrays": ((46341, 65536), lambda x, y: jnp.asarray(x.shape[0]) * jnp.asarray(x.shape[0])),
    "with int8": ((127, 128), lambda x, y: jnp.int8(1) + x.shape[0]),
    "with numpy's int8": ((126, 127, 128), lambda x, y: np.int8(1) + x.shape[0]),
    "less numpy's uint8": ((255, 256), lambda x, y: x.shape[0] - np.uint8(1)),
    "with numpy's array": ((127, 128), lambda x, y: np.arange(3, dtype=np.int8) * x.shape[0]),
    "rolled": ((46341, 2**31), lambda x, y: jnp.roll(jnp.arange(3), x.shape[0])),
    "not needed": ((2**31 - 1, 2**31), lambda x, y: jnp.array_equal(x.shape[0], jnp.ones(3))),
    "without imaginary parts": ((2**31 - 1, 2**31), lambda x, y: jnp.imag(x.shape[0])),
    "square without": ((46340, 46341), lambda x, y: jnp.imag(x.shape[0] ** 2)),
    "diagonal": ((2**31 - 1, 2**31), lambda x, y: jnp.tri(3, 3, x.shape[0])),
    "filled like": ((127, 128), lambda x, y: jnp.full_like(y.astype(jnp.int8), x.shape[0])),
    "rows by int8": ((127, 128, 300), lambda x, y: x[SMALL]),
    "a row by int8": ((127, 300), lambda x, y: x[jnp.int8(-1)]),
    "rows by int16": ((32767, 32768), lambda x, y: x[SMALL.astype(jnp.int16)]),
    "added to rows": ((127, 128), lambda x, y: x.at[SMALL].add(1).sum()),
    "set rows": ((32767, 32768), lambda x, y: x.at[SMALL.astype(jnp.int16)].set(1).sum()),
    "taken around": ((127, 128), lambda x, y: jnp.take(x, SMALL, 0, mode="wrap")),
    "taken": ((127, 128), lambda x, y: jnp.take(x, SMALL, 0)),
    "sliced": ((127, 300), lambda x, y: lax.dynamic_index_in_dim(x, jnp.int8(-1))),
    "are real": ((2**31 - 1, 2**31), lambda x, y: (y, jnp.isrealobj(x.shape[0]), jnp.iscomplexobj(-x.shape[0]))),
    "numbers up to": ((2**31 - 1, 2**31), lambda x, y: jax.random.randint(jax.random.key(0), (3,), 0, x.shape[0])),
}


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("name", OVERFLOWS)
def test_overflow_errors_are_those_of_jax(name: str) -> None:
    sizes, fn = OVERFLOWS[name]
    ours, theirs = hlo_disc.jit(fn, dims={"x": "(n, _)"} if len(name) % 2 else None), jax.jit(fn)
    for n in (5, *sizes, 5):
        try:
            want = theirs(rows(n), Y)
        except OverflowError:
            with pytest.raises(OverflowError) as refused:
                ours(rows(n), Y)
            assert isinstance(refused.value, HloDiscError) or len(name) % 2 == 0  # JAX's own where a size is a number
        else:
            same(ours(rows(n), Y), want)
    assert not ours.stats().fallbacks


def test_rows_by_narrow_indices() -> None:
    """Results have the right values, and not only the right shapes."""
    fn = lambda x, i: (x[i], x.at[i].add(1.0))  # noqa: E731
    ours = hlo_disc.jit(fn, dims={"x": "(n)"})
    for n in (3, 100, 127):
        same(ours(jnp.arange(float(n)), SMALL), jax.jit(fn)(jnp.arange(float(n)), SMALL))
    with pytest.raises(
        SizeOverflowError, match=r"300 for the size n at .*test_size_numbers.py:.* int8 does not hold it"
    ):
        ours(jnp.arange(300.0), SMALL)


def test_questions_about_what_64_bits_do_not_hold() -> None:
    def fn(x, y):
        n = x.shape[0]
        y = y * 2 if n * n * n > 1000 * n else -y
        y = y + 1 if n * n < 10 * n else y
        return y * (1 / (n * n * n - 4)) + jnp.identity(n % 5).sum()

    ours, theirs = hlo_disc.jit(fn, fallback=False), jax.jit(fn)
    for n in (5, 6, 9, 40, 46341, 2**24 + 1, 2**31 - 1, 2**31, 2**31 + 1):
        np.testing.assert_allclose(ours(rows(n), Y), theirs(rows(n), Y), rtol=1e-6)
    assert ours.stats().compilations <= 4


def test_a_saved_program_says_so(tmp_path: Path) -> None:
    executable = hlo_disc.compile(lambda x: jnp.int8(x.shape[0]) + x.sum(), rows(5), dims={"x": "(n, _)"})
    executable.save(tmp_path / "one")
    for one in (executable, hlo_disc.load(tmp_path / "one")):
        assert one(rows(127)).item() == 127
        with pytest.raises(SizeOverflowError, match="128 for the size n at .*: int8 does not hold it"):
            one(rows(128))


def test_inside_of_jax_jit() -> None:
    ours = hlo_disc.jit(lambda x: x.sum() / (x.shape[0] * (x.shape[0] - 1) / 2) + jnp.int16(x.shape[0]))
    outer = jax.jit(lambda x: ours(x) * 2)
    assert outer(rows(300)) == 600
    with pytest.raises(OverflowError):
        outer(rows(2**15))


def test_a_mean_of_more_than_two_to_the_31_elements() -> None:
    def fn(x, z, y):
        return jnp.mean(jnp.broadcast_to(y, (x.shape[0], z.shape[0])))

    ours = hlo_disc.jit(fn, dims={"x": "(n, _)", "z": "(m, _)"}, fallback=False)
    for n, m in ((5, 3), (46341, 46341), (65536, 32768)):
        assert ours(rows(n), rows(m), jnp.float32(4)) == 4


def test_outside_of_traces_sizes_are_jax_own() -> None:
    hlo_disc.jit(exact)(rows(5), Y)  # has changed what it changes
    (n,) = jax.export.symbolic_shape("n")
    traced = jax.jit(lambda x: x.sum() / (x.shape[0] / 2)).trace(jax.ShapeDtypeStruct((n,), np.float32))
    assert "size_number" not in str(traced.jaxpr) and "dim_as_value" in str(traced.jaxpr)
