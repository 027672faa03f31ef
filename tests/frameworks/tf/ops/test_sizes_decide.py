"""Sizes that decide what a program is, or whether TensorFlow has a result: there is another program, or an error."""

import numpy as np
import pytest
import tensorflow as tf

import hlo_disc.tensorflow


def same(got, want):
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)


def some(*shape):
    return tf.reshape(tf.range(1.0, 1 + float(np.prod(shape, dtype=int))), shape)


@pytest.mark.parametrize("first", [(3, 1), (2, 3), (1, 1)])
def test_squeeze_drops_what_is_1_at_the_call(first):
    function = hlo_disc.tensorflow.jit(tf.squeeze)
    shapes = [first, (3, 1), (1, 4), (2, 3), (1, 1), (5, 7), (0, 1), (9, 1), (0, 0)]
    for shape in shapes:
        same(function(tf.zeros(shape)), tf.squeeze(tf.zeros(shape)))
    assert len(function.programs()) <= 4  # with each axis, without it


@pytest.mark.parametrize("first", [(1, 3, 1), (2, 3, 4), (1, 1, 1)])
def test_the_gradient_of_what_is_squeezed(first):
    """TensorFlow does not know the rank of the result, and so not that of the value that the gradient is of."""
    function = hlo_disc.tensorflow.jit(lambda x: tf.squeeze(x) ** 2)
    for shape in [first, (5, 1, 2), (1, 1, 3), (4, 5, 6), (0, 1, 2)]:
        x = tf.Variable(tf.reshape(tf.range(tf.reduce_prod(shape), dtype=tf.float32), shape))
        with tf.GradientTape() as tape:
            y = function(x)
        same(tape.gradient(y, x), 2 * x)


def test_what_a_squeeze_leaves_is_not_stretched():
    function = hlo_disc.tensorflow.jit(lambda x: tf.reduce_sum(tf.squeeze(x) * tf.ones([3])))
    assert function(tf.ones([3, 1])) == 3


def test_a_squeeze_of_named_axes_needs_no_other_program():
    function = hlo_disc.tensorflow.jit(lambda x: tf.squeeze(x, 1))
    for size in (3, 1, 0):
        same(function(tf.zeros([size, 1])), tf.zeros([size]))
    assert len(function.programs()) == 1


def test_a_program_is_for_the_sizes_that_it_says():
    spec = tf.TensorSpec([None, None], tf.float32)
    compiled = hlo_disc.tensorflow.compile(tf.squeeze, [spec])
    same(compiled(some(2, 3)), some(2, 3))
    with pytest.raises(hlo_disc.ShapeError, match=r"Squeeze.*d1 != 1.*which this program is for"):
        compiled(some(2, 1))


def test_a_rank_that_data_decides_is_refused():
    with pytest.raises(hlo_disc.UnsupportedOpError, match="Squeeze.*only the run knows"):
        hlo_disc.tensorflow.compile(lambda x: tf.squeeze(tf.where(x > 0)), [tf.TensorSpec([None], tf.float32)])


@pytest.mark.parametrize("form", ["NHWC", "NCHW"])
def test_groups_of_a_convolution_follow_from_the_channels(form):
    kernel = some(2, 3, 2, 6)

    def turned(x):  # TensorFlow itself runs NHWC alone here
        return x if form == "NHWC" else tf.transpose(x, [0, 3, 1, 2])

    function = hlo_disc.tensorflow.jit(lambda x: tf.nn.conv2d(x, kernel, 1, "VALID", data_format=form))
    for shape in ((2, 5, 4, 2), (2, 5, 4, 4), (1, 7, 8, 6), (3, 6, 5, 4)):
        same(function(turned(some(*shape))), turned(tf.nn.conv2d(some(*shape), kernel, 1, "VALID")))
    with pytest.raises((hlo_disc.HloDiscError, ValueError)):
        function(turned(some(2, 5, 4, 3)))


def evened(x):
    """Append a row where the number of rows is odd."""
    return tf.cond(tf.shape(x)[0] % 2 > 0, lambda: tf.concat([x, x[:1]], 0), lambda: x) * 2.0


def test_a_branch_that_sizes_choose_may_have_another_size():
    function = hlo_disc.tensorflow.jit(evened)
    for rows in (4, 3, 2, 5, 3, 0):
        same(function(some(rows, 2)), evened(some(rows, 2)))
    compiled = hlo_disc.tensorflow.compile(evened, [tf.TensorSpec([None, 2])])
    with pytest.raises(hlo_disc.ShapeError, match="whether branches and turns agree in size depends on whether"):
        compiled(some(3, 2))
        compiled(some(4, 2))


def test_a_branch_that_data_chooses_may_not():
    def cut(x):
        return tf.cond(tf.reduce_sum(x) > 0.0, lambda: x[1:], lambda: x)

    with pytest.raises(hlo_disc.UnsupportedOpError, match="branches 0 and 1 differ in the size of their result 0"):
        hlo_disc.tensorflow.jit(cut)(some(3, 2))


