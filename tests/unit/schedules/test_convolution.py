"""Convolutions through the whole compiler: each binary at many sizes, against XLA and the numpy reference."""

from __future__ import annotations

import functools
from typing import Any

import depth
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparison.by_xla import at_each
from graphs.dhlo import make_graph

import hlo_disc
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import ShapeError

NHWC, NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")
# (batch, height, width): 1, 0, primes, more than a panel of columns, more than a chunk of rows.
IMAGES = [(1, 7, 9), (2, 5, 3), (1, 1, 1), (0, 4, 4), (2, 0, 5), (1, 23, 31), (3, 12, 70)]
# Attributes, the kernel's (height, width, in, out), how many features images have.
CASES: dict[str, tuple[dict[str, Any], tuple[int, ...], int]] = {
    "same": ({"padding": "SAME"}, (3, 3, 3, 70), 3),
    "valid": ({"padding": "VALID"}, (2, 3, 5, 4), 5),
    "pointwise": ({"padding": "VALID"}, (1, 1, 16, 40), 16),
    "strides": ({"padding": [(1, 1), (1, 1)], "window_strides": (2, 3)}, (3, 3, 8, 64), 8),
    "strided pointwise": ({"padding": "VALID", "window_strides": (2, 2)}, (1, 1, 8, 20), 8),
    "few features": ({"padding": "SAME"}, (3, 3, 16, 2), 16),
    "one feature": ({"padding": "SAME"}, (3, 3, 1, 1), 1),
    "kernel dilation": ({"padding": [(4, 4), (2, 2)], "rhs_dilation": (3, 2)}, (3, 3, 4, 9), 4),
    "holes": ({"padding": [(2, 2), (1, 3)], "lhs_dilation": (2, 3)}, (3, 4, 4, 9), 4),
    "holes and strides": (
        {"padding": [(2, 1), (0, 3)], "lhs_dilation": (3, 2), "window_strides": (2, 2)},
        (4, 3, 4, 9),
        4,
    ),
    "holes, cut": ({"padding": [(-1, 3), (2, -2)], "lhs_dilation": (2, 2)}, (2, 2, 4, 9), 4),
    "cut": ({"padding": [(-1, 2), (0, -1)]}, (2, 1, 4, 6), 4),
    "groups": ({"padding": "SAME", "feature_group_count": 3}, (3, 3, 2, 12), 6),
    "depthwise": ({"padding": "SAME", "feature_group_count": 20}, (3, 3, 1, 20), 20),
    "depthwise, two each": ({"padding": "SAME", "feature_group_count": 5, "window_strides": (2, 1)}, (3, 3, 1, 10), 5),
    "depthwise, far outside": (
        {"padding": [(5, 4), (3, 0)], "feature_group_count": 20, "rhs_dilation": (2, 1), "window_strides": (1, 3)},
        (3, 3, 1, 20),
        20,
    ),
    "depthwise, cut": ({"padding": [(-1, 2), (1, -1)], "feature_group_count": 6}, (3, 2, 1, 6), 6),
    "depthwise, holes": (
        {"padding": [(2, 2), (1, 3)], "feature_group_count": 6, "lhs_dilation": (2, 3)},
        (3, 3, 1, 6),
        6,
    ),
    "one feature a group": ({"padding": "SAME", "feature_group_count": 3}, (3, 3, 4, 3), 12),
}


def conv(attributes: dict[str, Any], names: tuple[str, str, str]) -> Any:
    spatial = len(names[0]) - 2
    attributes = {"window_strides": (1,) * spatial} | attributes
    return lambda x, w: jax.lax.conv_general_dilated(x, w, dimension_numbers=names, **attributes)


