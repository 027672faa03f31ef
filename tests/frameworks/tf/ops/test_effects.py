"""Ops for what they do: left out where nobody could tell, else refused, as are values that are no numbers."""

import numpy as np
import pytest
import tensorflow as tf

import hlo_disc.tensorflow

X = tf.constant([1.0, 2.0, 3.0])
v = tf.Variable([4.0, 5.0])
table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.constant([1, 2]), tf.constant([5, 6])), 0)
names = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.constant(["a"]), tf.constant([5])), 0)
words = tf.constant(["a", "b"])
rows = iter(tf.data.Dataset.range(3))


def in_a_loop(x):
    for _ in tf.range(2):
        tf.debugging.check_numerics(x, "in a loop")
        x = x + 1.0
    return x


def in_a_branch(x):
    if tf.reduce_sum(x) > 0.0:
        tf.debugging.check_numerics(x, "in a branch")
    return x * 2.0


def after(effect):
    def function(x):
        effect(x)
        return x + 1.0

    return function


LEFT_OUT = {
    "in a loop": in_a_loop,
    "in a branch": in_a_branch,
    "check": after(lambda x: tf.debugging.check_numerics(x, "m")),
    "check of second version": after(lambda x: tf.raw_ops.CheckNumericsV2(tensor=x, message="m")),
    "finite": after(lambda x: tf.debugging.assert_all_finite(x, "m")),
    "less": after(lambda x: tf.debugging.assert_less(x, 5.0)),
    "shapes": after(lambda x: tf.debugging.assert_shapes([(x, ("n",))])),
    "print": after(lambda x: tf.print("x", x, output_stream="file:///dev/null")),
    "old print": after(lambda x: tf.compat.v1.Print(x, [x])),
    "random": after(lambda x: tf.random.uniform([2])),
    "dropout": after(lambda x: tf.nn.dropout(x, 0.5)),
    "shuffle": after(lambda x: tf.random.shuffle(x)),
    "time": after(lambda x: tf.timestamp()),
    "rows of a variable": after(lambda x: (tf.gather(v, [0]), tf.gather_nd(v, [[0]]))),
    "check that is handed on": lambda x: tf.debugging.check_numerics(x, "m") * 2.0,
    "second check that is handed on": lambda x: tf.raw_ops.CheckNumericsV2(tensor=x, message="m") * 2.0,
    "old print that is handed on": lambda x: tf.compat.v1.Print(x, []) * 2.0,
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_nobody_can_tell_is_left_out(name):
    function = tf.function(LEFT_OUT[name])
    np.testing.assert_array_equal(hlo_disc.tensorflow.jit(LEFT_OUT[name])(X), function(X))


def test_what_has_an_effect_is_refused():
    effect = after(lambda x: tf.py_function(lambda y: None, [x], []))
    with pytest.raises(hlo_disc.UnsupportedOpError, match="effects other than to assign to variables"):
        hlo_disc.tensorflow.jit(effect)(X)


CAPTURED = {
    "table": (lambda x: table.lookup(tf.cast(x, tf.int32)), "LookupTableFindV2", "resource"),
    "table that nothing needs": (after(lambda x: table.lookup(tf.cast(x, tf.int32))), "LookupTableFindV2", "resource"),
    "size of a table": (lambda x: table.size(), "LookupTableSizeV2", "resource"),
    "table of words": (lambda x: names.lookup(words), "LookupTableFindV2", "resource"),
    "iterator": (lambda x: next(rows), "IteratorGetNext", "resource"),
    "in a function": (tf.function(lambda x: table.lookup(tf.cast(x, tf.int32))), "StatefulPartitionedCall", "resource"),
    "words": (lambda x: tf.strings.length(words), "StringLength", "string"),
}  # fmt: skip


@pytest.mark.parametrize("name", CAPTURED)
def test_what_is_captured_and_holds_no_numbers_is_refused(name):
    function, op, kind = CAPTURED[name]
    told = rf"tf\.{op} at .*test_effects\.py:\d+: .* captures a {kind}, .*: keep what needs it outside"
    with pytest.raises(hlo_disc.UnsupportedOpError, match=told):
        hlo_disc.tensorflow.jit(function)(X)


def test_a_saved_model_with_a_table(tmp_path):
    module = tf.Module()
    module.table = table
    signature = [tf.TensorSpec([None], tf.int32, name="x")]
    module.call = tf.function(lambda x: {"y": module.table.lookup(x)}, input_signature=signature)
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.call)
    with pytest.raises(hlo_disc.UnsupportedOpError, match="captures a resource"):
        hlo_disc.compile(tmp_path / "model")
