"""Variables that functions assign to: after a call they hold what TensorFlow leaves in them."""

import depth
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry
from tensorflow.python.framework.func_graph import FuncGraph

import hlo_disc.tensorflow
from hlo_disc.tensorflow.effects import assigning, ordered

N = (3, 1, 0, 7, 3)


class State:
    """Variables of one run."""

    def __init__(self):
        self.v = tf.Variable([1.0, 2.0])
        self.n = tf.Variable(0, dtype=tf.int64)
        self.rows = tf.Variable(tf.reshape(tf.range(12.0), [6, 2]))

    def held(self):
        return [x.numpy() for x in (self.v, self.n, self.rows)]


def before_and_after(s, x):
    old = s.v.read_value()
    s.v.assign(s.v * 2.0 + tf.reduce_sum(x))
    between = s.v * x
    s.n.assign_add(1)
    s.v.assign_sub([1.0, 1.0])
    return old, between, s.v.read_value(), s.n


def nothing_returned_needs_it(s, x):
    s.n.assign_add(tf.size(x, tf.int64))
    return tf.where(s.v.is_initialized(), x + 1.0, x)


def branch(s, x):
    if tf.reduce_sum(x) > 3.0:
        s.v.assign(s.v + 1.0)
    else:
        s.n.assign_add(10)
    return s.v * 2.0


def branches(s, x):
    def swap():
        s.v.assign(tf.reverse(s.v, [0]))
        return s.v + 0.0

    return tf.switch_case(tf.shape(x)[0] % 3, [swap, lambda: s.v + s.n.assign_add(5).shape.rank, lambda: s.v * 0.0])


def loop(s, x):
    for i in tf.range(3):
        s.v.assign(s.v + tf.cast(i, tf.float32) * tf.reduce_sum(x))
        if i == 1:
            s.n.assign(s.n * 2 + 1)
    return s.v + x


def loop_that_data_ends(s, x):
    while tf.reduce_sum(s.v) < 100.0:
        s.v.assign(s.v * 3.0)
        s.n.assign_add(1)
    return x + tf.reduce_sum(s.v)


def called(s, x):
    @tf.function
    def step(y):
        s.v.assign_add([0.5, 0.25])
        return y * s.v

    return step(x) + step(x * 2.0), s.v.read_value()


def rows_of(s, x):
    s.rows.scatter_update(tf.IndexedSlices(x, tf.range(tf.shape(x)[0]) % 3))
    s.rows.scatter_nd_add([[5], [5]], [[1.0, 2.0], [3.0, 4.0]])
    s.rows[1:5:2, 0].assign([7.0, 8.0])
    return tf.gather(s.rows, [0, 5])


def handed_on(s, x):
    with tf.control_dependencies([s.n.assign_add(3)]):
        y = tf.identity(x)
    return y + tf.cast(s.n, tf.float32)


def old_numbers(s, x):
    """The moving averages of a batch."""
    mean, squares = tf.nn.moments(x, [0])
    s.v.assign(s.v * 0.9 + tf.where(tf.math.is_finite(mean), mean, 0.0) * 0.1)
    return (x - s.v) * tf.math.rsqrt(squares + 1.0)


PROGRAMS = (
    before_and_after, nothing_returned_needs_it, branch, branches, loop, loop_that_data_ends, called, rows_of,
    handed_on, old_numbers,
)  # fmt: skip
WAYS = {
    "jit": lambda function: function,
    "in a graph": tf.function,
    "in a jit": hlo_disc.tensorflow.jit,
}


def calls(function, state, sizes=N):
    made = []
    for size in sizes:
        x = tf.reshape(tf.range(size * 2.0), [size, 2]) * 0.3
        made.append([y.numpy() for y in tf.nest.flatten(function(x))] + state.held())
    return made


