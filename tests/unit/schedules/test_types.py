"""Ops that move and reduce, on element types of every kind: one program a type, many sizes, against the reference."""

from __future__ import annotations

import depth
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from graphs.dhlo import make_graph, shape
from test_elementwise import TYPES, compiled, line

import hlo_disc
from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, dtype_class, element_type
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.ops.families.combiners import identity
from hlo_disc.dynamic_hlo.ops.reference import evaluate
from hlo_disc.stitch.schedules.row.reducers import identity_init

SIZES = ((3, 5), (1, 1), (0, 4), (4, 0), (33, 17), (2, 257), (300, 3))
NAMES = "i1 i4 ui64 bf16 f64 f8E5M2FNUZ".split()
NAMES += "ui2 i8 ui16 i64 f16 f4E2M1FN f8E4M3FN f8E8M0FNU".split() if depth.full else []
# Values without 0, of which no sum makes sense.
UNSIGNED_POWERS = np.dtype(ml_dtypes.float8_e8m0fnu)


def program(dtype: np.dtype, names: list[str]):
    kind = dtype_class(dtype)

    def build(g: GraphBuilder, x: Value, y: Value) -> list[Value]:
        made: dict[str, Value] = {}
        one = g.op("constant", value=np.array(1).astype(dtype))
        made["transpose"] = g.op("transpose", [x], perm=(1, 0))
        made["broadcast"] = g.op("broadcast", [x], shape=shape("3, a, b"), dims=(1, 2))
        made["reshape"] = g.op("reshape", [x], shape=shape("a*b"))
        made["concatenate"] = g.op("concatenate", [x, y], dim=0)
        made["reverse"] = g.op("reverse", [x], dims=(0, 1))
        made["pad"] = g.op("pad", [x, one], low=shape("1, 2"), high=shape("0, 3"), interior=shape("1, 0"))
        made["constant"] = g.op("constant", value=np.resize(line(dtype), 7))
        less = g.op("compare", [x, y], direction="LT")
        made["select"] = g.op("select", [less, x, y])
        if dtype != BOOL:
            made["iota"] = g.op("iota", shape=shape("a, b"), dim=1, dtype=dtype)
            made["chain"] = g.op("multiply", [g.op("add", [x, y]), x])
            power = g.op("power", [x, y])  # kept in fast memory between two sweeps
            most = g.op("reduce", [power, one], dims=(1,), kind="max")
            spread = g.op("broadcast", [most], shape=shape("a, b"), dims=(0,))
            made["two sweeps"] = g.op("maximum", [power, spread])
        kinds = ["max", "min"]
        kinds += ["add", "mul"] if dtype not in (BOOL, UNSIGNED_POWERS) else []
        kinds += ["and", "or"] if kind != "float" else []
        for reducer in kinds:
            for dims in ((0,), (1,)):
                made[f"{reducer} {dims}"] = g.op("reduce", [x, one], dims=dims, kind=reducer)
        names[:] = made
        return list(made.values())

    return make_graph([(dtype, "a, b")] * 2, build)


def drawn(dtype: np.dtype, rng: np.random.Generator, dims: tuple[int, int]) -> np.ndarray:
    values = line(dtype)
    if dtype_class(dtype) == "float":
        size = np.abs(values.astype(np.float64))
        values = values[np.isfinite(size) & (size < 3)]
    return values[rng.integers(0, len(values), dims)]


@pytest.mark.parametrize("dtype", [dtype for dtype in TYPES if element_type(dtype) in NAMES], ids=element_type)
def test_every_type(dtype):
    names: list[str] = []
    graph = program(dtype, names)
    executable = compiled(graph, "host")
    rng = np.random.default_rng(0)
    for dims in SIZES:
        x, y = drawn(dtype, rng, dims), drawn(dtype, rng, dims)
        for name, got, want in zip(names, executable(x, y), evaluate(graph, [x, y]), strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape, name
            if dtype_class(dtype) != "float":
                np.testing.assert_array_equal(got, want, name)
                continue
            got, want = got.astype(np.float64), want.astype(np.float64)
            # a chain and a power round more than once, or not where the reference does
            loose = name.split()[0] in ("add", "mul", "chain", "two")
            largest = np.abs(want[np.isfinite(want)]).max(initial=1)
            slack = 8 * float(ml_dtypes.finfo(dtype).eps) * largest if loose else 0
            np.testing.assert_allclose(got, want, rtol=0, atol=slack, err_msg=name)


@pytest.mark.parametrize("dtype", TYPES, ids=element_type)
def test_only_other_initial_values_than_the_identity_are_combined(dtype):
    def reduced(g: GraphBuilder, x: Value, kind: str, start: np.ndarray) -> Value:
        return g.op("reduce", [x, g.op("constant", value=start)], dims=(0,), kind=kind)

    def build(g: GraphBuilder, x: Value) -> list[Value]:
        kinds = ["max", "min", "mul", *(["and", "or", "xor"] if dtype_class(dtype) != "float" else [])]
        same = [reduced(g, x, kind, identity(kind, dtype)) for kind in kinds]
        return [*same, reduced(g, x, "max", identity("min", dtype))]

    *same, other = (identity_init(x.op) for x in make_graph([(dtype, "a")], build).outputs)
    assert all(same) and not other


def test_bf16_is_taken_apart_and_turned_around():
    """LLVM's own bf16 vectors abort the process here."""

    def fn(x):
        turned = x[::-1, ::-1, ::-1]
        return jnp.nextafter(x, turned), turned

    x = jnp.arange(12, dtype=jnp.bfloat16).reshape(2, 2, 3) - 5
    for ours, theirs in zip(hlo_disc.compile(fn, "bf16[2, 2, 3]")(x), fn(x), strict=True):
        np.testing.assert_array_equal(np.asarray(ours, np.float32), np.asarray(theirs, np.float32))