def normal(seed: int, *sizes: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(sizes, np.float32)


def compare(got: Any, want: Any, inner: int) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape and got.dtype == want.dtype
    np.testing.assert_allclose(
        got, want, rtol=0, atol=4e-6 * max(inner, 16) ** 0.5 * max(np.abs(want).max(initial=0), 1)
    )


@functools.lru_cache(maxsize=64)
def convolved(case: str, image: tuple[int, int, int]) -> np.ndarray | None:
    """Return XLA's result, for both layouts; None where it refuses."""
    attributes, kernel, features = CASES[case]
    try:
        return np.asarray(conv(attributes, NHWC)(normal(1, *image, features), normal(0, *kernel)))
    except (ValueError, TypeError):
        return None


@depth.sampled(2)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("case", CASES)
def test_attributes(case: str, layout: str) -> None:
    """Kernels are passed once as numpy arrays, and again and again as jax.Arrays, which are packed."""
    attributes, kernel, features = CASES[case]
    fn = conv(attributes, NHWC if layout == "NHWC" else NCHW)
    w = normal(0, *kernel)
    dims = "(b, h, w, _)"
    if layout == "NCHW":
        w, dims = np.ascontiguousarray(w.transpose(3, 2, 0, 1)), "(b, _, h, w)"
    compiled = hlo_disc.jit(fn, dims={"x": dims})
    packed = jnp.asarray(w)
    for image in IMAGES:
        x, want = normal(1, *image, features), convolved(case, image)
        x = x if layout == "NHWC" else np.ascontiguousarray(x.transpose(0, 3, 1, 2))
        if want is None:  # padding cuts more than there is
            with pytest.raises(ShapeError):
                compiled(x, w)
            continue
        want = want if layout == "NHWC" else want.transpose(0, 3, 1, 2)
        inner = int(np.prod(kernel[:3]))
        compare(compiled(x, w), want, inner)
        for _ in range(2):
            compare(compiled(x, packed), want, inner)
    assert compiled.stats().compilations == 1


@pytest.mark.parametrize(
    "names, kernel, attributes, sizes",
    [
        (("NC", "OI", "NC"), (9, 4), {"padding": []}, [(b, 4) for b in (0, 1, 7)]),
        (("NWC", "WIO", "NWC"), (5, 4, 9), {"padding": "SAME"}, [(b, n, 4) for b, n in ((0, 3), (1, 1), (2, 200))]),
        (("NCW", "OIW", "NCW"), (9, 4, 5), {"padding": "VALID"}, [(b, 4, n) for b, n in ((0, 3), (1, 7), (2, 200))]),
        (("WNC", "IWO", "CNW"), (4, 5, 9), {"padding": "SAME"}, [(n, b, 4) for b, n in ((3, 1), (1, 7), (2, 70))]),
        (
            ("NDHWC", "DHWIO", "NDHWC"),
            (2, 3, 2, 4, 9),
            {"padding": "SAME", "window_strides": (1, 2, 1)},
            [(1, d, h, 6, 4) for d, h in ((1, 1), (3, 8), (9, 2))],
        ),
        (
            ("NCDHW", "OIDHW", "NCDHW"),
            (9, 4, 2, 3, 2),
            {"padding": [(0, 1), (1, 1), (1, 0)], "lhs_dilation": (1, 2, 1)},
            [(2, 4, d, h, 6) for d, h in ((1, 1), (3, 8), (9, 2))],
        ),
    ],
)
def test_spatial_dims(
    names: tuple[str, str, str], kernel: tuple[int, ...], attributes: dict[str, Any], sizes: list[tuple[int, ...]]
) -> None:
    fn = conv(attributes, names)
    w = normal(0, *kernel)
    moving = [len({size[a] for size in sizes}) > 1 for a in range(len(sizes[0]))]
    spec = ", ".join(f"n{a}" if moves else "_" for a, moves in enumerate(moving))
    compiled = hlo_disc.jit(fn, dims={"x": f"({spec})"})
    for size in sizes:
        x = normal(1, *size)
        compare(compiled(x, w), fn(x, w), int(np.prod(kernel)))
    assert compiled.stats().compilations == 1


@pytest.mark.parametrize("strides, dims", [((1, 1), "(b, h, w, _)"), ((2, 1), "(b, _, w, _)")])
@pytest.mark.parametrize("kernel", [(3, 3, 6, 8), (3, 3, 2, 9), (3, 3, 1, 6)])
def test_gradients(kernel: tuple[int, ...], strides: tuple[int, int], dims: str) -> None:
    """JAX's gradients use batch groups, reversed and dilated windows, and kernels that are activations of any size."""

    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        groups, pads = x.shape[-1] // w.shape[2], [(1, 1), (1, 1)]
        y = jax.lax.conv_general_dilated(x, w, strides, pads, dimension_numbers=NHWC, feature_group_count=groups)
        return (y * y).sum()

    grad, w = jax.grad(loss, argnums=(0, 1)), normal(0, *kernel) * np.float32(0.3)
    compiled = hlo_disc.jit(grad, dims={"x": dims})
    calls = [[normal(1, b, height, width, 6), w] for b, height, width in ((2, 8, 9), (1, 8, 1), (3, 8, 5))]
    for call, wanted in zip(calls, at_each(grad, calls), strict=True):
        for got, want in zip(compiled(*call), wanted, strict=True):
            compare(got, want, 9 * call[0].size // 6)
    assert compiled.stats().compilations == 1


def test_window_reversal() -> None:
    text = """
    func.func public @main(%x: tensor<?x?x3xf32>, %w: tensor<4x3x5xf32>) -> tensor<?x?x5xf32> {
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
        window = {pad = [[2, 1]], reverse = [true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<?x?x3xf32>, tensor<4x3x5xf32>) -> tensor<?x?x5xf32>
      return %0 : tensor<?x?x5xf32>
    }"""
    executable = hlo_disc.compile(text)
    w = normal(0, 4, 3, 5)
    turned = conv({"padding": [(2, 1)]}, ("NWC", "WIO", "NWC"))
    for b, n in ((1, 1), (2, 9), (0, 3)):
        x = normal(1, b, n, 3)
        compare(executable(x, w), turned(x, w[::-1]), 12)


def test_a_spatial_size_that_is_always_0() -> None:
    """A size is always 0 where the kernel is longer than the axis that it is moved over, which is 4 wide."""
    names = ("WDNCH", "WHIDO", "WNHDC")
    strided = {"padding": [(1, 1), (0, 0), (1, 0)], "window_strides": (2, 1, 2)}
    fn = conv(strided | {"lhs_dilation": (2, 1, 1), "rhs_dilation": (1, 2, 1)}, names)
    compiled = hlo_disc.jit(fn, dims={"x": "(s, _, s, _, _)"})
    for size in (3, 1, 8):
        x, w = normal(0, size, 4, size, 1, 4), normal(1, 3, 3, 1, 2, 2)
        compare(compiled(x, w), fn(x, w), 18)


def test_computed_padding() -> None:
    """SAME padding of a dynamic size is an operand in StableHLO."""
    fn = conv({"padding": "SAME", "window_strides": (3, 2)}, NHWC)
    compiled, w = hlo_disc.jit(fn, dims={"x": "(_, h, w, _)"}), normal(0, 4, 3, 2, 5)
    for height, width in ((1, 1), (2, 9), (8, 16), (7, 17)):
        x = normal(1, 1, height, width, 2)
        compare(compiled(x, w), fn(x, w), 24)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint16", "int64", "float16", "bfloat16", "float64"])
def test_element_types(dtype: str) -> None:
    def fn(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(x, w, (1, 2), "SAME", dimension_numbers=NHWC)

    with jax.enable_x64(True):
        compiled = hlo_disc.jit(fn, dims={"x": "(b, h, w, _)"})
        for b, height, width in ((1, 5, 6), (2, 1, 1), (0, 3, 3)):
            x, w = (jnp.asarray(normal(i, *size) * 9).astype(dtype) for i, size in enumerate(
                ((b, height, width, 3), (3, 3, 3, 5))))  # fmt: skip
            got, want = np.asarray(compiled(x, w)), np.asarray(fn(x, w))
            assert got.dtype == want.dtype
            if np.dtype(dtype).kind in "iu":
                np.testing.assert_array_equal(got, want)
            else:
                tolerance = {"float64": 1e-13, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
                room = tolerance * max(np.abs(want.astype(np.float64)).max(initial=0), 1)
                np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=0, atol=room)


def test_norm_relu_and_residual_join_the_kernel() -> None:
    def fn(x: jax.Array, w: jax.Array, scale: jax.Array, bias: jax.Array, residual: jax.Array) -> jax.Array:
        y = jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=NHWC)
        return jax.nn.relu(y * scale + bias + residual)

    w, scale, bias = normal(0, 1, 1, 8, 24), normal(2, 24), normal(3, 24)
    compiled = hlo_disc.jit(fn, dims={"x": "(b, h, w, _)", "residual": "(b, h, w, _)"})
    for b, height, width in ((1, 5, 6), (2, 1, 1), (0, 3, 3)):
        args = normal(1, b, height, width, 8), w, scale, bias, normal(4, b, height, width, 24)
        compare(compiled(*args), fn(*args), 16)
    assert "1 launches" in compiled.lower(*args).compile().explain(full=True)


def test_errors_name_the_op() -> None:
    bad = """
    func.func public @main(%x: tensor<1x8x4xf32>, %w: tensor<3x3x5xf32>) -> tensor<1x6x5xf32> {
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {}
        {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<1x8x4xf32>, tensor<3x3x5xf32>) -> tensor<1x6x5xf32>
      return %0 : tensor<1x6x5xf32>
    }"""
    with pytest.raises(hlo_disc.errors.HloDiscError):
        hlo_disc.compile(bad)
    attrs: dict[str, Any] = {
        "lhs_spec": (0, 2, 1), "rhs_spec": (2, 1, 0), "out_spec": (0, 2, 1), "strides": (1,), "low": (Dim.const(0),),
        "high": (Dim.const(0),), "base_dilations": (1,), "window_dilations": (1,), "reversal": (),
        "feature_groups": 1, "batch_groups": 1, "dtype": np.dtype(np.float32),
    }  # fmt: skip
    for wrong, text in (
        ({}, "input features"),
        ({"strides": (0,)}, "must be positive"),
        ({"out_spec": (0, 1)}, "must name every axis"),
        ({"reversal": (1,)}, "reversal"),
        ({"batch_groups": 2, "feature_groups": 2}, "at least one of them must be 1"),
    ):
        with pytest.raises(hlo_disc.errors.HloDiscError, match=text) as error:
            make_graph(
                [("float32", "b, n, 4"), ("float32", "3, 3, 5")],
                lambda b, x, w, wrong=wrong: b.op("convolution", [x, w], "model.py:7", **attrs | wrong),
            )
        assert "convolution" in str(error.value) and "model.py:7" in str(error.value)


def test_a_depthwise_convolution_is_one_kernel() -> None:
    """A depthwise convolution reads its windows from memory.

    So the ops before it are not computed again for each offset, and the ops behind it join its kernel.
    """
    names = {"dimension_numbers": NHWC, "feature_group_count": 24}
    scales = [normal(n, 24) for n in range(3)]
    kernels = [normal(n, size, size, 1, 24) for n, size in enumerate((3, 5, 3))]

    def fn(x: Any) -> Any:
        x = jnp.exp(x)
        for w, scale in zip(kernels, scales, strict=True):
            x = jax.nn.relu6(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", **names) * scale)
        return x

    compiled = hlo_disc.jit(fn, dims={"x": "(b, h, w, _)"})
    x = normal(3, 2, 9, 11, 24)
    compare(compiled(x), jax.jit(fn)(x), 25)
    assert "4 launches" in str(compiled.explain(full=True))