@depth.sampled(2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_what_variables_hold_after_calls(program, way):
    own, theirs = State(), State()
    jitted = hlo_disc.tensorflow.jit(lambda x: program(own, x))
    found = calls(WAYS[way](lambda x: jitted(x)), own)
    for mine, other in zip(found, calls(tf.function(lambda x: program(theirs, x)), theirs), strict=True):
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    assert len(jitted.programs()) == 1 or program is branches  # of which sizes say which is taken


# ------------------------------------------------------------------------------------------------------------ each op

SCALARS = {
    "lr": 0.1, "alpha": 0.1, "beta1": 0.9, "beta2": 0.99, "beta1_power": 0.8, "beta2_power": 0.9, "epsilon": 1e-3,
    "momentum": 0.8, "rho": 0.9, "l1": 0.05, "l2": 0.1, "l2_shrinkage": 0.2, "lr_power": -0.5, "beta": 0.7,
    "sign_decay": 0.6, "logbase": 0.9,
}  # fmt: skip
RULES = sorted(name for name in assigning() if name.startswith("ResourceApply"))
OPTIONS = [(name, {}) for name in RULES] + [
    ("ResourceApplyAdam", {"use_nesterov": True}),
    ("ResourceApplyMomentum", {"use_nesterov": True}),
    ("ResourceApplyKerasMomentum", {"use_nesterov": True}),
    ("ResourceApplyAdagrad", {"update_slots": False}),
    ("ResourceApplyAdagradV2", {"update_slots": False}),
    ("ResourceApplyFtrl", {"multiply_linear_by_lr": True}),
    ("ResourceApplyFtrlV2", {"multiply_linear_by_lr": True}),
    ("ResourceApplyFtrl", {"lr_power": -0.3}),
    ("ResourceApplyAdagradDA", {"l1": 0.0}),
    ("ResourceApplyProximalAdagrad", {"l1": 0.0}),
]


@depth.sampled(2)
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=lambda x: str(x))
def test_a_step_of_an_optimizer(name, options, dtype):
    arguments = op_def_registry.get(name).input_arg
    attributes = {k: v for k, v in options.items() if k not in SCALARS}

    def step(variables, g):
        rest = iter(variables)
        given = {}
        for argument in arguments:
            if argument.type == tf.resource.as_datatype_enum:
                given[argument.name] = next(rest).handle
            elif argument.name in ("grad", "delta"):
                given[argument.name] = g
            elif argument.name == "global_step":
                given[argument.name] = tf.constant(3, tf.int64)
            else:
                given[argument.name] = tf.constant(options.get(argument.name, SCALARS[argument.name]), dtype)
        getattr(tf.raw_ops, name)(**given, **attributes)

    count = sum(argument.type == tf.resource.as_datatype_enum for argument in arguments)
    rng = np.random.default_rng(1)
    for size in (7, 1, 0):
        first = [rng.uniform(0.5, 2.0, (size, 2)) for _ in range(count)]
        grads = [rng.normal(size=(size, 2)) for _ in range(3)]
        mine, theirs = ([tf.Variable(x, dtype=dtype) for x in first] for _ in range(2))
        own = hlo_disc.tensorflow.jit(lambda g, mine=mine: step(mine, g))
        for g in grads:
            own(tf.constant(g, dtype))
            step(theirs, tf.constant(g, dtype))
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-5 if dtype == tf.float32 else 1e-10, atol=1e-6)


PLACES = ["Add", "Sub", "Mul", "Div", "Max", "Min", "Update"]


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("scalar", [False, True])
def test_rows_of_a_variable(kind, scalar):
    def step(v, at, x):
        update = tf.constant(3.0) if scalar else x
        getattr(tf.raw_ops, f"ResourceScatter{kind}")(resource=v.handle, indices=at, updates=update)

    mine, theirs = (tf.Variable(tf.reshape(tf.range(10.0), [5, 2]) + 1.0) for _ in range(2))
    own = hlo_disc.tensorflow.jit(lambda at, x: step(mine, at, x))
    for at in ([0, 3], [4], [], [2, 0, 1]):
        at = np.array(at, np.int32)
        x = tf.reshape(tf.range(len(at) * 2.0), [len(at), 2]) + 0.5
        own(tf.constant(at), x)
        step(theirs, at, x)
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6)