def test_images_that_are_halved():
    def similarity(x, y):
        return tf.image.ssim_multiscale(x, y, 1.0, power_factors=(0.5, 0.3, 0.2), filter_size=3)

    function = hlo_disc.tensorflow.jit(similarity)
    for height, width in ((24, 32), (25, 30), (26, 27), (24, 32)):
        x = tf.random.stateless_uniform([2, height, width, 3], [1, 2])
        same(function(x, x * 0.9), similarity(x, x * 0.9))


def test_padded_sizes():
    def reshaped(x):
        sizes = tf.pad(tf.shape(x), [[1, 1]], constant_values=1)
        return tf.reshape(x, sizes), tf.zeros(tf.pad(tf.shape(x)[:1], [[0, 1]]))

    function = hlo_disc.tensorflow.jit(reshaped)
    for shape in ((2, 3), (1, 4), (0, 2)):
        tf.nest.map_structure(same, function(some(*shape)), reshaped(some(*shape)))
    assert [str(x) for x in function.programs()[0].executable.program.outputs][0].startswith("float32[1, d")


class Unhashable:
    __hash__ = None

    def __init__(self, value):
        self.value = value


def test_what_has_no_hash_is_itself():
    function = hlo_disc.tensorflow.jit(lambda x, u: x * u.value)
    assert [float(function(tf.constant(1.0), Unhashable(float(v)))) for v in range(12)] == list(range(12))
    kept = Unhashable(3.0)
    before = len(function.programs())
    assert [float(function(tf.constant(v), kept)) for v in (1.0, 2.0)] == [3, 6]
    assert len(function.programs()) == before + 1


def test_population_counts_are_bytes():
    x = tf.constant([7, -1, 0, 255], tf.int32)
    same(hlo_disc.tensorflow.jit(lambda x: tf.raw_ops.PopulationCount(x=x))(x), tf.raw_ops.PopulationCount(x=x))


ROWS = "dimension 0 of the updates"
REFUSED = {
    "scatter_nd": (lambda i, x: tf.scatter_nd(i, x, [4, 2]), (3, 1), (2, 2), ROWS),
    "scatter_nd of one row": (lambda i, x: tf.scatter_nd(i, x, [4, 2]), (3, 1), (1, 2), ROWS),
    "scatter_nd of more rows": (lambda i, x: tf.scatter_nd(i, x, [4, 2]), (2, 1), (3, 2), ROWS),
    "scatter_nd of wide rows": (lambda i, x: tf.scatter_nd(i, x, [4, 2]), (2, 1), (2, 3), "dimension 1 of the updates"),
    **{
        f"tensor_scatter_nd_{kind}": (
            lambda i, x, kind=kind: getattr(tf, f"tensor_scatter_nd_{kind}")(tf.ones([4, 2]), i, x),
            (3, 1),
            (2, 2),
            ROWS,
        )
        for kind in ("add", "sub", "min", "max", "update")
    },
    "add_n": (lambda i, x: tf.add_n([tf.cast(i, tf.float32), x]), (3, 2), (3, 1), "dimension 1 of operands"),
    "select": (lambda i, x: tf.raw_ops.Select(condition=i > 0, x=tf.cast(i, tf.float32), y=x), (3, 2), (1, 2), "dim"),
    "select of rows": (
        lambda i, x: tf.raw_ops.Select(condition=i[:1, 0] > 0, x=x, y=x), (3, 1), (3, 2), "the conditions and the rows"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_agree_is_refused(name):
    function, first, second, message = REFUSED[name]
    given = tf.zeros(first, tf.int32), some(*second)
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        function(*given)
    with pytest.raises(hlo_disc.ShapeError, match=message):
        hlo_disc.tensorflow.jit(function)(*given)


def test_python_makes_something_else_of_a_size_that_is_not_known():
    """A trace without sizes serves no call for which the function gives results of another number or shape."""
    number = hlo_disc.tensorflow.jit(lambda x: [x] if x.shape[1] is None else tf.unstack(x, axis=1))
    shape = hlo_disc.tensorflow.jit(lambda x: x if x.shape[0] is None else tf.concat([x, x], 0))
    for rows, columns in ((2, 3), (5, 3), (2, 4)):
        x = tf.reshape(tf.range(float(rows * columns)), [rows, columns])
        assert [y.shape for y in number(x)] == [(rows,)] * columns
        np.testing.assert_array_equal(shape(x).numpy(), np.concatenate([x, x]))
    assert len(number.programs()) == 2  # one for each number of columns


def test_signatures_that_gave_no_program_are_not_traced_again():
    traced = []

    def function(x):
        traced.append(x.shape.as_list())
        return tf.ones(list(range(x.shape[0]))) if x.shape[0] else tf.ones([0])  # of a rank that a size says

    own = hlo_disc.tensorflow.jit(function)
    for n in (2, 3, 4):
        assert own(tf.zeros([n])).shape == tuple(range(n))
    assert traced.count([None]) == 1


def test_a_function_that_gives_something_else_each_time():
    count = iter(range(100))
    with pytest.raises(hlo_disc.ArgumentError, match="gives other results each time"):
        hlo_disc.tensorflow.jit(lambda x: [x] * next(count))(tf.ones([2]))
