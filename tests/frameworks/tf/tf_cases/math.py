"""tf.math."""

import functools

import tensorflow as tf

from .case import cases

X, Y = "f32[a, b]", "f32[a, b]"
POSITIVE, UNIT, NEAR = "f32[a, b]@0.1:4", "f32[a, b]@-0.95:0.95", "f32[a, b]@1.1:5"

UNARY = [
    (name, getattr(tf.math, name), X)
    for name in (
        "abs asinh atan ceil cos cosh erf erfc exp expm1 floor negative reciprocal rint round sigmoid sign sin sinh "
        "softplus square tan tanh log_sigmoid is_finite is_inf is_nan bessel_i1e"
    ).split()
]
POSITIVES = [(name, getattr(tf.math, name), POSITIVE) for name in "lgamma digamma log log1p rsqrt sqrt".split()]
UNITS = [(name, getattr(tf.math, name), UNIT) for name in "acos asin atanh erfinv".split()]
BINARY = [
    (name, getattr(tf.math, name), ("f32[a, b]", "f32[b]"))
    for name in (
        "add subtract multiply divide divide_no_nan maximum minimum squared_difference floordiv floormod atan2 "
        "multiply_no_nan xdivy xlogy greater less_equal equal not_equal"
    ).split()
]
COMPLEX = [
    (f"{name} of {dtype}", getattr(tf.math, name), f"{dtype}[a, b]")
    for dtype in ("c64", "c128")
    for name in (
        "acos acosh asin asinh atan atanh cos cosh exp expm1 log log1p reciprocal rsqrt sigmoid sign sin sinh sqrt "
        "tan tanh"
    ).split()
]
SOME = ((3, 5), (7, 2), (1, 1), (0, 2))


def at_edges(x, y):
    """Pairs of numbers, of which some are where a function is not defined, or no more than a limit."""
    edges = tf.constant([0.0, -0.0, -1.0, float("nan"), float("inf"), 1.5, 1e-5])
    a = tf.concat([tf.reshape(x, [-1]), edges], 0)
    return a[:, None], tf.concat([edges[None, :4], y + [[0.0, 1.0, 4.0]]], 1)


REDUCED = [
    (f"reduce_{name}", functools.partial(getattr(tf.math, f"reduce_{name}"), axis=1), X)
    for name in "sum mean max min prod std variance logsumexp".split()
]

