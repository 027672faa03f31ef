"""The reader on small modules: shape arithmetic, dynamic forms, names, guards, and what is refused."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_disc.dynamic_hlo.ops.reference import evaluate
from hlo_disc.dynamic_hlo.ops.verify import verify
from hlo_disc.dynamic_hlo.print.stablehlo import to_stablehlo
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import ArgumentError, ParseError, ShapeError, UnsupportedOpError
from hlo_disc.import_.sizes.elements import Elements
from hlo_disc.import_.stablehlo.module import read_module
from hlo_disc.import_.stablehlo.policy import JAX
from hlo_disc.import_.stablehlo.source import load_module

B, S = Dim.symbol("b"), Dim.symbol("s")
X = "%x: tensor<?x?xf32>"
DIMS = {0: "(b, s)"}


def read(body, results, args=X, functions="", **options):
    """The graph of a `main` with the given arguments, body lines and results ("%0: tensor<...>", …)."""
    pairs = [result.split(": ") for result in results]
    types = ", ".join(kind for _, kind in pairs)
    text = (
        f"func.func @main({args}) -> ({types}) {{\n{body}\n"
        f"return {', '.join(name for name, _ in pairs)} : {types}\n}}\n{functions}"
    )
    graph = read_module(load_module(text), **options)
    verify(graph)
    return graph


def size(body, result="%r", **options):
    """Return the Dim of a scalar i32 that is computed from %b and %s, where x : (b, s)."""
    head = (
        "%b = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>\n"
        "%s = stablehlo.get_dimension_size %x, dim = 1 : (tensor<?x?xf32>) -> tensor<i32>\n"
    )
    tail = f"\n%v = stablehlo.reshape {result} : (tensor<i32>) -> tensor<1xi32>"
    iota = "\n%i = stablehlo.dynamic_iota %v, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>"
    graph = read(head + body + tail + iota, ["%i: tensor<?xi32>"], dims=DIMS, **options)
    return graph.outputs[0].shape[0]


CONSTANTS = "\n".join(f"%c{n} = stablehlo.constant dense<{n}> : tensor<i32>" for n in (0, 1, 2, 3, 8)) + "\n"
I32 = ": tensor<i32>\n"
COMPARE = ": (tensor<i32>, tensor<i32>) -> tensor<i1>\n"


@pytest.mark.parametrize(
    "body, expected",
    [
        (f"%0 = stablehlo.multiply %b, %s {I32} %r = stablehlo.add %0, %c3 {I32}", B * S + 3),
        (f"%0 = stablehlo.add %b, %c8 {I32} %r = stablehlo.subtract %0, %c3 {I32}", B + 5),
        (f"%r = stablehlo.divide %s, %c2 {I32}", S // 2),
        (f"%r = stablehlo.remainder %s, %c8 {I32}", S % 8),
        (f"%r = stablehlo.maximum %s, %b {I32}", Dim.max(B, S)),
        (f"%r = stablehlo.minimum %s, %c8 {I32}", Dim.min(S, 8)),
        (f"%0 = stablehlo.negate %s {I32} %r = stablehlo.abs %0 {I32}", S),
        (f"%r = stablehlo.sign %s {I32}", Dim.min(S, 1)),
        (f"%r = stablehlo.clamp %c2, %s, %c8 {I32}", Dim.min(Dim.max(S, 2), 8)),
        (f"%r = stablehlo.shift_left %s, %c3 {I32}", 8 * S),
        (f"%r = stablehlo.shift_right_logical %s, %c3 {I32}", S // 8),
        (f"%0 = stablehlo.compare LT, %s, %b {COMPARE} %r = stablehlo.select %0, %s, %b : tensor<i1>, tensor<i32>",
         Dim.min(B, S)),
        (f"%0 = stablehlo.compare GE, %s, %c0 {COMPARE} %r = stablehlo.select %0, %s, %b : tensor<i1>, tensor<i32>", S),
        (f"%0 = stablehlo.compare GT, %s, %c0 {COMPARE} %r = stablehlo.convert %0 : (tensor<i1>) -> tensor<i32>",
         Dim.min(S, 1)),
    ],
)  # fmt: skip
def test_shape_arithmetic(body, expected):
    facts = ShapeFacts()
    found = size(CONSTANTS + body)
    assert found is expected or facts.canonical(found) is facts.canonical(expected)


def test_vectors_of_sizes():
    body = """
    %b = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
    %s = stablehlo.get_dimension_size %x, dim = 1 : (tensor<?x?xf32>) -> tensor<i32>
    %b1 = stablehlo.reshape %b : (tensor<i32>) -> tensor<1xi32>
    %s1 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<i32>) -> tensor<1xi32>
    %k = stablehlo.constant dense<[4, 1]> : tensor<2xi32>
    %v = stablehlo.concatenate %s1, %k, %b1, dim = 0 : (tensor<1xi32>, tensor<2xi32>, tensor<1xi32>) -> tensor<4xi32>
    %w = stablehlo.multiply %v, %v : tensor<4xi32>
    %p = stablehlo.slice %w [0:4:2] : (tensor<4xi32>) -> tensor<2xi32>
    %zero = stablehlo.constant dense<1> : tensor<i32>
    %n = stablehlo.reduce(%v init: %zero) applies stablehlo.multiply across dimensions = [0]
      : (tensor<4xi32>, tensor<i32>) -> tensor<i32>
    %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %i = stablehlo.dynamic_iota %p, dim = 0 : (tensor<2xi32>) -> tensor<?x1xf32>
    %j = stablehlo.dynamic_iota %n1, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
    """
    graph = read(body, ["%i: tensor<?x1xf32>", "%j: tensor<?xf32>", "%w: tensor<4xi32>"], dims=DIMS)
    assert [v.shape for v in graph.outputs[:2]] == [(S * S, Dim.const(1)), (4 * B * S,)]
    # As data the vector is put together from sizes and constants.
    np.testing.assert_array_equal(evaluate(graph, [np.ones((3, 5), np.float32)])[2], [25, 16, 1, 9])


def floor_division(a, b, name="floor_divide"):
    """Python's // and % as `jnp` writes them with truncating division."""
    s = Elements(ShapeFacts())
    if name == "floor_divide":
        quotient = s.divide(a, b)
        signs = s.compare("!=", s.sign(a), s.sign(b))
        inexact = s.compare("!=", s.remainder(a, b), Dim.const(0))
        return s.select(s.all((signs, inexact)), quotient - 1, quotient)
    remainder = s.remainder(a, b)
    zero = Dim.const(0)
    signs = s.compare("!=", s.compare("<", remainder, zero), s.compare("<", b, zero))
    return s.select(s.all((s.compare("!=", remainder, zero), signs)), remainder + b, remainder)