@pytest.mark.parametrize("kind", ["Add", "Sub", "Max", "Min", "Update"])
def test_places_of_a_variable(kind):
    def step(v, x):
        getattr(tf.raw_ops, f"ResourceScatterNd{kind}")(ref=v.handle, indices=[[1, 0], [4, 1]], updates=x[:2])

    mine, theirs = (tf.Variable(tf.reshape(tf.range(10.0), [5, 2]) + 1.0) for _ in range(2))
    hlo_disc.tensorflow.jit(lambda x: step(mine, x))(tf.constant([2.5, -3.0, 1.0]))
    step(theirs, tf.constant([2.5, -3.0, 1.0]))
    np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


def drawn(kind):
    def draw(generator, n):
        if kind == "normal":
            return generator.normal([n, 3])
        if kind == "uniform":
            return generator.uniform([n], dtype=tf.float64)
        if kind == "integers":
            return generator.uniform([n, 2], -5, 50, tf.int32)
        if kind == "all integers":
            return generator.uniform_full_int([n], tf.uint64)
        generator.skip(n)
        return generator.make_seeds(2)

    return draw


@pytest.mark.parametrize("kind", ["normal", "uniform", "integers", "all integers", "skip"])
def test_generators(kind):
    draw = drawn(kind)
    mine, theirs = (tf.random.Generator.from_seed(7, alg="philox") for _ in range(2))
    for g in (mine, theirs):  # so that the low word of the counter overflows
        g.state.assign([-300, 5, 11])
    own = hlo_disc.tensorflow.jit(lambda x: draw(mine, tf.shape(x)[0]))
    for n in (3, 1, 0, 5):
        np.testing.assert_allclose(own(tf.zeros([n])).numpy(), draw(theirs, n).numpy(), rtol=2e-6, atol=1e-6)
        np.testing.assert_array_equal(mine.state.numpy(), theirs.state.numpy())


OLD = {
    "StatefulStandardNormalV2": {"dtype": tf.float32},
    "StatefulTruncatedNormal": {"dtype": tf.float32},
    "StatefulUniform": {"dtype": tf.float32},
    "StatefulUniformFullInt": {"dtype": tf.uint64},
    "StatefulUniformInt": {"minval": tf.constant(-3, tf.int64), "maxval": tf.constant(9, tf.int64)},
}


@pytest.mark.parametrize("name", OLD)
def test_old_draws(name):
    def draw(v, shape):
        given = {"resource": v.handle, "algorithm": tf.constant(1, tf.int64), "shape": shape}
        return getattr(tf.raw_ops, name)(**given, **OLD[name])

    mine, theirs = (tf.Variable([2**63 - 5, 5, 11], dtype=tf.int64) for _ in range(2))
    own = hlo_disc.tensorflow.jit(lambda x: draw(mine, tf.shape(x)))
    for shape in ((3, 2), (1, 1), (0, 3)):
        np.testing.assert_allclose(own(tf.zeros(shape)).numpy(), draw(theirs, shape).numpy(), rtol=2e-6, atol=1e-6)
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


# ------------------------------------------------------------------------------------------------- gradients and files


def test_gradients_see_what_was_read():
    def function(v, x):
        y = v * x
        v.assign(v + tf.reduce_sum(x, 0))
        return tf.reduce_sum(y) + tf.reduce_sum(v * x)

    mine, theirs = tf.Variable([1.0, 2.0]), tf.Variable([1.0, 2.0])
    own, other = hlo_disc.tensorflow.jit(lambda x: function(mine, x)), tf.function(lambda x: function(theirs, x))
    for n in (3, 1, 0, 5):
        x = tf.ones([n, 2]) * 0.5
        found = []
        for f, v in ((own, mine), (other, theirs)):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = f(x)
            found.append([g.numpy() for g in tape.gradient(loss, [v, x])] + [v.numpy()])
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_saved_model_counts(tmp_path):
    class Counter(tf.Module):
        def __init__(self):
            self.count = tf.Variable(0.0)
            self.step = hlo_disc.tensorflow.jit(self.add)

        def add(self, x):
            return x + self.count.assign_add(1.0)

        @tf.function(input_signature=[tf.TensorSpec([None])])
        def call(self, x):
            return self.step(x)

    module = Counter()
    tf.saved_model.save(module, str(tmp_path), signatures=module.call)
    loaded = tf.saved_model.load(str(tmp_path))
    for n, expected in ((2, 1.0), (1, 2.0), (5, 3.0)):
        np.testing.assert_array_equal(loaded.call(tf.zeros([n])).numpy(), np.full(n, expected))
    assert loaded.count.numpy() == 3.0


