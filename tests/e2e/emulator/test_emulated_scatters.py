"""Scatters as kernels of a GPU, thread by thread: the CPU's results, to the bit, in three orders of threads."""

from __future__ import annotations

from collections.abc import Iterator

import depth
import emulated
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

import hlo_disc

ORDERS = (0, -1, 7)
# Rows, columns, indices.
SIZES = (
    (5, 7, 3), (1, 1, 1), (3, 300, 70), (2500, 1, 65), (1025, 5, 200), (0, 4, 2), (4, 0, 2), (7, 257, 0), (3, 4, 64),
)  # fmt: skip
DTYPES = {
    "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "i32": np.int32, "i64": np.int64,
    "ui32": np.uint32, "ui64": np.uint64, "complex<f32>": np.complex64,
}  # fmt: skip
# (dimension numbers, shapes of operand, indices and updates)
LAYOUTS = {
    "rows": (
        "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
        "index_vector_dim = 1",
        ("mn", "k1", "kn"),
    ),
    "elements": (
        "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1",
        ("m", "k1", "k"),
    ),
    "batches": (
        "inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], "
        "scatter_dims_to_operand_dims = [1], index_vector_dim = 2",
        ("mn", "mk1", "mk"),
    ),
    # of two rows and three columns, which overlap
    "windows": (
        "update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1",
        ("mn", "k2", "k23"),
    ),
}
REGIONS = {
    "overwrite": ("", "%b"),
    # neither sides nor order may change
    "half": ("%h = stablehlo.subtract %a, %b : T %s = stablehlo.divide %h, %b : T", "%s"),
    **{name: (f"%s = stablehlo.{name} %a, %b : T", "%s") for name in ("add", "maximum", "minimum", "and", "or", "xor")},
}


@pytest.fixture(autouse=True)
def registered(emulated_targets) -> Iterator[None]:
    yield
    emulated.emulator().simt_order(0)


def module(layout: str, dtype: str, region: str, unique: bool) -> str:
    numbers, shapes = LAYOUTS[layout]
    (body, result), element = REGIONS[region], f"tensor<{dtype}>"
    lengths = ["".join(f"{s}x" if s.isdigit() else "?x" for s in shape) for shape in shapes]
    x, i, u = (f"tensor<{n}{t}>" for n, t in zip(lengths, (dtype, "i32", dtype), strict=True))
    named = [f'{{hlo_disc.shape = "({", ".join(shape)},)"}}' for shape in shapes]
    return f"""
      func.func @main(%x: {x} {named[0]}, %i: {i} {named[1]}, %u: {u} {named[2]}) -> {x} {{
        %r = "stablehlo.scatter"(%x, %i, %u) <{{unique_indices = {str(unique).lower()},
            scatter_dimension_numbers = #stablehlo.scatter<{numbers}>}}> ({{
          ^bb0(%a: {element}, %b: {element}):
            {body.replace("T", element)}
            stablehlo.return {result} : {element}
        }}) : ({x}, {i}, {u}) -> {x}
        return %r : {x}
      }}"""


def arguments(layout: str, dtype: str, sizes: tuple[int, int, int], unique: bool) -> list[np.ndarray]:
    """Return random arguments. Some indices are outside; many are the same, unless they have to be unique."""
    rng, lengths = np.random.default_rng(sum(sizes)), dict(zip("mnk", sizes, strict=True))
    operand, indices, updates = ([lengths.get(s, s) for s in shape] for shape in LAYOUTS[layout][1])
    operand, indices, updates = ([int(s) for s in shape] for shape in (operand, indices, updates))
    at = rng.integers(-1, max(operand) + 1, indices)
    if unique:
        at = (rng.permutation(2 * sizes[2])[: sizes[2]] - 2)[:, None]
    x, u = (rng.integers(-90 if "u" not in dtype else 0, 90, shape) for shape in (operand, updates))
    if "f" in dtype:
        x, u = x / 7, u / 7 + 0.01
    x, u = (a + 1j * a[::-1] if dtype.startswith("complex") else a for a in (x, u))
    return [x.astype(DTYPES[dtype]), at.astype(np.int32), u.astype(DTYPES[dtype])]


CASES = [
    # first what CPUs have too, who do not see where they store
    *((layout, "f32", "add", False, "scatter_32") for layout in LAYOUTS),
    *((layout, "f32", "overwrite", False, "scatter_32") for layout in LAYOUTS),
    *(("rows", dtype, "half", False, "scatter_32") for dtype in ("f32", "bf16", "complex<f32>")),
    ("elements", "i8", "add", False, "scatter_32"),
    *(
        ("elements", dtype, region, False, f"scatter_{kind}")
        for region, kind in (("add", "addi"), ("and", "andi"), ("or", "ori"), ("xor", "xori"))
        for dtype in ("i32", "i64", "ui32")
    ),
    *(
        ("elements", dtype, region, False, f"scatter_{region[:3]}{'u' if dtype[0] == 'u' else 's'}")
        for region in ("maximum", "minimum")
        for dtype in ("i32", "i64", "ui32", "ui64")
    ),
    *((layout, "i32", "add", False, "scatter_addi") for layout in ("rows", "batches", "windows")),
    *((layout, "f32", "overwrite", True, "scatter_unique") for layout in ("rows", "elements")),
    *(("rows", dtype, "half", True, "scatter_unique") for dtype in ("bf16", "f64", "complex<f32>")),
]


@depth.sampled(2)
@pytest.mark.parametrize("layout, dtype, region, unique, kernel", CASES)
def test_scatter(layout, dtype, region, unique, kernel):
    text = module(layout, dtype, region, unique)
    executable, cpu = (hlo_disc.compile(text, target=target) for target in ("emulated-cuda", "cpu"))
    assert kernel.encode() in executable.program.object
    for sizes in SIZES:
        if layout == "windows" and (sizes[0] < 2 or sizes[1] < 3):
            continue
        given = arguments(layout, dtype, sizes, unique)
        results = []
        for order in ORDERS:
            emulated.emulator().simt_order(order)
            results.append(executable(*given))
            emulated.check()  # before the CPU runs, where a store outside of its memory would be one anywhere
        expected = cpu(*given)
        for result in results:
            np.testing.assert_array_equal(result, expected)


def test_one_window_needs_no_order():
    text = module("windows", "f32", "overwrite", False).replace("?x2x", "1x2x").replace("(k,", "(1,")
    assert b"scatter_unique" in hlo_disc.compile(text, target="emulated-cuda").program.object


def test_one_index_for_all_updates():
    """Unique indices that are all equal mean that there is one update at most: no other lane may write."""

    def function(x, j, u):
        numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
        return lax.scatter_add(x, jnp.full((*u.shape, 1), j), u, numbers, unique_indices=True)

    executable = hlo_disc.compile(function, "f32[m]", "i32[]", "f32[k]", target="emulated-cuda")
    assert b"scatter_unique" in executable.program.object
    x = np.arange(300, dtype=np.float32)
    expected = x.copy()
    expected[3] += 5
    np.testing.assert_array_equal(executable(x, np.int32(3), np.full(1, 5, np.float32)), expected)
