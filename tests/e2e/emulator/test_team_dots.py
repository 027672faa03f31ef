"""Dots of a GPU whose tiles are shared by teams, thread by thread: layouts, types and sizes around the tiles."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import depth
import emulated
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from comparison.by_xla import at_each
from jax import lax
from traffic import SECTOR, counted

import hlo_disc
from hlo_disc.device import Tile
from hlo_disc.targets import registry
from hlo_disc.targets.gpu import nvptx
from hlo_disc.targets.gpu.cuda import NVIDIA
from hlo_disc.targets.gpu.rocm import AMD
from hlo_disc.targets.gpu.vendor import Vendor

ORDERS = (0, -1, 7)
SIZES = ((1, 1, 1), (3, 5, 7), (64, 16, 64), (65, 17, 63), (8, 100, 132), (130, 33, 4), (127, 12, 129))
EMPTY = ((4, 0, 5), (0, 3, 4), (3, 4, 0))
TYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "i32": np.int32,
    "i8": np.int8,
}


# Of operands of these types sums are made of products of small matrices.
MATRICES = (
    (NVIDIA, "f16"), (NVIDIA, "f32"), (NVIDIA, "f64"), (NVIDIA, "i8"), (AMD, "f16"), (AMD, "f32"), (AMD, "f64"),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Form:
    """A form of a dot. dtype: of operands where others have f32. matrix: whether small matrices are multiplied."""

    vendor: Vendor
    tile: Tile
    dtype: str
    matrix: bool

    def __str__(self) -> str:
        kind = f"{self.vendor.driver.api}_{self.dtype}_" * self.matrix
        return f"{kind}{self.tile.rows}x{self.tile.cols}x{self.tile.depth}"

    @property
    def rounds(self) -> bool:
        """Whether operands are rounded to TF32."""
        return self.matrix and self.vendor is NVIDIA and self.dtype == "f32"

    def multiplied(self, xs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return arguments as the kernel multiplies them: it rounds the first two or not."""
        return rounded(xs) if self.rounds else list(xs)

    def specs(self, specs: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(spec.replace("f32", self.dtype) for spec in specs)


def tf32(x: np.ndarray) -> np.ndarray:
    """Numbers of f32 rounded to 11 digits, ties away from zero."""
    bits = x.view(np.uint32)
    return np.where(np.isnan(x), x, ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32))


