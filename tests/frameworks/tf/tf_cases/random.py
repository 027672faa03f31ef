"""tf.random, from seeds: bit for bit, but for the rounding of functions."""

import tensorflow as tf

from .case import cases

raw = tf.raw_ops
GIVEN = ("f32[a, b]", "i32[2]@-90:90")
SIZES = ((3, 5), (1, 1), (0, 2), (13, 33))


def of_shape(op, **attributes):
    return lambda x, seed: op(shape=tf.shape(x), seed=seed, **attributes)


def edges(x, seed):
    """Classes whose weight is not finite are never drawn."""
    rows = tf.concat([x, x[:, :1] * float("inf"), x[:, :1] * float("nan"), x[:, :1] * 0 - float("inf")], 1)
    return tf.random.stateless_categorical(rows, tf.shape(x)[1] + 2, seed, tf.int32)


def several(x, seed):
    return tf.random.stateless_gamma([3, tf.shape(x)[0], tf.shape(x)[1]], seed, x, beta=2.0)


def poisson(x, seed, dtype=tf.float32):
    """Rates on both sides of 10, from where on counts are drawn in another way, and where there is nothing to draw."""
    rates = tf.concat([x, x[:, :1] * 0, x[:, :1] * float("inf"), x[:, :1] * 0 + 10, x[:, :1] * 1e4], 1)
    return tf.random.stateless_poisson([3, *tf.unstack(tf.shape(rates))], seed, rates, dtype)


def binomial(x, p, seed):
    """Chances around a half, and as few trials as many."""
    p = tf.concat([p, [0.0, 1.0, 0.5, float("nan"), -1.0]], 0)
    trials = tf.floor(tf.concat([x, x[:1] * 0, x[:1] * 1e3], 0))
    shape = [3, tf.shape(trials)[0], tf.shape(p)[0]]
    return tf.random.stateless_binomial(shape, seed, trials[:, None], p, tf.float32)


CASES = cases(
    "random",
    [
        *(
            (
                f"stateless_truncated_normal of {dtype.name}",
                of_shape(tf.random.stateless_truncated_normal, dtype=dtype),
                GIVEN,
                SIZES,
                error,
            )
            for dtype, error in ((tf.float32, 1e-5), (tf.float16, 2e-3), (tf.bfloat16, 2e-2))
        ),
        *(
            (f"{name} of float64", of_shape(getattr(tf.random, name), dtype=tf.float64), GIVEN, SIZES, 1e-12)
            for name in ("stateless_normal", "stateless_truncated_normal")
        ),
        *(
            (f"stateless_gamma of {alpha}", of_shape(tf.random.stateless_gamma, alpha=alpha), GIVEN, SIZES, 1e-4)
            for alpha in (0.3, 1.0, 20.0)
        ),
        ("stateless_gamma of several", several, ("f32[a, b]@0.1:3", GIVEN[1]), SIZES, 1e-4),
        (
            "stateless_poisson of integers",
            lambda x, seed: poisson(x, seed, tf.int64),
            ("f32[a, b]@0.1:25", GIVEN[1]),
            SIZES,
        ),
        ("stateless_poisson", poisson, ("f32[a, b]@0.1:25", GIVEN[1]), SIZES),
        *(
            (
                f"stateless_poisson of {dtype.name}",
                of_shape(tf.random.stateless_poisson, lam=rate, dtype=dtype),
                GIVEN,
                SIZES,
            )
            for rate, dtype in ((3, tf.int32), (30, tf.int64), (30.0, tf.float64), (200.0, tf.float16))
        ),
        ("stateless_binomial", binomial, ("f32[a]@0:90", "f32[b]@0:1", GIVEN[1]), SIZES),
        *(
            (
                f"stateless_binomial of {dtype.name}",
                of_shape(tf.random.stateless_binomial, counts=trials, probs=0.4, output_dtype=dtype),
                GIVEN,
                SIZES,
            )
            for trials, dtype in ((7.0, tf.int32), (900.0, tf.float64))
        ),
        ("StatelessTruncatedNormal", of_shape(raw.StatelessTruncatedNormal), GIVEN, SIZES),
        ("StatelessRandomNormal", of_shape(raw.StatelessRandomNormal), GIVEN, SIZES),
        *(
            (
                f"StatelessRandomUniform of {dtype.name}",
                of_shape(raw.StatelessRandomUniform, dtype=dtype),
                GIVEN,
                SIZES,
                0,
            )
            for dtype in (tf.float32, tf.float64)
        ),
        (
            "StatelessRandomUniformInt",
            lambda x, seed: raw.StatelessRandomUniformInt(
                shape=tf.shape(x), seed=seed, minval=-3, maxval=tf.size(x) + 3
            ),
            GIVEN,
            SIZES,
        ),
        ("StatelessRandomUniformFullInt", of_shape(raw.StatelessRandomUniformFullInt, dtype=tf.uint64), GIVEN, SIZES),
        (
            "StatelessRandomGetKeyCounterAlg",
            lambda _, seed: raw.StatelessRandomGetKeyCounterAlg(seed=seed),
            GIVEN,
            SIZES,
        ),
        ("stateless_categorical", lambda x, seed: tf.random.stateless_categorical(x * 4, 9, seed), GIVEN, SIZES),
        ("stateless_categorical at edges", edges, GIVEN, SIZES),
        ("stateless_shuffle", lambda x, seed: tf.random.experimental.stateless_shuffle(x, seed), GIVEN, SIZES),
        (
            "stateless_shuffle of a vector",
            lambda x, seed: tf.random.experimental.stateless_shuffle(x, seed),
            ("f32[a]", GIVEN[1]),
            SIZES,
        ),
    ],
)
