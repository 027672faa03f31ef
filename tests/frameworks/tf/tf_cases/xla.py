"""XLA's own ops in TensorFlow's graphs, which XLA runs."""

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops as raw
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.compiler.xla import xla_data_pb2 as messages

from .case import cases

X, SIZES = "f32[a, b]", ((3, 5), (7, 2), (2, 1), (1, 4))
ROWS, NUMBERS, AT = "f32[a, 3]", "i32[b, 1]@-2:9", "i32[2]@-2:6"
SOME = ((3, 4), (1, 2), (7, 9))
F32, I32 = tf.float32, tf.int32


def scalars(function, *dtypes):
    """A function of scalars as a region."""
    return tf.function(function).get_concrete_function(*(tf.TensorSpec([], dtype) for dtype in dtypes))


def turns(function):
    specs = tf.TensorSpec([], I32), tf.TensorSpec([None, None], F32)
    return tf.function(function).get_concrete_function(*specs)


ADD = scalars(lambda a, b: a + b, F32, F32)
PRODUCTS = scalars(lambda a, b: a + b + a * b, F32, F32)
LARGER = scalars(lambda a, b: tf.maximum(a, b), F32, F32)
AT_LEAST = scalars(lambda a, b: a >= b, F32, F32)
BY_NUMBERS = scalars(lambda a, b, c, d: c > d, F32, F32, I32, I32)
PLACE = scalars(lambda a, i, b, j: (tf.where(a >= b, a, b), tf.where(a >= b, i, j)), F32, I32, F32, I32)

WINDOWS = messages.GatherDimensionNumbers(
    offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1
)
PLACES = messages.ScatterDimensionNumbers(
    update_window_dims=[1], inserted_window_dims=[0], scatter_dims_to_operand_dims=[0], index_vector_dim=1
)
BATCHES = messages.DotDimensionNumbers(
    lhs_contracting_dimensions=[1],
    rhs_contracting_dimensions=[1],
    lhs_batch_dimensions=[0],
    rhs_batch_dimensions=[0],
)
LINES = messages.ConvolutionDimensionNumbers(
    input_batch_dimension=0, input_feature_dimension=2, input_spatial_dimensions=[1],
    kernel_output_feature_dimension=2, kernel_input_feature_dimension=1, kernel_spatial_dimensions=[0],
    output_batch_dimension=0, output_feature_dimension=2, output_spatial_dimensions=[1],
)  # fmt: skip
KERNEL = tf.reshape(tf.range(12.0), [2, 3, 2])


def jitted(rows):
    return [(name, tf.function(function, jit_compile=True), *rest) for name, function, *rest in rows]


def dots(x):
    y = x[:, :, None]
    short = tf.cast(y, tf.bfloat16)
    return xla.dot_general(y, y * 2, BATCHES), xla.dot_general(short, short, BATCHES, preferred_element_type=F32)


def windows(x):
    return (
        xla.reduce_window(x, 1.0, ADD, [2, 2], [1, 1], padding=[(1, 1), (1, 0)]),
        xla.reduce_window(x, -3.0, LARGER, [1, 2], [2, 1], base_dilations=[1, 2], padding=[(0, 0), (2, 2)]),
    )


def sorts(x):
    edges = tf.constant([float("nan"), 1, -0.0, 0.0, float("inf"), -float("inf")]) + tf.zeros([tf.shape(x)[0], 1])
    numbers = tf.cast(x * 3, I32)
    return (
        tf.bitcast(xla.sort(tf.concat([x, edges], 1)), I32),
        xla.key_value_sort(x, numbers),
        xla.variadic_sort([x, numbers], 0, comparator=BY_NUMBERS, is_stable=True),
    )


def same(x):
    return (
        xla.optimization_barrier(x, x * 2),
        xla.reduce_precision(x, 5, 3),
        xla.sharding(x, sharding=""),
        raw.xla_all_reduce(x, [[0]], "Add", "CrossReplica"),
        raw.xla_set_bound(tf.shape(x)[0], 50),
        raw.xla_broadcast_helper(x, x[0], [1]),
        raw.xla_broadcast_helper(x[:, 0], x, [0]),
    )


def bits(x):
    state = tf.constant([1, 2, 3], tf.uint64)
    kinds = ((1, state, tf.uint32), (1, state, tf.uint64), (2, state[:2], tf.uint32), (3, state, tf.uint64))
    return [xla.rng_bit_generator(way, given, tf.shape(x), dtype) for way, given, dtype in kinds]


