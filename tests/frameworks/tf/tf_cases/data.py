"""Data in another order: different elements, parts, counts, and what becomes dense."""

import tensorflow as tf

from .case import cases

raw = tf.raw_ops
LINE, NUMBERS, PARTS = "f32[a]@-2:3", "i32[a]@0:5", "i32[a]@0:3"
SIZES = ((7, 5), (1, 1), (0, 3), (13, 4), (30, 2))
X = "f32[a, b]"


def edges(x):
    """Return rounded numbers, and some that are equal, or not, to themselves and others."""
    other = tf.constant([float("nan"), 1, -0.0, 0.0, float("nan"), float("inf"), -float("inf"), 0.0])
    return tf.concat([tf.round(x), other], 0)


def parted(x, parts):
    places = tf.dynamic_partition(tf.range(tf.shape(x)[0]), parts, 3)
    rows = tf.dynamic_partition(x, parts, 3)
    return tf.dynamic_stitch(places, [row * (i + 1.0) for i, row in enumerate(rows)])


def slope(x, parts):
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = tf.reduce_sum(parted(x, parts) ** 2)
    return tape.gradient(total, x)


def updated(x, y):
    rows = raw.TensorStridedSliceUpdate(
        input=x, begin=[1, 0], end=[4, 2], strides=[2, 1], value=y[0, :2] * tf.ones([2, 2])
    )
    whole = tf.reverse(x, [0])[:-1] * 2
    return rows, raw.TensorStridedSliceUpdate(
        input=x, begin=[-1, 0], end=[0, 0], strides=[-1, 1], value=whole, end_mask=2
    )


def gathered(x):
    made = tf.TensorArray(tf.float32, 4)
    for i in range(4):
        made = made.write(i, x * i)
    return made.gather([2, 0, 3])


def segments(name, dtype):
    """Return a case of an op whose kernel is XLA's."""
    op = getattr(raw, f"Segment{name}V2")
    function = tf.function(lambda x, at: op(data=x, segment_ids=tf.sort(at), num_segments=6), jit_compile=True)
    return f"Segment{name}V2 of {dtype}", function, (f"{dtype}[a, b]", NUMBERS), SIZES


CASES = cases(
    "data",
    [
        ("unique", tf.unique, NUMBERS, SIZES),
        ("unique of floats", lambda x: tf.unique(edges(x), out_idx=tf.int64), LINE, SIZES),
        ("unique_with_counts", tf.unique_with_counts, NUMBERS, SIZES),
        ("unique along an axis", lambda x: raw.UniqueV2(x=x, axis=[0]), NUMBERS, SIZES),
        ("what follows unique", lambda x: tf.reduce_sum(tf.gather(tf.range(9.0), tf.unique(x)[0])), NUMBERS, SIZES),
        ("dynamic_partition", lambda x, at: tf.dynamic_partition(x, at, 3), (X, PARTS), SIZES),
        ("dynamic_partition of elements", lambda x: tf.dynamic_partition(x, tf.cast(x > 0, tf.int32), 2), X, SIZES),
        ("dynamic_stitch", parted, (X, PARTS), SIZES),
        ("gradient of dynamic_stitch", slope, ("f32[a, 4]", PARTS), SIZES),
        (
            "parallel_dynamic_stitch",
            lambda x: tf.dynamic_stitch([tf.argsort(x), tf.range(tf.size(x), 2 * tf.size(x))], [x, x * 2]),
            LINE,
            SIZES,
        ),
        ("ParallelDynamicStitch", lambda x: raw.ParallelDynamicStitch(indices=[tf.argsort(x)], data=[x]), LINE, SIZES),
        (
            "sparse_to_dense",
            lambda x, y: tf.compat.v1.sparse_to_dense(tf.stack([tf.range(tf.size(x)), y], 1), [40, 9], x, -1.0),
            (LINE, NUMBERS),
            SIZES,
        ),
        (
            "sparse_to_dense of a number",
            lambda x: raw.SparseToDense(sparse_indices=2, output_shape=[7], sparse_values=x, default_value=3.0),
            "f32[]",
            ((), (), ()),
        ),
        *(
            (
                f"Bucketize of {dtype}",
                lambda x: raw.Bucketize(input=x, boundaries=[-1.0, 0.1, 2, 2, 3.5]),
                f"{dtype}[a, b]",
                SIZES,
            )
            for dtype in ("f32", "f64", "i32")
        ),
        ("Bucketize at edges", lambda x: raw.Bucketize(input=edges(x), boundaries=[-1.0, 0.0]), LINE, SIZES),
        (
            "bincount",
            lambda x, w: [
                tf.math.bincount(x, minlength=3),
                tf.math.bincount(x, w),
                raw.Bincount(arr=x, size=3, weights=w),
            ],
            (NUMBERS, LINE),
            SIZES,
        ),
        (
            "bincount of rows",
            lambda x, w: [
                tf.math.bincount(x, w, axis=-1),
                tf.math.bincount(x, axis=-1, binary_output=True, minlength=9),
            ],
            ("i32[a, b]@0:7", X),
            SIZES,
        ),
        ("reverse by flags", lambda x: raw.Reverse(tensor=x, dims=[True, False]), X, SIZES),
        *(segments(name, dtype) for name in ("Sum", "Prod", "Min") for dtype in ("f32", "i32")),
        (
            "approx_max_k",
            tf.function(lambda x: [tf.math.approx_max_k(x, 2), tf.math.approx_min_k(x, 3)], jit_compile=True),
            "f32[a, 5]",
            SIZES,
        ),
        (
            "approx_max_k of columns",
            tf.function(lambda x: tf.math.approx_max_k(x, 2, 0), jit_compile=True),
            "f32[6, 5]",
            SIZES,
        ),
        ("tensor_strided_slice_update", updated, ("f32[a, 4]", "f32[b, 4]"), ((7, 2), (4, 1), (5, 3))),
        ("gather of a TensorArray", gathered, LINE, SIZES),
        (
            "SparseMatMul",
            lambda x, y: raw.SparseMatMul(a=x, b=tf.cast(y, tf.bfloat16), transpose_b=True),
            (X, "f32[4, b]"),
            SIZES,
        ),
        (
            "ToBool",
            tf.function(lambda x: [raw.ToBool(input=y) for y in (x, tf.size(x))], jit_compile=True),
            LINE,
            SIZES,
        ),
    ],
)