@given(st.integers(-9, 9), st.integers(-9, 9).filter(bool))
def test_floor_division_is_recognised(offset, k):
    a, b = S + offset, Dim.const(k)
    assert floor_division(a, b) is a // b
    assert floor_division(a, b, "remainder") is a % b


@given(st.integers(0, 30), st.integers(-9, 9), st.integers(-9, 9).filter(bool))
def test_division_truncates(value, offset, k):
    s = Elements(ShapeFacts())
    a, b, number = S + offset, Dim.const(k), value + offset
    assert s.divide(a, b).evaluate({"s": value}) == int(number / k)
    assert s.remainder(a, b).evaluate({"s": value}) == number - k * int(number / k)
    assert s.sign(a).evaluate({"s": value}) == (number > 0) - (number < 0)


@given(st.integers(0, 5), st.integers(0, 5), st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), st.booleans())
def test_conditions_as_numbers(b, s, relation, conjunction):
    e = Elements(ShapeFacts())
    values = {"b": b, "s": s}
    first, second = e.compare(relation, B, S), e.compare("<", B, Dim.const(3))
    holds = eval(f"{b} {relation} {s}")
    joined = (e.all if conjunction else e.any)((first, second))
    expected = (holds and b < 3) if conjunction else (holds or b < 3)
    assert e.number(joined).evaluate(values) == expected
    assert e.number(e.negate(joined)).evaluate(values) == (not expected)
    assert e.select(joined, B * 7, S - 9).evaluate(values) == (b * 7 if expected else s - 9)


def test_unsigned_constants_wrap():
    body = """
    %0 = stablehlo.constant dense<[2, 4294967295]> : tensor<2xui32>
    %1 = stablehlo.multiply %0, %0 : tensor<2xui32>
    %2 = stablehlo.subtract %0, %1 : tensor<2xui32>
    """
    (result,) = evaluate(read(body, ["%2: tensor<2xui32>"], args=""), [])
    np.testing.assert_array_equal(result, np.array([2**32 - 2, 2**32 - 2], np.uint32))


