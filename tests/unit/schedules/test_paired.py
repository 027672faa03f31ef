"""Dots of bf16 by the machine's products of pairs, and of small matrices in registers: odd K, all numbers of rows,
layouts of columns, packed weights, blocks of K."""

from __future__ import annotations

import itertools

import depth
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from graphs.dhlo import make_graph, sample
from hand_written.kernel_runner import levels
from jax import lax
from stages import stitched
from test_tile import dot

import hlo_disc
from hlo_disc import pipeline
from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.executable import Executable
from hlo_disc.options import Options
from hlo_disc.targets.cpu import x86

# (m, k) and (k, n) or (n, k); K = 4097 is more than a block of K, and odd.
SIZES = [*itertools.product((0, 1, 3, 7, 100), (0, 1, 2, 31, 257), (1, 16, 65, 130)), (2, 4097, 70), (97, 4097, 3)]
# Rows and K around what registers of small matrices hold.
SIZES += [(m, k, 65) for m in (15, 16, 17, 31, 32, 33, 49) for k in (32, 33, 63, 64)]
LAYOUTS = {"rows of columns": ("k, n", ((1,), (0,))), "columns of rows": ("n, k", ((1,), (1,)))}


def products(layout: str, result: str) -> Graph:
    right, contract = LAYOUTS[layout]
    inputs = [("bfloat16", "m, k"), ("bfloat16", right)]
    return make_graph(
        inputs, lambda b, x, y: dot(b, x, y, contract, dtype=np.dtype(getattr(ml_dtypes, result, result)))
    )


@pytest.fixture(params=["registers", "pairs"], autouse=True)
def machine(request, monkeypatch):
    """Run a test on this machine, and on this machine without registers of small matrices."""
    found = x86.host_features()
    if request.param == "registers" and "amx-bf16" not in found:
        pytest.skip("this machine has no registers of small matrices, or Linux does not grant them")
    if request.param == "pairs":
        monkeypatch.setattr(x86, "host_features", lambda: found - set(x86.TILES))
    x86.generator.cache_clear()
    assert x86.generator("host").device.tile_dot == (request.param == "registers")
    yield
    x86.generator.cache_clear()


@pytest.mark.parametrize("result", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_sizes(layout, result):
    graph = products(layout, result)
    for level in levels():
        executable = Executable(pipeline.compile(graph, Options(target=f"cpu:{level}")))
        for m, k, n in SIZES:
            x, y = sample(graph, dict(m=m, k=k, n=n))
            (got,) = executable.native(x, y)
            y = y.astype(np.float64)
            want = x.astype(np.float64) @ (y if layout == "rows of columns" else y.T)
            near = 2e-5 if result == "float32" else 1e-2
            np.testing.assert_allclose(got.astype(np.float64), want, rtol=near, atol=near * max(k, 1) ** 0.5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_lies_behind_an_odd_row_is_not_read(layout):
    """The element after the last one of K belongs to another row: here it is NaN."""
    graph = products(layout, "float32")
    executable = Executable(pipeline.compile(graph, Options()))
    for m, k, n in ((6, 3, 16), (1, 33, 5), (1, 1, 1)):
        x, y = sample(graph, dict(m=m, k=k, n=n))
        x[1:] = np.nan
        (got,) = executable.native(x, y)
        assert np.isfinite(got[0]).all() and np.isnan(got[1:]).all()


def test_the_instruction_is_used_where_there_is_one():
    graph = products("rows of columns", "float32")
    assert "pair_dot" in str(stitched(graph, Device(64, 32, pair_dot=True)).kernels)
    assert "tile.dot" in str(stitched(graph, Device(64, 32, pair_dot=True, tile_dot=True)).kernels)
    assert "call_intrinsic" not in str(stitched(graph, Device(64, 32)).kernels)


def test_packed_weights():
    bf16 = np.dtype(ml_dtypes.bfloat16)
    rng = np.random.default_rng(0)
    for k, n in ((257, 130), (64, 64), (1, 3), (0, 5)):
        weight = jnp.asarray(rng.standard_normal((k, n)).astype(bf16))
        for fn, y in ((lambda x, w: x @ w, weight), (lambda x, w: x @ w.T, weight.T)):
            compiled = hlo_disc.jit(fn, dims={"x": "(m, _)"})
            for m in (1, 2, 9, 100, 0):
                x = rng.standard_normal((m, k)).astype(bf16)
                want = x.astype(np.float64) @ np.asarray(weight, np.float64)
                for _ in range(3):  # the third call has the packed weight
                    got = np.asarray(compiled(x, y), np.float64)
                    np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2 * k**0.5)
            assert compiled.stats().compilations == 1


# Images (b, h, w, c), size of the window, features, stride, dilation, groups: lines of K of an odd number of elements,
# of more and fewer than a register has, rows of an image shorter than a register, more rows than a chunk.
WINDOWS = [
    ((1, 14, 14, 64), 3, 64, 1, 1, 1),
    ((2, 9, 7, 3), 7, 40, 2, 1, 1),
    ((1, 7, 7, 200), 3, 96, 1, 1, 1),
    ((3, 13, 5, 5), 3, 33, 2, 1, 1),
    ((2, 12, 9, 32), 1, 70, 2, 1, 1),
    ((2, 12, 12, 48), 3, 32, 1, 2, 1),
    ((2, 12, 12, 48), 3, 32, 1, 1, 2),
    ((4, 33, 17, 1), 3, 31, 1, 1, 1),
    ((2, 40, 24, 16), 5, 16, 1, 1, 1),
]


@depth.sampled(2)
@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_windows(case):
    (b, h, w, c), size, features, stride, dilation, groups = case

    def convolution(x, kernel):
        settings = {"rhs_dilation": (dilation, dilation), "feature_group_count": groups}
        return lax.conv_general_dilated(
            x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), **settings
        )

    rng = np.random.default_rng(0)
    depth = size * size * (c // groups)
    kernel = jnp.asarray(rng.standard_normal((size, size, c // groups, features)), jnp.bfloat16)
    compiled = hlo_disc.jit(lambda x: jax.nn.relu(convolution(x, kernel)), dims={"x": "(b, h, w, _)"})
    for shape in ((b, h, w, c), (b + 1, h + 3, w + 5, c), (1, 1, 1, c), (0, h, w, c)):
        x = jnp.asarray(rng.standard_normal(shape), jnp.bfloat16)
        want = jax.nn.relu(convolution(x.astype(jnp.float32), kernel.astype(jnp.float32)))
        got = compiled(x)
        assert got.dtype == jnp.bfloat16
        np.testing.assert_allclose(np.asarray(got, "f4"), want, rtol=1e-2, atol=1e-2 * depth**0.5)
    assert ("dot_windows" in str(compiled.explain(full=True))) == x86.generator("host").device.tile_dot


def test_what_lies_beside_a_window_is_not_read():
    """Three channels let the lines of K end within a register. What follows in the image is NaN, and is not read."""
    kernel = jnp.asarray(np.random.default_rng(0).standard_normal((3, 3, 3, 8)), jnp.bfloat16)
    compiled = hlo_disc.jit(
        lambda x: lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        dims={"x": "(b, h, w, _)"},
    )
    x = np.ones((1, 5, 6, 3), ml_dtypes.bfloat16)
    x[:, :, 4:] = np.nan
    got = np.asarray(compiled(x), "f4")
    assert np.isfinite(got[:, :, :2]).all() and np.isnan(got[:, :, 2:]).all()
    assert ("dot_windows" in str(compiled.explain(full=True))) == x86.generator("host").device.tile_dot
