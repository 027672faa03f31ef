"""All functions of keras.ops over TensorFlow, compiled once, next to `tf.function` at sizes that change.

A row is a name, or a name with what it is given. The arguments are arrays of n rows by their letters, `ARGUMENTS`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from keras import ops as k

import hlo_disc.tensorflow

SIZES = (3, 1, 7, 0)
rng = np.random.default_rng(0)
# By letter: what n rows are. x, y: numbers in (-1, 1); p, q: positive ones; i, j: small integers; b, c: flags.
ARGUMENTS: dict[str, Any] = {
    "x": lambda n: rng.uniform(-0.9, 0.9, (n, 4)).astype(np.float32),
    "y": lambda n: rng.uniform(-0.9, 0.9, (n, 4)).astype(np.float32),
    "p": lambda n: rng.uniform(1.1, 3.0, (n, 4)).astype(np.float32),
    "q": lambda n: rng.uniform(1.1, 3.0, (n, 4)).astype(np.float32),
    "v": lambda n: rng.uniform(-1, 1, n).astype(np.float32),
    "w": lambda n: rng.uniform(-1, 1, n).astype(np.float32),
    "i": lambda n: rng.integers(1, 9, (n, 4)).astype(np.int32),
    "j": lambda n: rng.integers(1, 5, (n, 4)).astype(np.int32),
    "s": lambda n: rng.integers(0, 3, n).astype(np.int32),
    "b": lambda n: rng.integers(0, 2, (n, 4)).astype(bool),
    "c": lambda n: rng.integers(0, 2, (n, 4)).astype(bool),
    "m": lambda n: (np.eye(4) * 3 + np.ones((n, 4, 4)) * 0.5 + rng.uniform(0, 0.1, (n, 1, 1))).astype(np.float32),
    "t": lambda n: rng.uniform(-1, 1, (n, 8, 6, 4)).astype(np.float32),
    "a": lambda n: np.where(rng.uniform(size=(n, 4)) < 0.3, np.nan, rng.uniform(-1, 1, (n, 4))).astype(np.float32),
    "z": lambda n: (rng.normal(size=(n, 4)) + 1j * rng.normal(size=(n, 4))).astype(np.complex64),
    "h": lambda n: rng.normal(size=(n, 5, 2, 4)).astype(np.float32),
    "l": lambda n: rng.normal(size=(n, 16)).astype(np.float32),
}
_UNARY = (
    "abs absolute angle arccos arcsin arcsinh arctan arctanh cbrt ceil celu conj conjugate copy cos cosh deg2rad "
    "elu erf erfc erfinv exp exp2 expm1 fabs flip fliplr flipud floor gelu glu hard_shrink hard_sigmoid hard_silu "
    "hard_swish hard_tanh i0 imag isfinite isinf isnan isneginf isposinf isreal leaky_relu log_sigmoid "
    "log_softmax nan_to_num negative normalize ones_like rad2deg ravel real relu relu6 rms_normalization "
    "layer_normalization round selu sigmoid sign signbit silu sin sinc sinh size shape ndim soft_shrink softmax "
    "softplus softsign sparse_plus sparse_sigmoid sparsemax square squareplus swish tan tanh tanh_shrink trunc "
    "zeros_like transpose sort argsort argmax argmin max min amax amin mean std var sum prod ptp cumsum cumprod "
    "median average logsumexp count_nonzero diff rot90 trace diagonal array stop_gradient view convert_to_tensor "
    "norm"
).split()
_POSITIVE = "arccosh log log10 log1p log2 reciprocal rsqrt sqrt".split()
_NANS = (
    "nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanprod nanstd nansum nanvar"
).split()
_BINARY = (
    "add arctan2 divide divide_no_nan equal fmax fmin greater greater_equal heaviside hypot isclose less "
    "less_equal logaddexp logaddexp2 maximum minimum multiply nextafter not_equal subtract true_divide mod fmod "
    "allclose"
).split()
_INTEGERS = (
    "bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor left_shift right_shift gcd lcm mod "
    "floor_divide power fmod"
).split()
_FLAGS = "logical_and logical_or logical_xor".split()
_MATRICES = "cholesky cholesky_inverse det inv logdet pinv qr slogdet".split()
_REDUCED = "max min mean std var sum prod median logsumexp argmax argmin ptp amax amin".split()
CALLS = [
    *(f"{name}(x)" for name in _UNARY),
    *(f"{name}(p)" for name in _POSITIVE),
    *(f"{name}(a, axis={axis})" for name in _NANS for axis in (0, 1, None)),
    *(f"{name}(x, y)" for name in _BINARY),
    *(f"{name}(i, j)" for name in _INTEGERS),
    *(f"{name}(b, c)" for name in _FLAGS),
    *(f"{name}(m)" for name in _MATRICES),
    *(f"{name}(x, axis={axis})" for name in _REDUCED for axis in (0, -1)),
    *(f"{name}(x, axis=1, keepdims=True)" for name in ("max", "mean", "var", "sum", "logsumexp", "median")),
    "adaptive_average_pool(t, 3)", "adaptive_max_pool(t, (2, 3))", "all(b)", "all(b, axis=0)", "any(b)",
    "any(b, axis=1)", "append(x, y)", "append(x, y, axis=0)", "arange(2, k.shape(x)[0] + 2)", "arange(k.shape(x)[0])",
    "argpartition(x, 2)", "array_split(x, 3, axis=1)", "associative_scan(lambda a, b: a + b, x, axis=0)",
    "associative_scan(lambda a, b: a * b, x, axis=1)", "average(x, axis=0, weights=q[:, 0])", "average(x, axis=1)",
    "average_pool(t, 2)", "average_pool(t, 3, 2, 'same')", "bartlett(5)", "blackman(5)", "hamming(5)", "hanning(5)",
    "kaiser(5, 2.0)", "batch_normalization(x, y[0], q[0], axis=-1)",
    "batch_normalization(x, k.mean(x, 0), k.var(x, 0), -1, y[0], q[0])",
    "binary_crossentropy(k.sigmoid(y), k.sigmoid(x))", "binary_crossentropy(k.sigmoid(y), x, from_logits=True)",
    "bincount(s, minlength=5)", "bincount(s, weights=v, minlength=5)", "bincount(i % 3, minlength=3)",
    "bitwise_invert(i)", "bitwise_not(i)", "broadcast_to(x, (2, k.shape(x)[0], 4))", "cast(x, 'int32')",
    "cast(x, 'bfloat16')", "categorical_crossentropy(k.softmax(y), k.softmax(x))",
    "categorical_crossentropy(k.softmax(y), x, from_logits=True)", "cdist(x, y)", "clip(x, -0.5, 0.25)",
    "concatenate([x, y], axis=0)", "concatenate([x, y], axis=1)", "cond(k.sum(x) > 0, lambda: x, lambda: -x)",
    "conv(t, k.ones((3, 3, 4, 2)) * 0.1)", "conv(t, k.ones((2, 2, 4, 2)), 2, 'same')",
    "conv(t, k.ones((2, 2, 4, 2)), dilation_rate=2)", "conv_transpose(t, k.ones((3, 3, 2, 4)) * 0.1, 2, 'same')",
    "conv_transpose(t, k.ones((2, 2, 2, 4)) * 0.1, 2)", "corrcoef(x)", "correlate(v, k.ones(1))",
    "correlate(v, w, mode='same')", "correlate(v, w, mode='full')", "count_nonzero(b, axis=0)",
    "cross(x[:, :3], y[:, :3])", "cumsum(x, axis=0)", "cumprod(x, axis=1)",
    "ctc_loss(i, k.tile(x[:, None], (1, 9, 3)), i[:, 0] * 0 + 4, i[:, 0] * 0 + 9)",
    "ctc_decode(h[:, :, 0], k.full((k.shape(x)[0],), 5))",
    "custom_gradient(lambda a: (a * 2, lambda *g, upstream: upstream))(x)", "depth_to_space(t, 2)",
    "space_to_depth(t, 2)", "depthwise_conv(t, k.ones((3, 3, 4, 2)) * 0.1)", "diag(v)", "diag(x)", "diagflat(v)",
    "diagonal(x)", "diagonal(m, 1, 1, 2)", "diff(x, axis=0)", "diff(x, n=2)", "digitize(x, k.array([-0.5, 0.0, 0.5]))",
    "dot(x, k.transpose(y))", "dot(v, w)", "dot_product_attention(h, h * 0.5, h + 1)",
    "dot_product_attention(h, h, h, is_causal=True)",
    "dot_product_attention(h, h, h, mask=k.ones((1, 1, 5, 5), 'bool'))", "dsplit(t, 2)", "dstack([x, y])",
    "k.sort(k.real(k.eig(m)[0]))", "eigh(m)[0]", "lu_factor(m[0])", "einsum('ij,kj->ik', x, y)",
    "einsum('...j->...', x)", "einsum('bsnh,btnh->bnst', h, h)", "zeros_like(k.empty((2, 3)))",
    "zeros_like(k.empty_like(x))", "expand_dims(x, 1)", "extract_sequences(l, 6, 3)", "eye(k.shape(x)[0])",
    "eye(3, 5, 1)", "fft((x, y))", "fft2((t[..., 0], t[..., 1]))", "ifft2((t[..., 0], t[..., 1]))", "rfft(l)",
    "rfft(l, 12)", "irfft((x, y))", "irfft(rfft_(l))", "stft(l, 6, 3, 8)", "istft(stft_(l), 6, 3, 8)",
    "flip(x, axis=0)", "floor_divide(p, q)", "fold(k.ones((2, 8, 9)), (4, 4), 2)",
    "fori_loop(0, 4, lambda i, a: a * 0.5 + k.cast(i, 'float32'), x)",
    "fori_loop(0, k.shape(x)[0], lambda i, a: a + 1.0, x)", "full((k.shape(x)[0], 2), 3.5)", "full_like(x, 2)",
    "gelu(x, approximate=False)", "geomspace(1.0, 10.0, 4)", "get_item(x, 0)",
    "get_item(x, (slice(None), slice(1, 3)))", "histogram(v, bins=4, range=(-1, 1))", "histogram(v)", "hsplit(x, 2)",
    "hstack([x, y])", "identity(4)", "in_top_k(s, x, 2)", "inner(v, w)", "inner(x, y)", "isin(i, k.array([1, 3, 5]))",
    "isin(i, j)", "is_tensor(x)", "jvp(lambda a: k.sin(a), (x,), (y,))", "kron(x, y[:2])", "ldexp(x, j)",
    "linspace(x, y, 5)", "linspace(0.0, 1.0, 7)", "logical_not(b)", "logspace(0.0, 2.0, 4)", "logspace(x, y, 3)",
    "lstsq(m[0], k.ones((4, 2)))", "map(lambda r: r * 2, x)", "matmul(x, k.transpose(y))", "matmul(m, m)",
    "matrix_rank(m)", "max(x, initial=0.5)", "min(x, axis=1, initial=0.0)", "max_pool(t, 2)",
    "max_pool(t, 3, 2, 'same')", "meshgrid(v, w)", "meshgrid(v, w, indexing='ij')", "moments(x, [0])",
    "moments(x, [0, 1], keepdims=True)", "moveaxis(t, 1, -1)", "multi_hot(i, 10)", "nan_to_num(a, 7.0)",
    "nanpercentile(a, 30, axis=1)", "nanquantile(a, 0.4, axis=0)", "nonzero(b)", "norm(x, axis=1)",
    "norm(x, ord=1, axis=0)", "norm(m, ord='fro', axis=(1, 2))", "norm(m, ord='nuc', axis=(1, 2))",
    "norm(x, ord=np.inf, axis=1)", "normalize(x, axis=0)", "normalize(x, order=1)", "one_hot(s, 4)",
    "one_hot(i, 10, axis=1)", "ones((k.shape(x)[0],))", "outer(v, w)", "pad(x, ((1, 2), (0, 3)))",
    "pad(x, ((0, 0), (1, 1)), 'reflect')", "pad(x, ((0, 0), (2, 1)), 'symmetric')",
    "pad(x, ((1, 1), (2, 0)), constant_values=2.0)", "percentile(x, 40, axis=0)", "polar(p, x)", "power(p, x)",
    "prod(x, axis=0)", "psnr(x, y, 1.0)", "qr(k.transpose(m, (0, 2, 1)), 'complete')", "quantile(x, 0.3)",
    "quantile(x, [0.2, 0.7], axis=1)", "quantile(x, 0.5, method='nearest', axis=1)",
    "rearrange(t, 'b (h u) w c -> b h w (u c)', u=2)", "repeat(x, 3)", "repeat(x, 2, axis=0)",
    "repeat(x, [1, 0, 2, 1], axis=1)", "reshape(x, (-1, 2))", "reshape(t, (k.shape(t)[0], 48, 4))", "roll(x, 2)",
    "roll(x, 1, axis=0)", "round(x, 2)", "saturate_cast(x * 500, 'int8')",
    "scan(lambda c, r: (c + r, c * r), k.zeros(4), x)", "scatter(k.reshape(s, (-1, 1)), x, (3, 4))",
    "scatter_update(x, [[0, 1]], [9.0])", "scatter_update(x, [[0, 1]], [9.0], reduction='add')",
    "searchsorted(k.array([-0.5, 0.0, 0.5]), v)", "searchsorted(k.array([-0.5, 0.0, 0.5]), v, 'right')",
    "segment_max(x, s, 3)", "segment_min(x, s, 3)", "segment_prod(x, s, 3)", "segment_sum(x, s, 3)",
    "segment_sum(x, k.sort(s), sorted=True)", "select([b, c], [x, y], 3.0)",
    "separable_conv(t, k.ones((3, 3, 4, 1)), k.ones((1, 1, 4, 2)) * 0.1)", "slice(x, (0, 1), (1, 2))",
    "slice_update(x, (0, 1), k.ones((1, 2)))", "solve(m, k.ones((k.shape(x)[0], 4, 2)))",
    "solve_triangular(k.tril(m), m, lower=True)", "sort(x, axis=0)", "argsort(x, axis=0)",
    "sparse_categorical_crossentropy(s, k.softmax(x))", "sparse_categorical_crossentropy(s, x, from_logits=True)",
    "sparsemax(x, axis=0)", "split(x, 2, axis=1)", "split(x, [1, 3], axis=1)", "squeeze(x[:, :1], 1)", "stack([x, y])",
    "stack([x, y], axis=-1)", "std(m, axis=(0, 1))", "svd(m)[1]", "svd(m, compute_uv=False)",
    "svd(m, full_matrices=False)[1]", "swapaxes(t, 1, 3)", "switch(k.shape(x)[0] % 2, [lambda a: a, lambda a: -a], x)",
    "take(x, [0, 0])", "take(x, s[:1] * 0, axis=0)", "take(x, [[0, 3]], axis=1)", "take_along_axis(x, i % 4, axis=1)",
    "tensordot(x, y, axes=2)", "tensordot(t, m, axes=[[3], [1]])", "threshold(x, 0.1, -1.0)", "tile(x, 2)",
    "tile(x, (2, 3))", "top_k(x, 2)", "top_k(x, 4)", "trace(m, 0, 1, 2)", "transpose(t, (3, 0, 2, 1))", "trapezoid(x)",
    "trapezoid(x, dx=0.5, axis=0)", "tri(3, 5, 1)", "tril(x)", "triu(m, 1)", "unfold(k.transpose(t, (0, 3, 1, 2)), 2)",
    "unique(s)", "unique(i)", "unravel_index(s, (3, 4))", "unstack(x, axis=1)", "vander(v, 4)", "var(x, axis=0)",
    "vdot(v, w)", "vectorize(lambda r: r * 2)(v)", "vectorized_map(lambda r: k.sum(r) * r, x)", "view(x, 'int32')",
    "view_as_complex(x[:, :2])", "view_as_real(z)", "vsplit(k.transpose(x), 2)", "vstack([x, y])", "where(b, x, y)",
    "where(b, x, 0.0)", "where(b)", "zeros((k.shape(x)[0], 2))",
    "while_loop(lambda a: k.sum(k.abs(a)) > 0.1, lambda a: (a * 0.5,), (x,))", "angle(z)", "conj(z)", "real(z)",
    "imag(z)", "abs(z)",
]  # fmt: skip
# What gives no tensors.
NO_OPS = {"convert_to_numpy", "dtype"}
# What is not compiled, with what the error says.
REFUSED = {"ctc_decode(": "CTCGreedyDecoder"}
# What Keras has for eager mode alone.
OUTSIDE_OF_GRAPHS = ("bartlett", "corrcoef", "digitize", "isin", "kron", "nanmedian", "nanpercentile", "nanquantile")


def called(text: str):
    """The function of a row, and its arguments' letters."""
    used = [letter for letter in ARGUMENTS if letter in compile(text, "row", "eval").co_names]
    names = {"k": k, "np": np, "rfft_": k.rfft, "stft_": lambda x: k.stft(x, 6, 3, 8)}
    code = compile(text if text.startswith("k.") else f"k.{text}", "row", "eval")

    def function(*arrays):
        made = eval(code, {**names, **dict(zip(used, arrays, strict=True))})
        return tf.nest.map_structure(lambda v: v if tf.is_tensor(v) else tf.convert_to_tensor(v), made)

    return function, used