CASES = cases(
    "math",
    [
        *((n, f, x) for n, f, x in UNARY),
        *POSITIVES,
        *UNITS,
        *((n, f, x) if n not in ("xlogy",) else (n, f, ("f32[a, b]", "f32[b]@0.1:3")) for n, f, x in BINARY),
        *REDUCED,
        *COMPLEX,
        ("acosh", tf.math.acosh, NEAR),
        ("pow", tf.math.pow, (POSITIVE, "f32[a, 1]")),
        ("pow of integers", tf.math.pow, ("i32[a, b]", "i32[b]@0:4")),
        ("floordiv of integers", lambda x, y: x // (tf.abs(y) + 1), ("i32[a, b]", "i32[b]")),
        ("floordiv of bfloat16", lambda x, y: x // y, ("bf16[a, b]", "bf16[b]@1:3")),
        ("floormod of integers", lambda x, y: x % (tf.abs(y) + 1), ("i64[a, b]", "i64[b]")),
        ("truediv of integers", lambda x: x / 3, "i32[a, b]"),
        ("logical_and", tf.math.logical_and, ("bool[a, b]", "bool[b]")),
        ("logical_xor", tf.math.logical_xor, ("bool[a, b]", "bool[b]")),
        ("logical_not", tf.math.logical_not, "bool[a]"),
        ("reduce_all", lambda x: tf.math.reduce_all(x, axis=0), "bool[a, b]"),
        ("reduce_any", lambda x: tf.math.reduce_any(x, axis=-1, keepdims=True), "bool[a, b]"),
        ("reduce_sum of everything", tf.math.reduce_sum, "f32[a, b, c]"),
        ("reduce_mean kept", lambda x: tf.math.reduce_mean(x, [0, 2], keepdims=True), "f32[a, b, c]"),
        ("reduce_euclidean_norm", lambda x: tf.math.reduce_euclidean_norm(x, axis=1), X),
        ("argmax", lambda x: tf.math.argmax(x, axis=1), "f32[a, b]", ((3, 5), (6, 2), (1, 1), (0, 4))),
        ("argmin", lambda x: tf.math.argmin(x, axis=0, output_type=tf.int32), X, ((3, 5), (6, 2), (1, 1), (4, 0))),
        ("cumsum", lambda x: tf.math.cumsum(x, axis=1), X),
        ("cumsum exclusive, reversed", lambda x: tf.math.cumsum(x, 0, exclusive=True, reverse=True), X),
        ("cumprod", lambda x: tf.math.cumprod(x, axis=0), X),
        ("cumulative_logsumexp", lambda x: tf.math.cumulative_logsumexp(x, axis=1), X),
        ("top_k", lambda x: tf.math.top_k(x, k=2), X, ((3, 5), (6, 2), (1, 7), (0, 4))),
        ("top_k of half", lambda x: tf.math.top_k(x, k=tf.shape(x)[1] // 2), X),
        ("in_top_k", lambda t, x: tf.math.in_top_k(t, x, 2), ("i32[a]@0:b", "f32[a, b]"), ((3, 5), (6, 2), (1, 1))),
        (
            "in_top_k of what is not finite, or not there",
            lambda t, x: tf.math.in_top_k(t, tf.where(x > 1.5, float("inf"), x), 5),
            ("i32[a]@-1:4", "f32[a, b]"),
            ((30, 3), (6, 4), (9, 2)),
        ),
        ("zero_fraction", tf.math.zero_fraction, "f32[a, b]", ((3, 5), (6, 2), (1, 1))),
        ("l2_normalize", lambda x: tf.math.l2_normalize(x, axis=1), X),
        ("confusion_matrix", lambda x, y: tf.math.confusion_matrix(x, y, 4), ("i32[a]@0:4", "i32[a]@0:4")),
        ("segment_sum", lambda x: tf.math.segment_sum(x, tf.range(tf.shape(x)[0]) // 2), X),
        ("unsorted_segment_sum", lambda x, i: tf.math.unsorted_segment_sum(x, i, 4), ("f32[a, b]", "i32[a]@0:4")),
        ("unsorted_segment_max", lambda x, i: tf.math.unsorted_segment_max(x, i, 4), ("f32[a, b]", "i32[a]@0:4")),
        ("unsorted_segment_mean", lambda x, i: tf.math.unsorted_segment_mean(x, i, 4), ("f32[a, b]", "i32[a]@0:4")),
        ("bincount", lambda x: tf.math.bincount(x, minlength=5, maxlength=5), "i32[a]@0:5"),
        ("accumulate_n", lambda x, y: tf.math.accumulate_n([x, y, x]), (X, Y)),
        ("add_n", lambda x, y: tf.math.add_n([x, y]), (X, Y)),
        ("polyval", lambda x: tf.math.polyval([2.0, 1.0, -1.0], x), X),
        ("polygamma", lambda x: tf.math.polygamma(1.0, x), POSITIVE, ((3, 5), (1, 1), (0, 2)), 1e-4),
        ("zeta", lambda x: tf.math.zeta(x + 1.5, 1.5), POSITIVE, ((3, 5), (1, 1), (0, 2)), 1e-4),
        ("nextafter", tf.math.nextafter, (X, Y)),
        ("angle", tf.math.angle, "c64[a, b]"),
        ("conj", tf.math.conj, "c64[a, b]"),
        ("real", tf.math.real, "c64[a, b]"),
        ("imag", tf.math.imag, "c64[a, b]"),
        ("abs of complex numbers", tf.math.abs, "c64[a, b]"),
        ("bf16 sum", lambda x: tf.math.reduce_sum(x * 2, axis=1), "bf16[a, b]", ((3, 5), (1, 1), (0, 2)), 2e-2),
        ("f16 product", lambda x, y: x * y + 1, ("f16[a, b]", "f16[b]"), ((3, 5), (1, 1), (0, 2)), 2e-3),
        ("f64 exp", tf.math.exp, "f64[a, b]"),
        (
            "two unknown sizes",
            lambda x, y: x + y,
            ("f32[a, b]", "f32[c, b]"),
            ((3, 2, 3), (1, 2, 4), (3, 2, 1), (0, 2, 1)),
        ),
        ("igamma at edges", lambda x, y: tf.math.igamma(*at_edges(x, y)), (X, "f32[]@0.1:2"), SOME, 1e-4),
        ("igammac at edges", lambda x, y: tf.math.igammac(*at_edges(x, y)), (X, "f32[]@0.1:2"), SOME, 1e-4),
        ("gradient of igamma", lambda x, y: tf.raw_ops.IgammaGradA(a=x, x=y), (POSITIVE, POSITIVE), SOME, 1e-4),
        ("random_gamma_grad", lambda x, y: tf.raw_ops.RandomGammaGrad(alpha=x, sample=y), (POSITIVE,) * 2, SOME, 1e-3),
        ("betainc", tf.math.betainc, (POSITIVE, POSITIVE, "f32[a, b]@0:1"), SOME, 1e-4),
        *((name, getattr(tf.math, name), X) for name in ("bessel_i0e", "bessel_i0", "bessel_i1")),
        ("clip_by_value", lambda x: tf.clip_by_value(x, -1.0, 0.5), X),
        (
            "bitwise",
            lambda x, y: tf.bitwise.bitwise_xor(x, y) | tf.bitwise.left_shift(x, 2),
            ("i32[a, b]", "i32[b]@0:5"),
        ),
    ],
)
