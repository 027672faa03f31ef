"""Integer arithmetic on sizes in a file: as a number it wraps at each step, as a size it may not."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import hlo_disc
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.dynamic_hlo.sizes.numbers import holds
from hlo_disc.errors import ShapeError

SIZES = (1, 5, 46340, 46341, 46342, 65536, 92681, 100000, 2**31 - 1)


def _divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.trunc(x.astype(np.float64) / y).astype(x.dtype)


# Of %m, which is d * d, and %d and %c, which is 2: an op, and what numpy makes of them. All are i32.
OPS: dict[str, tuple[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]]] = {
    "product": ("stablehlo.multiply %d, %d : tensor<i32>", lambda m, d, c: m),
    "quotient": ("stablehlo.divide %m, %c : tensor<i32>", lambda m, d, c: _divide(m, c)),
    "remainder": ("stablehlo.remainder %m, %c : tensor<i32>", lambda m, d, c: np.fmod(m, c)),
    "sum": ("stablehlo.add %m, %d : tensor<i32>", lambda m, d, c: m + d),
    "difference": ("stablehlo.subtract %c, %m : tensor<i32>", lambda m, d, c: c - m),
    "largest": ("stablehlo.maximum %m, %c : tensor<i32>", lambda m, d, c: np.maximum(m, c)),
    "smallest": ("stablehlo.minimum %m, %c : tensor<i32>", lambda m, d, c: np.minimum(m, c)),
    "negative": ("stablehlo.negate %m : tensor<i32>", lambda m, d, c: -m),
    "magnitude": ("stablehlo.abs %m : tensor<i32>", lambda m, d, c: np.abs(m)),
    "sign": ("stablehlo.sign %m : tensor<i32>", lambda m, d, c: np.sign(m)),
    "left": ("stablehlo.shift_left %d, %c : tensor<i32>", lambda m, d, c: d << c),
    "right": ("stablehlo.shift_right_arithmetic %m, %c : tensor<i32>", lambda m, d, c: m >> c),
    "within": ("stablehlo.clamp %c, %m, %d : tensor<i32>", lambda m, d, c: np.minimum(np.maximum(m, c), d)),
    "not": ("stablehlo.not %m : tensor<i32>", lambda m, d, c: ~m),
    "power": ("stablehlo.power %d, %c : tensor<i32>", lambda m, d, c: m),
    "less": ("stablehlo.compare LT, %m, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>", lambda m, d, c: m < c),
    "wider": ("stablehlo.convert %m : (tensor<i32>) -> tensor<i64>", lambda m, d, c: m.astype(np.int64)),
    "narrower": ("stablehlo.convert %m : (tensor<i32>) -> tensor<i8>", lambda m, d, c: m.astype(np.int8)),
    "float": ("stablehlo.convert %m : (tensor<i32>) -> tensor<f32>", lambda m, d, c: m.astype(np.float32)),
}


def _module() -> str:
    types = [text.rpartition(" ")[2] for text, _ in OPS.values()]
    lines = [f"%r{k} = {text}" for k, (text, _) in enumerate(OPS.values())]
    results = ", ".join(f"%r{k}" for k in range(len(OPS)))
    return f"""module {{ func.func public @main(%a: tensor<?x0xf32>) -> ({", ".join(types)}) {{
      %d = stablehlo.get_dimension_size %a, dim = 0 : (tensor<?x0xf32>) -> tensor<i32>
      %m = stablehlo.multiply %d, %d : tensor<i32>
      %c = stablehlo.constant dense<2> : tensor<i32>
      {chr(10).join(lines)}
      return {results} : {", ".join(types)}
    }} }}"""


def test_numbers_wrap_at_each_step() -> None:
    executable = hlo_disc.compile(_module())
    for n in SIZES:
        d, c = np.array([n], np.int32), np.array([2], np.int32)
        m = d * d
        results = executable(np.zeros((n, 0), np.float32))
        for (name, (_, meaning)), got in zip(OPS.items(), results, strict=True):
            (want,) = meaning(m, d, c)
            assert (got.dtype, got.item()) == (want.dtype, want.item()), (name, n)


@pytest.mark.parametrize("wide", [False, True])
def test_a_select_follows_what_wrapped(wide: bool) -> None:
    """A select follows a value that wrapped, also one of a size that was narrowed."""
    size = "stablehlo.get_dimension_size %a, dim = 0 : (tensor<?x0xf32>) -> tensor<i32>"
    narrow = """%w = stablehlo.convert %s : (tensor<i32>) -> tensor<i64>
      %p = stablehlo.multiply %w, %w : tensor<i64>
      %m = stablehlo.convert %p : (tensor<i64>) -> tensor<i32>"""
    executable = hlo_disc.compile(f"""module {{ func.func public @main(%a: tensor<?x0xf32>) -> tensor<f32> {{
      %s = {size}
      {narrow if wide else "%m = stablehlo.multiply %s, %s : tensor<i32>"}
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %q = stablehlo.compare LT, %m, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %x = stablehlo.constant dense<1.0> : tensor<f32>
      %y = stablehlo.constant dense<2.0> : tensor<f32>
      %r = "stablehlo.if"(%q) ({{ stablehlo.return %x : tensor<f32> }}, {{ stablehlo.return %y : tensor<f32> }})
        : (tensor<i1>) -> tensor<f32>
      return %r : tensor<f32>
    }} }}""")
    for n in SIZES:
        m = np.array([n], np.int32) ** 2
        assert executable(np.zeros((n, 0), np.float32)).item() == (1.0 if m < 0 else 2.0), n


def test_a_size_that_wrapped_is_refused() -> None:
    executable = hlo_disc.compile("""module { func.func public @main(%a: tensor<?x0xf32>) -> tensor<?xf32> {
      %d = stablehlo.get_dimension_size %a, dim = 0 : (tensor<?x0xf32>) -> tensor<i32>
      %m = stablehlo.multiply %d, %d : tensor<i32>
      %c = stablehlo.constant dense<65536> : tensor<i32>
      %q = stablehlo.divide %m, %c : tensor<i32>
      %s = stablehlo.reshape %q : (tensor<i32>) -> tensor<1xi32>
      %r = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
      return %r : tensor<?xf32>
    } }""")
    for n in (5, 300, 46340):
        assert executable(np.zeros((n, 0), np.float32)).shape == (n * n // 65536,)
    for n in (46341, 65536, 92681):
        with pytest.raises(ShapeError, match=f"in int32, which does not hold .*, {n * n}"):
            executable(np.zeros((n, 0), np.float32))


def test_an_exported_program_is_a_file() -> None:
    """JAX takes what it computes with to fit. An exported program is wrong where XLA is."""
    (n,) = export.symbolic_shape("n")
    fn = jax.jit(lambda x: (jnp.sum(x) + x.shape[0] * (x.shape[0] - 1) // 2, jnp.pad(x, (0, x.shape[0] // 2))))
    executable = hlo_disc.compile(export.export(fn)(jax.ShapeDtypeStruct((n,), np.float32)))
    for size in (5, 46341):
        total, padded = executable(np.zeros(size, np.float32))
        assert padded.shape == (size + size // 2,)
        wrapped = np.array([size], np.int32) * np.int32(size - 1) // np.int32(2)
        assert total == np.float32(wrapped[0])


@pytest.mark.parametrize(
    ("size", "dtype", "expected"),
    [
        ("n", np.int32, True),
        ("n - 7", np.int32, True),
        ("n + 1", np.int32, False),
        ("floordiv(n + 1, 2)", np.int32, True),
        ("mod(n*m, 2147483647)", np.int32, True),
        ("mod(n, m)", np.int32, True),
        ("min(n*m, 5)", np.int32, True),
        ("max(n, 5)", np.int32, True),
        ("-n", np.int32, True),
        ("n*m", np.int32, False),
        ("n*m", np.int64, True),
        ("n", np.int8, False),
        ("-n", np.uint32, False),
        ("k + 100", np.int8, True),
        ("k + 101", np.int8, False),
    ],
)
def test_what_a_type_holds(size: str, dtype: type, expected: bool) -> None:
    facts = ShapeFacts()
    facts.add_at_least(Dim.symbol("k"), Dim.const(0))
    facts.add_at_least(Dim.const(27), Dim.symbol("k"))
    assert holds(facts, Dim.parse(size), np.dtype(dtype)) is expected