def rounded(xs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return arguments of which the first two, which are multiplied, are rounded to TF32."""
    return [tf32(x) if k < 2 else x for k, x in enumerate(xs)]


FORMS = [
    *(Form(NVIDIA, tile, "f32", False) for tile in nvptx.DEVICE.tiles),
    *(Form(vendor, tile, dtype, True) for vendor, dtype in MATRICES for tile in vendor.device.matrix_tiles),
]


@pytest.fixture(params=FORMS, ids=str)
def form(request, monkeypatch) -> Iterator[Form]:
    """Give the target "tiled" this form alone, for all sizes, and enough fast memory for it whatever the types."""
    vendor, tile = request.param.vendor, dataclasses.replace(request.param.tile, least=0)
    monkeypatch.setattr(registry, "_TARGETS", dict(registry._TARGETS))
    only = {"matrix_tiles": (tile,)} if request.param.matrix else {"tiles": (tile,), "matrix": ()}
    device = dataclasses.replace(vendor.device, fast_limit=227 << 10, **only)
    registry.register("tiled", lambda: emulated.Emulated(dataclasses.replace(vendor, device=device)))
    with jax.enable_x64(request.param.dtype == "f64"):
        yield request.param
    emulated.emulator().simt_order(0)


def contract(*numbers: Any) -> Callable[..., Any]:
    return lambda x, y: lax.dot_general(x, y, numbers, preferred_element_type=x.dtype)


def windows(x, y):
    return lax.conv_general_dilated(x, y, (1, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "rows and columns": (lambda x, y: x @ y, ("f32[m, k]", "f32[k, n]")),
    "rows transposed": (lambda x, y: x.T @ y, ("f32[k, m]", "f32[k, n]")),
    "columns transposed": (lambda x, y: x @ y.T, ("f32[m, k]", "f32[n, k]")),
    "both transposed": (lambda x, y: x.T @ y.T, ("f32[k, m]", "f32[n, k]")),
    "f64": (lambda x, y: x @ y, ("f64[m, k]", "f64[k, n]")),
    "bf16": (lambda x, y: x @ y, ("bf16[m, k]", "bf16[k, n]")),
    "f16 to f32": (
        lambda x, y: lax.dot(x, y, preferred_element_type=np.float32),
        ("f16[m, k]", "f16[k, n]"),
    ),
    "i32": (lambda x, y: x @ y, ("i32[m, k]", "i32[k, n]")),
    "i8": (lambda x, y: x @ y.T, ("i8[m, k]", "i8[n, k]")),
    "epilogue": (lambda x, y, z: jax.nn.gelu(x @ y + z), ("f32[m, k]", "f32[k, n]", "f32[n]")),
    "transposed result": (lambda x, y, z: (x @ y).T * z, ("f32[m, k]", "f32[k, n]", "f32[m]")),
    "batch": (contract(([2], [1]), ([0], [0])), ("f32[3, m, k]", "f32[3, k, n]")),
    "batch last": (contract(([1], [0]), ([2], [2])), ("f32[m, k, 3]", "f32[k, n, 3]")),
    "two contracted": (contract(([1, 2], [2, 0]), ([], [])), ("f32[m, 3, k]", "f32[k, n, 3]")),
    "a row": (lambda x, y: x @ y, ("f32[k]", "f32[k, n]")),
    "a column": (lambda x, y: x @ y, ("f32[m, k]", "f32[k]")),
    "one sum": (lambda x, y: x @ y, ("f32[k]", "f32[k]")),
    "outer": (jnp.outer, ("f32[m]", "f32[n]")),
    "same": (lambda x, y: x @ y.T, ("f32[m, k]", "f32[m, k]")),
    "slices": (lambda x, y: x[1:, ::2] @ y[::-1], ("f32[m + 1, 2*k]", "f32[k, n]")),
    "windows": (windows, ("f32[2, m, k, 3]", "f32[2, 3, 3, 5]")),
}  # fmt: skip

LAYOUTS = ("rows and columns", "columns transposed", "rows transposed", "both transposed", "epilogue", "batch")


def arrays(specs: tuple[str, ...], m: int, k: int, n: int) -> list[np.ndarray]:
    rng, made = np.random.default_rng(m + n), []
    for spec in specs:
        name, shape = spec.rstrip("]").split("[")
        shape = [eval(size, {"m": m, "k": k, "n": n}) for size in shape.split(", ")]
        dtype = np.dtype(TYPES[name])
        if dtype.kind == "i":
            made.append(rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True))
        else:
            made.append(rng.standard_normal(shape).astype(dtype))
    return made


def fits(form: Form, name: str) -> bool:
    """Return whether a program has dots of such a form. Most programs run only with the smallest tile of matrices."""
    if not form.matrix:
        return True
    kinds = {spec.split("[")[0].replace("bf16", "f16") for spec in form.specs(PROGRAMS[name][1])}
    smallest = form.tile == form.vendor.device.matrix_tiles[-1]
    return (
        kinds == {form.dtype}
        and (smallest or name in LAYOUTS)
        and not (form.dtype == "i8" and name in ("epilogue", "windows"))
    )


def pairs(names: Sequence[str]) -> list[Any]:
    """Return forms with programs. Without `--full` each form has a third of its programs, and the next form others."""
    found = []
    for number, form in enumerate(FORMS):
        fitting = [name for name in names if fits(form, name)]
        found += [pytest.param(form, name, id=f"{form}-{name}") for name in depth.some(fitting, number, 3)]
    return found


@functools.cache
def expected_of(name: str, specs: tuple[str, ...], rounds: bool) -> dict[tuple[int, int, int], np.ndarray]:
    """Return XLA's result at each size for operands that are rounded to TF32 or not."""
    sizes = (*SIZES, *(EMPTY if name != "windows" else ()))
    calls = [arrays(specs, *size) for size in sizes]
    results = at_each(PROGRAMS[name][0], map(rounded, calls) if rounds else calls)
    return dict(zip(sizes, map(np.asarray, results), strict=True))


@depth.sampled(3)
@pytest.mark.parametrize("form, name", pairs(list(PROGRAMS)), indirect=["form"])
def test_dots(form, name):
    function, specs = PROGRAMS[name]
    specs = form.specs(specs)
    with jax.enable_x64("f64" in specs[0]):
        executable = hlo_disc.compile(function, *specs, target="tiled")
        by_matrices = form.matrix and name != "outer" and not (form.rounds and name == "windows")
        assert ("mma" in executable.explain(full=True)) == by_matrices
        rounds = form.rounds and by_matrices
        for number, ((m, k, n), expected) in enumerate(expected_of(name, specs, rounds).items()):
            for order in depth.some(ORDERS, number):
                emulated.emulator().simt_order(order)
                result = np.asarray(executable(*arrays(specs, m, k, n)))
                emulated.check()
                assert result.shape == expected.shape and result.dtype == expected.dtype
                compare(result, expected, (m, k, n), order)


def compare(result: np.ndarray, expected: np.ndarray, *where: Any) -> None:
    """Check that results are equal but for the order of the sums."""
    if result.dtype.kind == "i":
        np.testing.assert_array_equal(result, expected, str(where))
        return
    rounding = float(ml_dtypes.finfo(result.dtype).eps)
    scale = max(1.0, float(np.abs(expected.astype(np.float64)).max(initial=0)))
    np.testing.assert_allclose(
        result.astype(np.float64), expected.astype(np.float64), rtol=0, atol=8 * rounding * scale, err_msg=str(where)
    )


@depth.sampled(3)
def test_infinite_and_not_a_number_stay_in_their_rows_and_columns(form):
    if form.dtype == "i8":
        pytest.skip("of floats only")
    executable = hlo_disc.compile(lambda x, y: x @ y, *form.specs(("f32[m, k]", "f32[k, n]")), target="tiled")
    dtype = TYPES[form.dtype]
    x, y = np.ones((67, 19), dtype), np.ones((19, 66), dtype)
    x[66, 18], y[18, 65], y[3, 1] = np.nan, np.inf, -np.inf
    result = np.asarray(executable(x, y))
    emulated.check()
    np.testing.assert_array_equal(result, np.asarray(jax.jit(lambda x, y: x @ y)(x, y)))


@depth.sampled(3)
@pytest.mark.parametrize("form", depth.some(FORMS, 0, 2), indirect=True, ids=str)
def test_long_sums_are_shared(form):
    if form.dtype == "i8":
        pytest.skip("of floats only")
    specs = form.specs(("f32[m, k]", "f32[k, n]"))
    executable = hlo_disc.compile(lambda x, y: jnp.tanh(x @ y), *specs, target="tiled")
    assert "shared if" in executable.explain(full=True)
    for k in (8191, 8192, 8205):
        x, y = (a / a.dtype.type(64) for a in arrays(specs, 5, k, 6))
        result = np.asarray(executable(x, y))
        emulated.check()
        error = 1e-3 if form.dtype == "f16" else 1e-5
        x, y = form.multiplied((x, y))
        np.testing.assert_allclose(result, np.tanh(x.astype(np.float64) @ y), atol=error)


@depth.sampled(3)
@pytest.mark.parametrize("form, name", pairs(LAYOUTS[:3]), indirect=["form"])
def test_memory_is_read_once_by_a_tile_and_banks_do_not_wait(name, form):
    function, specs = PROGRAMS[name]
    specs, tile, size = form.specs(specs), form.tile, np.dtype(TYPES[form.dtype]).itemsize
    executable = hlo_disc.compile(function, *specs, target="tiled")
    depth = tile.depth * 2 // size if form.matrix else tile.depth
    m, k, n = tile.rows, 2 * depth, tile.cols
    xs = arrays(specs, m, k, n)
    (whole,) = (record for record in counted(lambda: executable(*xs)) if record.block < 0)
    assert list(whole.sectors) == [(m * k + k * n) * size // SECTOR, m * n * size // SECTOR]
    # Of a block of 16 transposed rows some words lie in one bank.
    assert whole.conflicts == 0 or (tile.parts > 1 and name == "rows transposed" and not form.matrix)
