"""`reduce_precision` at the ends of its formats: exactly XLA's results, and for mini floats exactly the reference's."""

from __future__ import annotations

import itertools

import depth
import jax
import ml_dtypes
import numpy as np
import pytest
from comparison.xla_results import NEWER_EMITTERS
from graphs.dhlo import make_graph
from jax import lax

from hlo_disc.dynamic_hlo.ir.dtypes import FLOATS
from hlo_disc.dynamic_hlo.ops.reference import evaluate
from hlo_disc.executable import Executable
from hlo_disc.options import Options
from hlo_disc.pipeline import compile as compile_graph


def line(dtype: np.dtype) -> np.ndarray:
    """Every mini float; of other types the ends of every range, what lies next to them, and random bits."""
    info, bits = ml_dtypes.finfo(dtype), 8 * dtype.itemsize
    if bits == 8:
        return np.arange(1 << info.bits, dtype=np.uint8).view(dtype)
    ends = [0.0, 1.0, 1.5, 1.75, 2.5, 3.0, info.max, info.tiny, info.smallest_subnormal, np.inf, np.nan]
    word = np.dtype(f"u{dtype.itemsize}")
    near = np.array([float(x) for x in ends]).astype(dtype).view(word)
    random = np.random.default_rng(0).integers(0, 1 << min(bits, 63), 500, np.uint64) << (bits // 64)
    codes = np.concatenate([near, near - 1, near + 1, near ^ (1 << bits - 1), random.astype(word)])
    return codes.astype(word).view(dtype)


def formats(dtype: np.dtype) -> list[tuple[int, int]]:
    info = ml_dtypes.finfo(dtype)
    exponents = {1, 2, info.nexp - 1, info.nexp, info.nexp + 1, 30}
    mantissas = {0, 1, info.nmant - 1, info.nmant, info.nmant + 1, 60}
    return [(e, m) for e, m in itertools.product(sorted(exponents), sorted(mantissas)) if e > 0 <= m]


def same(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        x, y = x.astype(np.float64), y.astype(np.float64)
    return (x == y) & (np.signbit(x) == np.signbit(y)) | np.isnan(x) & np.isnan(y)


@depth.sampled(3)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_ends_of_formats(dtype):
    x, pairs = line(dtype), formats(dtype)
    attrs = [{"exponent_bits": e, "mantissa_bits": m} for e, m in pairs]
    graph = make_graph([(dtype, "n")], lambda b, v: [b.op("reduce_precision", [v], **a) for a in attrs])
    results = Executable(compile_graph(graph, Options(threads=1)))(x)
    expected = [evaluate(graph, [x])]
    # XLA computes mini floats in a type of more exponents, but for this one, and loses the smallest.
    if dtype.itemsize > 1 or dtype == ml_dtypes.float8_e5m2:
        with jax.enable_x64(True):
            by_xla = jax.jit(
                lambda v: [lax.reduce_precision(v, e, m) for e, m in pairs], compiler_options=NEWER_EMITTERS
            )
            expected.append(by_xla(x))
    for wanted in expected:
        for pair, got, want in zip(pairs, results, wanted, strict=True):
            wrong = ~same(got, np.asarray(want))
            assert not wrong.any(), (pair, x[wrong], got[wrong], np.asarray(want)[wrong])