def test_inside_of_xla():
    v = tf.Variable([1.0, 2.0])
    own = hlo_disc.tensorflow.jit(lambda x: x + v.assign(v * 2.0))
    outer = tf.function(lambda x: own(x) * 3.0, jit_compile=True)
    np.testing.assert_array_equal(outer(tf.ones([3, 2])).numpy(), [[9.0, 15.0]] * 3)
    np.testing.assert_array_equal(v.numpy(), [2.0, 4.0])


# ------------------------------------------------------------------------------------------------------------ refusals


def test_a_call_that_fails_assigns_nothing():
    v = tf.Variable([1.0, 2.0])

    def function(x, y):
        v.assign(v + 1.0)
        v.assign(x[:, 0])
        return x + y

    own = hlo_disc.tensorflow.jit(function)
    own(tf.ones([2, 3]), tf.ones([2, 3]))
    np.testing.assert_array_equal(v.numpy(), [1.0, 1.0])
    with pytest.raises(hlo_disc.ShapeError, match="a value and of the variable it is assigned to"):
        own(tf.zeros([3, 3]), tf.zeros([3, 3]))
    np.testing.assert_array_equal(v.numpy(), [1.0, 1.0])


def test_a_variable_that_may_change_its_shape():
    v = tf.Variable([1.0, 2.0], shape=[None])
    own = hlo_disc.tensorflow.jit(lambda x: v.assign(tf.concat([v, x], 0)) * 2.0)
    for n in (1, 0, 3):
        own(tf.ones([n]))
    np.testing.assert_array_equal(v.numpy(), [1.0, 2.0, 1.0, 1.0, 1.0, 1.0])


def test_a_variable_that_is_given_twice_is_refused():
    v = tf.Variable([1.0, 2.0])

    def function(x):
        tf.raw_ops.ResourceApplyMomentum(var=v.handle, accum=v.handle, lr=0.1, grad=x, momentum=0.9)
        return x

    with pytest.raises(hlo_disc.UnsupportedOpError, match=r"ResourceApplyMomentum at .*: .*one variable twice"):
        hlo_disc.tensorflow.jit(function)(tf.ones([2]))


def test_a_condition_that_assigns_is_refused():
    v = tf.Variable(0.0)
    function = lambda x: tf.while_loop(lambda y: v.assign_add(1.0) < 3.0, lambda y: [y + 1.0], [x])  # noqa: E731
    with pytest.raises(hlo_disc.UnsupportedOpError, match="the condition of a loop assigns"):
        hlo_disc.tensorflow.jit(function)(tf.ones([2]))


def test_constants_cannot_be_assigned_to():
    v = tf.Variable([1.0], name="weight")
    with pytest.raises(hlo_disc.UnsupportedOpError, match=r"tf\.AssignAddVariableOp at .*test_variables.*'weight:0'"):
        hlo_disc.compile(lambda x: x + v.assign_add(x), tf.TensorSpec([1], name="x"))


def test_an_op_runs_behind_those_for_which_it_waits():
    """A graph that came as a definition need not have its ops in the order in which they run."""
    with FuncGraph("graph").as_default() as graph:
        first, second = tf.constant(1.0, name="first"), tf.constant(2.0, name="second")
        third = tf.constant(3.0, name="third")
        first.op._add_control_input(second.op)
        second.op._add_control_input(third.op)
        assert [op.name for op in ordered(graph, [first.op, third.op])] == ["third", "first"]
