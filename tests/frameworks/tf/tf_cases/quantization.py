"""tf.quantization."""

import tensorflow as tf

from .case import cases

X, SIZES = "f32[a, b]@-5:5", ((20, 7), (3, 1), (1, 1), (0, 3))
q = tf.quantization
ENDS = ("f32[b]@-4:-0.1", "f32[b]@0.1:4")
ARGUMENTS = (
    {},
    {"min": -1, "max": 3, "num_bits": 4},
    {"min": 0.5, "max": 3, "narrow_range": True},
    {"min": -3, "max": -1},
)
RANGES = ((-1.0, 3.0), (0.5, 2.0), (-4.0, -1.0), (0.0, 0.0))
KINDS = (
    {},
    {"range_given": True},
    {"range_given": True, "signed_input": False},
    {"range_given": True, "narrow_range": True, "num_bits": 4},
    {"round_mode": "HALF_UP"},
)


def of_each(function, rows):
    """Return a function that calls `function` with a tensor and each row of further arguments."""
    return lambda x: [function(x, row) for row in rows]


def slopes(x, row):
    ends = [tf.constant(end) for end in row]
    with tf.GradientTape() as tape:
        tape.watch([x, *ends])
        total = tf.reduce_sum(q.fake_quant_with_min_max_vars(x, *ends) ** 2)
    return tape.gradient(total, [x, *ends])


@tf.function(jit_compile=True)
def of_channels(x, low, high):
    """Quantize with a range for each channel, by XLA: TensorFlow's kernel for the CPU refuses that."""
    return [q.quantize_and_dequantize_v2(x, low, high, range_given=given, axis=1) for given in (True, False)]


def slope(x, low, high):
    with tf.GradientTape() as tape:
        tape.watch([x, low, high])
        made = q.quantize_and_dequantize_v2(x, low, high, range_given=True)
    return tape.gradient(made, [x, low, high])


CASES = cases(
    "quantization",
    [
        (
            "fake_quant_with_min_max_args",
            of_each(lambda x, row: q.fake_quant_with_min_max_args(x, **row), ARGUMENTS),
            X,
            SIZES,
            1e-6,
        ),
        (
            "gradient of fake_quant_with_min_max_args",
            of_each(lambda x, row: q.fake_quant_with_min_max_args_gradient(tf.sin(x), x, **row), ARGUMENTS),
            X,
            SIZES,
        ),
        (
            "fake_quant_with_min_max_vars",
            of_each(lambda x, row: q.fake_quant_with_min_max_vars(x, *row, num_bits=7), RANGES),
            X,
            SIZES,
            1e-6,
        ),
        ("gradient of fake_quant_with_min_max_vars", of_each(slopes, RANGES), X, SIZES, 1e-4),
        (
            "fake_quant_with_min_max_vars_per_channel",
            q.fake_quant_with_min_max_vars_per_channel,
            (X, *ENDS),
            SIZES,
            1e-6,
        ),
        (
            "gradient of fake_quant_with_min_max_vars_per_channel",
            lambda x, low, high: q.fake_quant_with_min_max_vars_per_channel_gradient(tf.sin(x), x, low, high),
            (X, *ENDS),
            SIZES,
            1e-4,
        ),
        *(
            (
                f"quantize_and_dequantize {kind}",
                of_each(lambda x, row, kind=kind: q.quantize_and_dequantize_v2(x, *row, **kind), RANGES),
                X,
                ((20, 7), (3, 1), (1, 1)),
                1e-6,
            )
            for kind in KINDS
        ),
        ("quantize_and_dequantize of channels", of_channels, (X, *ENDS), SIZES, 1e-6),
        ("gradient of quantize_and_dequantize", slope, (X, "f32[]@-4:-1", "f32[]@1:4"), SIZES),
        (
            "quantize_and_dequantize with a number of bits",
            lambda x: tf.raw_ops.QuantizeAndDequantizeV3(input=x, input_min=-1.0, input_max=2.0, num_bits=5),
            X,
            SIZES,
            1e-6,
        ),
    ],
)