DYNAMIC = {
    "iota": ("%r = stablehlo.dynamic_iota %v, dim = 1 : (tensor<2xi32>) -> tensor<?x?xi32>", "i32"),
    "reshape": ("%r = stablehlo.dynamic_reshape %x, %w : (tensor<?x?xf32>, tensor<2xi32>) -> tensor<?x?xf32>", "f32"),
    "broadcast": (
        "%r = stablehlo.dynamic_broadcast_in_dim %c, %v, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x?xf32>",
        "f32",
    ),
    "slice": (
        "%r = stablehlo.real_dynamic_slice %x, %l, %v, %l"
        " : (tensor<?x?xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x?xf32>",
        "f32",
    ),
    "pad": (
        "%r = stablehlo.dynamic_pad %x, %c, %l, %v, %l"
        " : (tensor<?x?xf32>, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x?xf32>",
        "f32",
    ),
    "gather": (
        '%r = "stablehlo.dynamic_gather"(%x, %i, %g) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],'
        " collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false}>"
        " : (tensor<?x?xf32>, tensor<?xi32>, tensor<2xi32>) -> tensor<?x?xf32>",
        "f32",
    ),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_forms_are_one_op(name):
    body = """
    %b = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
    %s = stablehlo.get_dimension_size %x, dim = 1 : (tensor<?x?xf32>) -> tensor<i32>
    %b1 = stablehlo.reshape %b : (tensor<i32>) -> tensor<1xi32>
    %s1 = stablehlo.reshape %s : (tensor<i32>) -> tensor<1xi32>
    %v = stablehlo.concatenate %b1, %s1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %w = stablehlo.concatenate %s1, %b1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %l = stablehlo.constant dense<1> : tensor<2xi32>
    %one = stablehlo.constant dense<1> : tensor<1xi32>
    %g = stablehlo.concatenate %one, %s1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %c = stablehlo.constant dense<2.0> : tensor<f32>
    """
    text, kind = DYNAMIC[name]
    args, dims = X + ", %i: tensor<?xi32>", {0: "(b, s)", 1: "(n,)"}
    graph = read(body + text, [f"%r: tensor<?x?x{kind}>"], args=args, dims=dims)
    assert [op.name for op in graph.ops if op.name != "constant"] == [name]
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    (result,) = evaluate(graph, [x, np.array([2, 0], np.int32)])
    expected = {
        "iota": np.broadcast_to(np.arange(4), (3, 4)),
        "reshape": x.reshape(4, 3),
        "broadcast": np.full((3, 4), 2),
        "slice": x[1:, 1:],
        "gather": x[[2, 0]],
    }
    if name == "pad":
        assert result.shape == (1 + 5 + 3, 1 + 7 + 4) and result[1, 1] == 0 and result[3, 3] == 5
    else:
        np.testing.assert_array_equal(result, expected[name])


def test_a_shape_from_data():
    body = """
    %v = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %i = stablehlo.dynamic_iota %v, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>"""
    graph = read(body, ["%i: tensor<?xi32>"], args="%n: tensor<i32>")
    for n in (0, 1, 5):
        np.testing.assert_array_equal(evaluate(graph, [np.array(n, np.int32)])[0], np.arange(n))
    with pytest.raises(ShapeError, match="stablehlo.dynamic_iota at <text>:4:10: dimension 0 .* the size -1"):
        evaluate(graph, [np.array(-1, np.int32)])


def test_names_of_symbols():
    add = "%0 = stablehlo.abs %x : tensor<?x?xf32>"
    assert read(add, ["%0: tensor<?x?xf32>"]).bindings.keys() == {"d0", "d1"}
    assert read(add, ["%0: tensor<?x?xf32>"], dims={"args[0]": "(_, d0)"}).bindings.keys() == {"d0", "d1"}
    printed = 'tensor<?x?xf32> {hlo_disc.shape = "(p, 2*p)"} loc("left")'
    graph = read(add, ["%0: tensor<?x?xf32>"], args="%x: " + printed)
    assert [str(d) for d in graph.inputs[0].shape] == ["p", "2*p"] and graph.input_names == ("left",)
    for wrong in ({"y": "(b, s)"}, {0: "(b,)"}, {1: "(b, s)"}, {0: "(b, s)", "args[0]": "(s, b)"}):
        with pytest.raises(ArgumentError):
            read(add, ["%0: tensor<?x?xf32>"], dims=wrong)
    with pytest.raises(ParseError, match=r"the shape '\(b, s\+\)' is not valid"):
        read(add, ["%0: tensor<?x?xf32>"], dims={0: "(b, s+)"})
    for wrong, reason in {
        "(%0.1, s)": "the name '%0.1' is not valid",
        "(-1, s)": "the size -1 is negative",
        "(9223372036854775808, s)": "does not fit into 64 bits",
    }.items():
        with pytest.raises(ParseError, match=f"the shape '{re.escape(wrong)}' is not valid: .*{reason}"):
            read(add, ["%0: tensor<?x?xf32>"], dims={0: wrong})
        with pytest.raises(ParseError, match=reason):
            read(add, ["%0: tensor<?x?xf32>"], dims={0: wrong[1:-1].split(", ")})


def test_size_arguments_need_a_name():
    """Dimension variables are arguments where `jax.jit` lowers at symbolic shapes."""
    args = '%b: tensor<i32> {jax.global_constant = "b"}, %x: tensor<?xf32>'
    body = """
    %0 = stablehlo.reshape %b : (tensor<i32>) -> tensor<1xi32>
    %1 = stablehlo.dynamic_iota %0, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
    %2 = stablehlo.add %1, %x : tensor<?xf32>"""
    graph = read(body, ["%2: tensor<?xf32>"], args=args, dims={"x": "(b,)"}, names=["x"])
    assert [op.name for op in graph.ops] == ["iota", "add"] and not graph.guards
    with pytest.raises(ShapeError, match=r"@main takes the size 'b' as an argument, .* dims={'args\[0\]': '\(b, …\)'}"):
        read(body, ["%2: tensor<?xf32>"], args=args)


def test_sizes_that_must_agree_become_guards():
    body = "%0 = stablehlo.add %x, %y : tensor<?x?xf32>"
    graph = read(body, ["%0: tensor<?x?xf32>"], args=X + ", %y: tensor<?x?xf32>")
    ones = np.ones
    evaluate(graph, [ones((2, 3), np.float32)] * 2)
    message = "stablehlo.add at <text>:2:6: dimension 1 of operands 0 and 1 must be equal, but they are 3 and 4"
    with pytest.raises(ShapeError, match=message):
        evaluate(graph, [ones((2, 3), np.float32), ones((2, 4), np.float32)])
    # What a guard says is known from there on.
    assert len([g for g in graph.guards]) == 2


def test_sizes_that_cannot_agree():
    body = "%0 = stablehlo.add %x, %y : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>"
    with pytest.raises(ShapeError, match="dimension 1 of operands 0 and 1 must be equal, but they are s and s [+] 1"):
        read(body, ["%0: tensor<?x?xf32>"], args=X + ", %y: tensor<?x?xf32>", dims={0: "(b, s)", 1: "(b, s + 1)"})


def test_sizes_in_result_types_hold():
    body = """
    %0 = stablehlo.concatenate %x, %x, dim = 0 : (tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<6x?xf32>"""
    graph = read(body, ["%0: tensor<6x?xf32>"], dims=DIMS)
    evaluate(graph, [np.ones((3, 2), np.float32)])
    message = "result dimension 0 and what its type says must be equal, but they are 8 and 6"
    with pytest.raises(ShapeError, match=message):
        evaluate(graph, [np.ones((4, 2), np.float32)])


def test_slices_stay_inside():
    body = "%0 = stablehlo.slice %x [0:2, 1:3] : (tensor<?x?xf32>) -> tensor<2x2xf32>"
    graph = read(body, ["%0: tensor<2x2xf32>"], dims=DIMS)
    with pytest.raises(ShapeError, match="slice's limit 3 in dimension 1 must be at most the size 2"):
        evaluate(graph, [np.ones((2, 2), np.float32)])


def test_broadcast_as_tensorflow_writes_it():
    """select(a == 1, b, a): one size or the other, and equal when neither is 1."""
    body = """
    %one = stablehlo.constant dense<1> : tensor<2xi32>
    %x0 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
    %x1 = stablehlo.get_dimension_size %x, dim = 1 : (tensor<?x?xf32>) -> tensor<i32>
    %y0 = stablehlo.get_dimension_size %y, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
    %y1 = stablehlo.get_dimension_size %y, dim = 1 : (tensor<?x?xf32>) -> tensor<i32>
    %a0 = stablehlo.reshape %x0 : (tensor<i32>) -> tensor<1xi32>
    %a1 = stablehlo.reshape %x1 : (tensor<i32>) -> tensor<1xi32>
    %b0 = stablehlo.reshape %y0 : (tensor<i32>) -> tensor<1xi32>
    %b1 = stablehlo.reshape %y1 : (tensor<i32>) -> tensor<1xi32>
    %a = stablehlo.concatenate %a0, %a1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %b = stablehlo.concatenate %b0, %b1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %is_one = stablehlo.compare EQ, %a, %one : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %r = stablehlo.select %is_one, %b, %a : tensor<2xi1>, tensor<2xi32>
    %p = stablehlo.dynamic_broadcast_in_dim %x, %r, dims = [0, 1] : (tensor<?x?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
    %q = stablehlo.dynamic_broadcast_in_dim %y, %r, dims = [0, 1] : (tensor<?x?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
    %0 = stablehlo.add %p, %q : tensor<?x?xf32>
    """
    args = X + ", %y: tensor<?x?xf32>"
    graph = read(body, ["%0: tensor<?x?xf32>"], args=args)
    random = np.random.default_rng(0)
    for first, second in [((2, 3), (2, 3)), ((1, 3), (2, 1)), ((0, 3), (1, 3)), ((1, 1), (0, 4))]:
        x, y = (random.standard_normal(shape).astype(np.float32) for shape in (first, second))
        np.testing.assert_array_equal(evaluate(graph, [x, y])[0], x + y)
    with pytest.raises(ShapeError, match="neither 1 nor the result's"):
        evaluate(graph, [np.ones((2, 3), np.float32), np.ones((3, 3), np.float32)])
    # With names, nothing is left of it.
    graph = read(body, ["%0: tensor<?x?xf32>"], args=args, dims={0: "(b, s)", 1: "(b, s)"})
    assert [op.name for op in graph.ops] == ["add"] and graph.bindings.keys() == {"b", "s"}


ASSERTION = """
%b = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
%c = stablehlo.constant dense<VALUE> : tensor<i32>
%ok = stablehlo.compare RELATION, %b, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
stablehlo.custom_call @shape_assertion(%ok, %b) {api_version = 2 : i32, error_message = "{weird} b is {0} {1}",
  has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
"""


def assertion(relation, value, **options):
    body = ASSERTION.replace("RELATION", relation).replace("VALUE", str(value))
    return read(body, ["%x: tensor<?x?xf32>"], dims=DIMS, **options)


def test_assertions():
    graph = assertion("LE", 4)
    evaluate(graph, [np.ones((4, 1), np.float32)])
    with pytest.raises(ShapeError, match=r"^\{weird\} b is 5 \{1\}$"):
        evaluate(graph, [np.ones((5, 1), np.float32)])
    assert graph.facts.bounds(B) == (0, 4)
    with pytest.raises(ShapeError, match="b is b"):
        assertion("LT", 0)
    assert len(assertion("GE", 0).guards) == 0
    assert len(assertion("GE", 1).guards) == 1 and len(assertion("GE", 1, origin=JAX).guards) == 0
    assert len(assertion("GE", 2, origin=JAX).guards) == 1


def test_constraints():
    graph = assertion("LE", 4, constraints=["b == 2*s", "s != 0"])
    with pytest.raises(ShapeError, match=r"constraint b == 2\*s: 'b' is 3, '2\*s' is 2"):
        evaluate(graph, [np.ones((3, 1), np.float32)])
    for wrong, reason in {
        "b": "expected one of == != >= <= > <, but it ends",
        "b < s < 3": "expected an operator or the end, but found '<' at column 7",
        "b = 2": "expected one of == != >= <= > <, but found '=' at column 3",
        "b <= 9223372036854775808": "the number 9223372036854775808 in '9223372036854775808' does not fit into 64 bits",
        "b <= 2^60*16*s": "the number 18446744073709551616 in '18446744073709551616\\*s' does not fit into 64 bits",
        "%0.1 == 1": "the name '%0.1' is not valid: it begins with '%'",
    }.items():
        with pytest.raises(ParseError, match=f"{re.escape(wrong)}' is not (a constraint|valid).*{reason}"):
            assertion("LE", 4, constraints=[wrong])
    for wrong in (None, [3]):
        with pytest.raises(ArgumentError, match="or a list of such strings"):
            assertion("LE", 4, constraints=wrong)
    graph = assertion("LE", 4, constraints=["s % 4 == 0", "s//4 + -b%2 == 1"])
    evaluate(graph, [np.ones((4, 4), np.float32)])
    with pytest.raises(ShapeError, match=r"constraint s % 4 == 0: 'mod\(s, 4\)' is 3"):
        evaluate(graph, [np.ones((4, 3), np.float32)])
    with pytest.raises(ShapeError, match=r"constraint s//4 \+ -b%2 == 1: .* is 2"):
        evaluate(graph, [np.ones((3, 4), np.float32)])
    with pytest.raises(ShapeError, match="nothing says what t is: no argument has it .*the arguments have b, s"):
        assertion("LE", 4, constraints=["t <= 3"])


def test_scalar_operands_are_spread():
    body = """
    %p = stablehlo.constant dense<true> : tensor<i1>
    %lo = stablehlo.constant dense<-1.0> : tensor<f32>
    %hi = stablehlo.constant dense<1.0> : tensor<f32>
    %0 = stablehlo.clamp %lo, %x, %hi : (tensor<f32>, tensor<?x?xf32>, tensor<f32>) -> tensor<?x?xf32>
    %1 = stablehlo.select %p, %0, %x : (tensor<i1>, tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
    """
    graph = read(body, ["%1: tensor<?x?xf32>"], dims=DIMS)
    x = np.array([[-3, 0.5, 2]], np.float32)
    np.testing.assert_array_equal(evaluate(graph, [x])[0], np.clip(x, -1, 1))


def reduction(ops, kind="f32", init="0.0"):
    body = f"""
    %c = stablehlo.constant dense<{init}> : tensor<{kind}>
    %0 = "stablehlo.reduce"(%x, %c) ({{
      ^bb0(%a: tensor<{kind}>, %b: tensor<{kind}>):
        {ops}
    }}) {{dimensions = array<i64: 1>}} : (tensor<?x?x{kind}>, tensor<{kind}>) -> tensor<?x{kind}>
    """
    return read(body, [f"%0: tensor<?x{kind}>"], args=f"%x: tensor<?x?x{kind}>", dims=DIMS)


def test_reductions():
    graph = reduction("%1 = stablehlo.maximum %b, %a : tensor<f32>\nstablehlo.return %1 : tensor<f32>")
    assert graph.ops[-1].attrs == {"dims": (1,), "kind": "max"}
    graph = reduction("%1 = stablehlo.add %a, %b : tensor<i1>\nstablehlo.return %1 : tensor<i1>", "i1", "false")
    assert graph.ops[-1].attrs["kind"] == "or"
    for ops in (
        "%1 = stablehlo.subtract %a, %b : tensor<f32>\nstablehlo.return %1 : tensor<f32>",
        "%1 = stablehlo.add %a, %a : tensor<f32>\nstablehlo.return %1 : tensor<f32>",
        "%1 = stablehlo.add %a, %b : tensor<f32>\nstablehlo.return %b : tensor<f32>",
    ):
        assert reduction(ops).ops[-1].name == "reduce_with"


def test_calls_composites_and_no_ops():
    body = """
    %0 = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{replicated}"} : (tensor<?x?xf32>) -> tensor<?x?xf32>
    %1:2 = stablehlo.optimization_barrier %0, %x : tensor<?x?xf32>, tensor<?x?xf32>
    %2 = stablehlo.custom_call @mhlo.erf(%1#0) : (tensor<?x?xf32>) -> tensor<?x?xf32>
    %3 = stablehlo.composite "my.neg" %2 {decomposition = @negated} : (tensor<?x?xf32>) -> tensor<?x?xf32>
    %4 = func.call @negated(%3) : (tensor<?x?xf32>) -> tensor<?x?xf32>
    """
    function = """
    func.func private @negated(%y: tensor<?x?xf32>) -> tensor<?x?xf32> {
      %0 = stablehlo.negate %y : tensor<?x?xf32>
      return %0 : tensor<?x?xf32>
    }"""
    graph = read(body, ["%4: tensor<?x?xf32>"], functions=function, dims=DIMS)
    assert [op.name for op in graph.ops] == ["erf", "negate", "negate"]


def test_endless_recursion_is_refused():
    function = """
    func.func private @f(%y: tensor<?x?xf32>) -> tensor<?x?xf32> {
      %0 = func.call @f(%y) : (tensor<?x?xf32>) -> tensor<?x?xf32>
      return %0 : tensor<?x?xf32>
    }"""
    with pytest.raises(UnsupportedOpError, match="calls are nested too deeply"):
        body = "%0 = func.call @f(%x) : (tensor<?x?xf32>) -> tensor<?x?xf32>"
        read(body, ["%0: tensor<?x?xf32>"], functions=function)


@pytest.mark.parametrize(
    "body, message",
    [
        ("%0 = stablehlo.custom_call @foo(%x) : (tensor<?x?xf32>) -> tensor<?x?xf32>",
         r"stablehlo.custom_call : \(tensor<\?x\?xf32>\) .* <text>:2:6: "),
        ("%0 = stablehlo.custom_call @foo(%x) : (tensor<?x?xf32>) -> tensor<?x?xf32>", "there is no custom call @foo"),
        ("%0 = chlo.lgamma %x : tensor<?x?xf32> -> tensor<?x?xf32>", None),
    ],
)  # fmt: skip
def test_unsupported(body, message):
    if message is None:  # CHLO's other ops are taken apart
        assert len(read(body, ["%0: tensor<?x?xf32>"], dims=DIMS).ops) > 20
        return
    with pytest.raises(UnsupportedOpError, match=message):
        read(body, ["%0: tensor<?x?xf32>"], dims=DIMS)


def test_inputs_of_a_type_that_is_not_supported():
    with pytest.raises(UnsupportedOpError, match=r"input 'args\[0\]' of @main: the element type of .*i24>"):
        read("", ["%x: tensor<2xi24>"], args="%x: tensor<2xi24>")


def test_tokens_among_arguments_and_results_are_nothing():
    body = "%s = stablehlo.after_all %t : !stablehlo.token"
    graph = read(body, ["%s: !stablehlo.token", "%x: tensor<2xf32>"], args="%t: !stablehlo.token, %x: tensor<2xf32>")
    assert [x.shape for x in graph.inputs] == [(2,)] and graph.outputs == graph.inputs


def test_sizes_that_64_bits_cannot_count():
    large = f"tensor<?x{1 << 32}x{1 << 31}xf32>"
    with pytest.raises(UnsupportedOpError, match=r"stablehlo.broadcast_in_dim .* more bytes than 64 bits can count"):
        read(
            f"%0 = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<{1 << 62}x2xf32>",
            [f"%0: tensor<{1 << 62}x2xf32>"],
            args="%x: tensor<f32>",
        )
    with pytest.raises(UnsupportedOpError, match=r"input 'args\[0\]' of @main: .* more bytes than 64 bits can count"):
        read("", [f"%x: {large}"], args=f"%x: {large}")
    read("", [f"%x: tensor<{1 << 62}xi8>"], args=f"%x: tensor<{1 << 62}xi8>")


def test_constants_are_shared_and_splats_are_scalars():
    body = """
    %0 = stablehlo.constant dense<1.5> : tensor<20x30xf32>
    %1 = stablehlo.constant dense<1.5> : tensor<f32>
    %2 = stablehlo.constant dense<[1.0, 2.5]> : tensor<2xbf16>
    %3 = stablehlo.constant dense<[true, false]> : tensor<2xi1>
    """
    results = ["%0: tensor<20x30xf32>", "%1: tensor<f32>", "%2: tensor<2xbf16>", "%3: tensor<2xi1>"]
    graph = read(body, results, args="")
    assert [op.name for op in graph.ops] == ["constant", "broadcast", "constant", "constant"]
    assert evaluate(graph, [])[2].astype(np.float32).tolist() == [1.0, 2.5]


def test_printed_graphs_read_back():
    graph = assertion("LE", 4, constraints=["s <= 7"])
    again = read_module(load_module(to_stablehlo(graph)))
    assert again.inputs[0].shape == graph.inputs[0].shape and again.input_names == graph.input_names
    assert [(g.lhs, g.relation, g.rhs) for g in again.guards] == [(g.lhs, g.relation, g.rhs) for g in graph.guards]
