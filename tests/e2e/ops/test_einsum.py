"""einsum, torch_index_select and ragged_dot: what becomes of them against numpy and JAX, at several sizes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import hlo_disc
from hlo_disc.errors import UnsupportedOpError


def kind(rank: int, element: str = "f32") -> str:
    return f"tensor<{'?x' * rank}{element}>"


def module(op: str, attributes: str, operands: list[str], result: str) -> str:
    names = [f"%x{i}" for i in range(len(operands))]
    arguments = ", ".join(f"{name}: {t}" for name, t in zip(names, operands, strict=True))
    return f"""
    func.func public @main({arguments}) -> {result} {{
      %0 = "{op}"({", ".join(names)}) {{{attributes}}} : ({", ".join(operands)}) -> {result}
      return %0 : {result}
    }}"""


def spelled(term: str) -> str:
    """An ellipsis as two axes."""
    return term.replace("...", "xy")


CONFIGS = (
    "ab,bc->ac", "ab,cb->ca", "abc,abd->acd", "ab,ac->bc", "abc,dc->b", "a,b->ab", "aab,bc->ac", "...ab,...bc->...ac",
    "ab,ab->", "ab,c->c", "ab->ba", "ab->a", "ab->", "aab->b", "abb->a",
)  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS)
def test_einsum(config: str) -> None:
    left, result = config.split("->")
    terms = left.split(",")
    op = "stablehlo.einsum" if len(terms) == 2 else "stablehlo.unary_einsum"
    operands = [kind(len(spelled(term))) for term in terms]
    executable = hlo_disc.compile(module(op, f'einsum_config = "{config}"', operands, kind(len(spelled(result)))))
    rng = np.random.default_rng(0)
    for first in (3, 1, 0, 7):
        size = {name: first + i if first else 0 for i, name in enumerate("abcdxy")}
        arrays = [rng.standard_normal([size[name] for name in spelled(term)]).astype(np.float32) for term in terms]
        want = np.einsum(config, *(a.astype(np.float64) for a in arrays))
        np.testing.assert_allclose(executable(*arrays), want, rtol=0, atol=1e-5 * max(np.abs(want).max(initial=0), 1))


@pytest.mark.parametrize("config", ["abc,bc->ab", "ab,bc", "ab,bc->ad", "ab,bc->aa"])
def test_bad_einsum(config: str) -> None:
    text = module("stablehlo.einsum", f'einsum_config = "{config}"', [kind(2), kind(2)], kind(2))
    with pytest.raises(UnsupportedOpError, match="einsum"):
        hlo_disc.compile(text)


def test_torch_index_select() -> None:
    operands = [kind(3), kind(2, "i32")]
    executable = hlo_disc.compile(
        module("stablehlo.torch_index_select", "dim = 1 : i64, batch_dims = 1 : i64", operands, kind(3))
    )
    rng = np.random.default_rng(0)
    for b, n, k in ((2, 3, 5), (1, 1, 1), (0, 2, 3), (3, 2, 0)):
        x = rng.standard_normal((b, n, 4)).astype(np.float32)
        at = rng.integers(0, n, (b, k)).astype(np.int32)
        np.testing.assert_array_equal(executable(x, at), np.take_along_axis(x, at[:, :, None], 1))


# batch, contracting, ragged and group dimensions; shapes; group sizes
RAGGED: list[tuple[Any, ...]] = [
    ([], [], [1], [1], 0, [0], (11, 5), (3, 5, 7), [4, 0, 5]),
    ([0], [1], [2], [2], 1, [0], (2, 11, 5), (3, 2, 5, 7), [4, 0, 5]),
    ([0], [1], [2], [2], 1, [0], (2, 11, 5), (3, 2, 5, 7), [[4, 0, 5], [1, 2, 3]]),
    ([], [], [2], [1], 1, [0], (2, 11, 5), (3, 5, 7), [[4, 0, 5], [1, 2, 3]]),
    ([0], [0], [2], [1], 2, [], (2, 11, 5), (2, 5, 7), [2, 0, 2]),
    ([0], [0], [2], [1], 2, [], (2, 11, 5), (2, 5, 7), [[2, 0, 2], [1, 1, 1]]),
    ([], [], [1, 2], [0, 1], 2, [], (11, 2, 5), (2, 5, 7), [[2, 0, 2], [1, 1, 1]]),
    ([0], [0], [2], [1], 0, [], (2, 11, 5), (2, 5, 7), [1, 0, 1]),
]


@pytest.mark.parametrize("case", RAGGED)
def test_ragged_dot(case: tuple[Any, ...]) -> None:
    lb, rb, lc, rc, ragged, groups, left, right, counts = case
    numbers = jax.lax.RaggedDotDimensionNumbers(((lc, rc), (lb, rb)), [ragged], groups)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(size).astype(np.float32) for size in (left, right))
    sizes = np.array(counts, np.int32)
    want = np.asarray(jax.lax.ragged_dot_general(x, y, sizes, numbers))
    # The verifier of group sizes per batch wants static shapes.
    dynamic = sizes.ndim == 1
    kinds = [kind(len(s)) if dynamic else f"tensor<{'x'.join(map(str, s))}xf32>" for s in (left, right, want.shape)]
    attributes = f"""ragged_dot_dimension_numbers = #chlo.ragged_dot<
      lhs_batching_dimensions = {lb}, rhs_batching_dimensions = {rb}, lhs_contracting_dimensions = {lc},
      rhs_contracting_dimensions = {rc}, lhs_ragged_dimensions = [{ragged}], rhs_group_dimensions = {groups}>"""
    counts_kind = f"tensor<{'x'.join(map(str, sizes.shape))}xi32>"
    executable = hlo_disc.compile(module("chlo.ragged_dot", attributes, [*kinds[:2], counts_kind], kinds[2]))
    np.testing.assert_allclose(executable(x, y, sizes), want, rtol=0, atol=1e-5)
    if dynamic and ragged in lc:
        x, y = (rng.standard_normal(size).astype(np.float32) for size in ((3, 4, 9), (3, 9, 2)))
        want = np.asarray(jax.lax.ragged_dot_general(x, y, sizes, numbers))
        np.testing.assert_allclose(executable(x, y, sizes), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("precision", ["DEFAULT", "HIGH", "HIGHEST"])
def test_the_precision_of_a_ragged_dot(precision: str) -> None:
    said = f"#chlo<precision {precision}>"
    attributes = f"""precision_config = [{said}, {said}], ragged_dot_dimension_numbers = #chlo.ragged_dot<
      lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1],
      rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>"""
    text = module("chlo.ragged_dot", attributes, [kind(2), kind(3), "tensor<3xi64>"], kind(2))
    executable = hlo_disc.compile(text)
    y = np.random.default_rng(0).standard_normal((3, 5, 7)).astype(np.float32)
    for n in (11, 5, 0):
        x = np.ones((n, 5), np.float32)
        counts = np.array([n - n // 2, 0, n // 2])
        want = np.concatenate([x[: counts[0]] @ y[0], x[counts[0] :] @ y[2]])
        np.testing.assert_allclose(executable(x, y, counts), want, rtol=0, atol=1e-5)
