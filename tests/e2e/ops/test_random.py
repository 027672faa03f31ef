"""Random numbers: XLA's bits for every algorithm, type and shape, from one binary where shapes are dynamic."""

from __future__ import annotations

import numpy as np
import pytest
from comparison.by_xla import run_stablehlo

import hlo_disc
from hlo_disc.errors import UnsupportedOpError

SHAPES = ((), (7,), (0,), (3, 5), (3, 4), (5, 3, 7))
STATES = (np.array([7, 8], np.uint64), np.full(2, 2**64 - 1, np.uint64))


def static_program(algorithm: str, words: int, types: list[tuple[str, tuple[int, ...]]]) -> str:
    """A module that draws once for each (element type, shape), each time from the state before."""
    state = f"tensor<{words}xui64>"
    lines, results, kinds = [], [], []
    last = "%state"
    for i, (element, shape) in enumerate(types):
        kind = f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"
        lines.append(f"%s{i}, %b{i} = stablehlo.rng_bit_generator {last}, algorithm = {algorithm} : "
                     f"({state}) -> ({state}, {kind})")  # fmt: skip
        last = f"%s{i}"
        results += [f"%b{i}"]
        kinds += [kind]
    body = "\n".join(lines)
    outputs = f"return {last}, {', '.join(results)} : {state}, {', '.join(kinds)}"
    return f"func.func @main(%state: {state}) -> ({state}, {', '.join(kinds)}) {{\n{body}\n{outputs}\n}}"


@pytest.mark.parametrize("algorithm, words", (("THREE_FRY", 2), ("PHILOX", 2), ("PHILOX", 3), ("DEFAULT", 3)))
def test_bits_are_xlas(algorithm, words):
    types = [("ui32", shape) for shape in SHAPES] + [("ui64", (5, 3)), ("ui8", (7,))]
    text = static_program(algorithm, words, types)
    executable = hlo_disc.compile(text)
    for state in STATES:
        state = np.resize(state, words)
        for ours, theirs in zip(executable(state), run_stablehlo(text, [state]), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("element, dtype", (("i32", np.int32), ("f32", np.float32), ("i8", np.int8)))
def test_bits_of_other_types_are_those_of_unsigned_ones(element, dtype):
    state = np.array([7, 8], np.uint64)
    width = 8 * np.dtype(dtype).itemsize
    _, ours = hlo_disc.compile(static_program("PHILOX", 2, [(element, (9,))]))(state)
    _, bits = hlo_disc.compile(static_program("PHILOX", 2, [(f"ui{width}", (9,))]))(state)
    assert ours.dtype == dtype and ours.tobytes() == bits.tobytes()


@pytest.mark.parametrize("algorithm", ("THREE_FRY", "PHILOX"))
def test_one_binary_draws_at_every_shape(algorithm):
    text = f"""
    func.func @main(%state: tensor<2xui64>, %x: tensor<?x?x6xf32>) -> (tensor<2xui64>, tensor<?x?x6xui32>) {{
      %0 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x?x6xf32>) -> tensor<i32>
      %1 = stablehlo.get_dimension_size %x, dim = 1 : (tensor<?x?x6xf32>) -> tensor<i32>
      %2 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
      %3 = stablehlo.reshape %1 : (tensor<i32>) -> tensor<1xi32>
      %4 = stablehlo.constant dense<6> : tensor<1xi32>
      %shape = stablehlo.concatenate %2, %3, %4, dim = 0
          : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
      %5:2 = stablehlo.custom_call @stablehlo.dynamic_rng_bit_generator(%state, %shape)
          {{rng_algorithm = #stablehlo<rng_algorithm {algorithm}>}}
          : (tensor<2xui64>, tensor<3xi32>) -> (tensor<2xui64>, tensor<?x?x6xui32>)
      return %5#0, %5#1 : tensor<2xui64>, tensor<?x?x6xui32>
    }}"""
    executable = hlo_disc.compile(text)
    for a, b in ((1, 1), (3, 5), (5, 3), (3, 4), (4, 3), (7, 2), (0, 3), (31, 33)):
        state = np.array([a, b], np.uint64)
        static = static_program(algorithm, 2, [("ui32", (a, b, 6))])
        for ours, theirs in zip(
            executable(state, np.zeros((a, b, 6), np.float32)), run_stablehlo(static, [state]), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)


def draw(distribution: str, element: str, low: object, high: object) -> hlo_disc.Executable:
    return hlo_disc.compile(f"""
    func.func @main(%x: tensor<?xf32>) -> tensor<?x{element}> {{
      %0 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
      %1 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
      %a = stablehlo.constant dense<{low}> : tensor<{element}>
      %b = stablehlo.constant dense<{high}> : tensor<{element}>
      %2 = stablehlo.rng %a, %b, %1, distribution = {distribution}
          : (tensor<{element}>, tensor<{element}>, tensor<1xi32>) -> tensor<?x{element}>
      return %2 : tensor<?x{element}>
    }}""")


@pytest.mark.parametrize(
    "element, low, high", (("f32", "-1.0", "3.0"), ("f64", "2.0", "2.5"), ("bf16", "0.0", "8.0"), ("i32", -5, 6),
                           ("ui8", 250, 255), ("i64", -9223372036854775808, 9223372036854775807), ("i4", -8, 7))
)  # fmt: skip
def test_uniform(element, low, high):
    executable = draw("UNIFORM", element, low, high)
    assert executable(np.zeros(0, np.float32)).shape == (0,)
    x = executable(np.zeros(20_000, np.float32)).astype(np.float64)
    low, high = float(low), float(high)
    assert x.min() >= low and (x.max() < high or element == "bf16")
    mean = (low + high - (element[0] in "iu")) / 2
    assert abs(x.mean() - mean) < 0.02 * (high - low) and abs(x.std() / ((high - low) / 12**0.5) - 1) < 0.1


@pytest.mark.parametrize("element", ("f32", "f64", "f16"))
def test_normal(element):
    x = draw("NORMAL", element, "1.0", "2.0")(np.zeros(20_001, np.float32)).astype(np.float64)
    assert np.isfinite(x).all() and abs(x.mean() - 1) < 0.06 and abs(x.std() - 2) < 0.06
    assert abs(np.mean((x - 1) ** 3)) < 0.5 and abs(np.mean((x - 1) ** 4) / 48 - 1) < 0.1


def test_a_state_of_another_form_is_refused():
    with pytest.raises(UnsupportedOpError, match="state"):
        hlo_disc.compile(static_program("THREE_FRY", 4, [("ui32", (3,))]))
