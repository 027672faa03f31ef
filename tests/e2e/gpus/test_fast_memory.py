"""The fast memory that a block has: forms that fit at all sizes, and a driver that refuses the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import depth
import emulated
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_disc
from hlo_disc.errors import DeviceError, UnsupportedOpError
from hlo_disc.targets import registry
from hlo_disc.targets.gpu import amdgpu, nvptx
from hlo_disc.targets.gpu.cuda import NVIDIA

DEVICES = {"emulated-cuda": nvptx.DEVICE, "emulated-rocm": amdgpu.DEVICE}
# What a kernel of CUDA's may have without being asked.
UNASKED = 48 << 10


@pytest.fixture(autouse=True)
def registered(emulated_targets) -> Iterator[None]:
    yield
    emulated.check()


def test_a_worker_of_a_cpu_has_room_for_a_row():
    executable = hlo_disc.compile(jax.nn.softmax, "f32[m, n]")
    for n in (5, 16, 17, 300, 4099):
        bytes_ = executable.native.plan([3, n])[executable.program.env.scratch]
        assert 4 * n <= bytes_ < 4 * n + 64 and bytes_ % 64 == 0


def norm(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


# Functions of rows, and how many bytes of an element they keep.
ROWS: dict[str, tuple[Callable, str, int]] = {
    "softmax": (jax.nn.softmax, "f32[m, n]", 4),
    "log softmax of doubles": (lambda x: jax.nn.log_softmax(jnp.exp(jnp.tanh(x))), "f64[m, n]", 8),
    "norm": (norm, "f32[m, n]", 4),
    "two exponentials": (lambda x: jax.nn.softmax(x) + jax.nn.softmax(-x), "f32[m, n]", 8),
    "running sum": (lambda x: jnp.cumsum(jax.nn.softmax(x), -1), "f32[m, n]", 4),
}


@depth.sampled(2)
@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("name", ROWS)
def test_rows_of_all_lengths(name, target):
    function, spec, size = ROWS[name]
    limit = DEVICES[target].fast_limit
    with jax.enable_x64("f64" in spec):
        executable = hlo_disc.compile(function, spec, target=target)
        lengths = {n + more for n in (limit // size, UNASKED // size) for more in (-1, 0, 1, 4)}
        for n in sorted({1, 5000, *lengths}):
            x = np.random.default_rng(n).standard_normal((1, n)).astype("f8" if "f64" in spec else "f4")
            result, expected = np.asarray(executable(x)), np.asarray(jax.jit(function)(x))
            emulated.check()
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5, err_msg=str(n))


def test_what_is_kept_is_kept_as_long_as_it_fits():
    """A softmax keeps its row in fast memory as long as the row fits. Longer rows have a form that keeps nothing."""
    text = hlo_disc.compile(jax.nn.softmax, "f32[m, n]", target="emulated-cuda").explain(full=True)
    limit = nvptx.DEVICE.fast_limit
    assert f"4*n <= {limit}" in text and "unstaged" in text
    short = hlo_disc.compile(jax.nn.softmax, f"f32[m, {limit // 4}]", target="emulated-cuda").explain(full=True)
    long = hlo_disc.compile(jax.nn.softmax, f"f32[m, {limit // 4 + 1}]", target="emulated-cuda").explain(full=True)
    assert "unstaged" not in short and "unstaged" in long and "<=" not in short + long


def many(count: int) -> Callable:
    return lambda *xs: lax.sort(xs, num_keys=1)


SORTS: dict[str, tuple[Callable, tuple[str, ...], tuple[int, ...]]] = {
    "sort": (jnp.sort, ("f32[n]",), (1, 1023, 1025, 4097, 9000)),
    "sort of twelve": (many(12), ("f64[n]",) * 12, (1, 255, 257, 1025, 2050)),
    "top": (lambda x: lax.top_k(x, 3), ("f32[n + 3]",), (3, 4097, 9001)),
    "top of many": (lambda x: lax.top_k(x, 2500), ("f32[n + 2500]",), (2500, 6001)),
    "transpose of ten": (lambda *xs: sum(x.T * k for k, x in enumerate(xs, 2)), ("f64[n, 40]",) * 13, (1, 33, 70)),
}


@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("name", SORTS)
def test_rooms_of_a_fixed_size(name, target):
    function, specs, sizes = SORTS[name]
    with jax.enable_x64("f64" in specs[0]):
        executable = hlo_disc.compile(function, *specs, target=target)
        for n in sizes:
            shape = (n, 40) if "40" in specs[0] else (n,)
            rng = np.random.default_rng(n)
            xs = [rng.integers(0, 50, shape).astype("f8" if "f64" in spec else "f4") for spec in specs]
            for result, right in zip(
                jax.tree.leaves(executable(*xs)), jax.tree.leaves(jax.jit(function)(*xs)), strict=True
            ):
                np.testing.assert_array_equal(result, right, f"{n}")
            emulated.check()


@depth.sampled(2)
@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "bf16"])
def test_dots(dtype, target):
    """Dots have few rows, or enough of them for the largest tiles."""
    with jax.enable_x64():
        executable = hlo_disc.compile(lambda x, y: x @ y, f"{dtype}[m, k]", f"{dtype}[k, n]", target=target)
        for m, k, n in ((3, 200, 40), (16, 65, 33), (17, 130, 20), (1030, 9, 2050)):
            rng = np.random.default_rng(m)
            number = {"f32": "f4", "f64": "f8", "i64": "i8", "bf16": jnp.bfloat16}[dtype]
            x, y = (rng.integers(-3, 4, shape).astype(number) for shape in ((m, k), (k, n)))
            np.testing.assert_array_equal(executable(x, y), np.asarray(x.astype("f8") @ y.astype("f8")).astype(number))
            emulated.check()


def test_a_driver_refuses_more_than_there_is():
    device = dataclasses.replace(nvptx.DEVICE, fast_limit=0)
    registry.register("boundless", lambda: emulated.Emulated(dataclasses.replace(NVIDIA, device=device), 99 << 10))
    executable = hlo_disc.compile(jax.nn.softmax, "f32[m, n]", target="boundless")
    most = nvptx.DEVICE.fast_limit // 4
    np.testing.assert_allclose(np.asarray(executable(np.zeros((1, most), np.float32))), 1 / most, rtol=1e-5)
    with pytest.raises(DeviceError, match=f"cannot launch .* with {4 * most + 4} bytes of shared memory"):
        executable(np.zeros((1, most + 1), np.float32))


def test_what_fits_at_no_size_is_refused_by_name():
    device = dataclasses.replace(nvptx.DEVICE, fast_limit=1 << 10)
    registry.register("tiny", lambda: emulated.Emulated(dataclasses.replace(NVIDIA, device=device)))
    with pytest.raises(
        UnsupportedOpError, match="dot_general keeps more in fast memory than the 1024 bytes of a block"
    ):
        hlo_disc.compile(lambda x, y: x @ y, "f32[m, k]", "f32[k, n]", target="tiny")