def test_every_function_has_a_row():
    named = {name for text in CALLS for name in compile(f"k.{text}", "row", "eval").co_names} | {
        text.partition("(")[0] for text in CALLS
    }
    public = {name for name in dir(k) if not name.startswith("_") and callable(getattr(k, name))}
    assert not public - named - NO_OPS


@pytest.mark.parametrize("text", CALLS)
def test_function(text):
    function, used = called(text)
    own = hlo_disc.tensorflow.jit(function)
    refused = next((what for start, what in REFUSED.items() if text.startswith(start)), None)
    tried = 0
    for n in SIZES if "t" not in used and not text.startswith("meshgrid") else SIZES[:-1]:
        # of no elements some of TensorFlow's kernels end the process, or forget a shape
        arrays = [tf.constant(ARGUMENTS[letter](n)) for letter in used]
        try:
            expected = tf.nest.flatten(tf.function(function)(*arrays))
        except Exception:  # whatever Keras does not do in graphs, or for this size
            continue
        tried += 1
        if refused:
            with pytest.raises(hlo_disc.HloDiscError, match=refused):
                own(*arrays)
            continue
        found = tf.nest.flatten(own(*arrays))
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=3e-4, atol=3e-5)
    assert tried or text.startswith(OUTSIDE_OF_GRAPHS)