def decomposed(x):
    s, u, v = xla.svd(x, 100, 1e-6)
    return s, tf.shape(u), tf.shape(v), tf.matmul(u[:, :3] * s, v[:, :3], transpose_b=True)


def eigenvalues(x):
    values, vectors = xla.self_adjoint_eig(x + tf.transpose(x), True, 100, 1e-6)
    return values, tf.abs(vectors)


CASES = cases(
    "xla",
    jitted(
        [
            (
                "reduce",
                lambda x: [
                    xla.reduce(x, 0.0, dimensions_to_reduce=[1], reducer=ADD),
                    xla.reduce(x, 0.0, dimensions_to_reduce=[0], reducer=PRODUCTS),
                ],
                X,
                (*SIZES, (0, 3)),
                1e-4,
            ),
            (
                "variadic_reduce",
                lambda x: xla.variadic_reduce(
                    [x, tf.cast(x * 10, I32)], [-9.0, 0], dimensions_to_reduce=[1], reducer=PLACE
                ),
                X,
                SIZES,
            ),
            ("reduce_window", windows, X, SIZES),
            (
                "select_and_scatter",
                lambda x: xla.select_and_scatter(
                    x, [2, 2], [2, 2], [(0, 0), (0, 0)], x[::2, ::2], 0.5, select=AT_LEAST, scatter=ADD
                ),
                X,
                ((4, 6), (2, 2), (8, 4)),
            ),
            ("sorts", sorts, X, SIZES),
            ("gather", lambda x, at: xla.gather(x, at, WINDOWS, [1, 3]), (ROWS, NUMBERS), SOME),
            (
                "gather at known places",
                lambda x: xla.gather(x, tf.constant([[0], [9], [-1]]), WINDOWS, [1, 2]),
                ROWS,
                SOME,
            ),
            (
                "scatter",
                lambda x, at: xla.scatter(x, at, tf.ones([tf.shape(at)[0], 3]), ADD, PLACES),
                (ROWS, NUMBERS),
                SOME,
            ),
            ("dynamic_slice", lambda x, at: xla.dynamic_slice(x, at, [2, 2]), ("f32[a, 4]", AT), ((3,), (2,), (7,))),
            (
                "dynamic_slice of a known part",
                lambda x: xla.dynamic_slice(x, [1, 0], [2, 2]),
                "f32[a, 4]",
                ((3,), (2,), (7,)),
            ),
            (
                "dynamic_update_slice",
                lambda x, at: [xla.dynamic_update_slice(x, tf.ones([2, 2]), i) for i in (at, [0, 1])],
                ("f32[a, 4]", AT),
                ((3,), (2,), (7,)),
            ),
            ("pad", lambda x: xla.pad(x, 2.0, [1, -1], [0, 2], [2, 0]), X, SIZES),
            ("dot_general", dots, X, SIZES, 2e-2),
            (
                "conv",
                lambda x: [
                    xla.conv(x, KERNEL, [1], [(1, 0)], [2], [1], LINES),
                    xla.conv(
                        x, KERNEL, [2], [(0, 0)], [1], [2], LINES, preferred_element_type=F32, batch_group_count=1
                    ),
                ],
                "f32[a, b, 3]",
                ((2, 5), (1, 3), (3, 8)),
                1e-4,
            ),
            ("einsum", lambda x: raw.xla_einsum(x, x, "ij,kj->ik"), X, SIZES),
            (
                "while",
                lambda x: xla.while_loop([0, x], turns(lambda i, x: i < 3), turns(lambda i, x: (i + 1, x * 2))),
                X,
                SIZES,
            ),
            ("same", same, X, SIZES),
            (
                "concat of blocks",
                lambda x: tf.raw_ops.XlaConcatND(inputs=[x + i for i in range(6)], num_concats=[3, 2], paddings=[1, 0]),
                X,
                SIZES,
            ),
            (
                "split into blocks",
                lambda x: tf.raw_ops.XlaSplitND(input=x, num_splits=[2, 2], paddings=[1, 1], N=4),
                ROWS,
                SOME,
            ),
            ("rng_bit_generator", bits, X, SIZES),
            (
                "set_dynamic_dimension_size",
                lambda x: tf.reduce_sum(xla.set_dynamic_dimension_size(x, 0, 2), 0),
                X,
                SIZES[:3],
            ),
            ("svd", decomposed, "f32[5, 3]", ((), (), ()), 1e-4),
            ("self_adjoint_eig", eigenvalues, "f32[4, 4]", ((), (), ()), 1e-4),
        ]
    ),
)
