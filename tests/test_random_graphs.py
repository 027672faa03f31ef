"""Random graphs through the rewrites and through the whole compiler, against the reference."""

from __future__ import annotations

import numpy as np
from dhlo import sample
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from random_graphs import graphs

from hlo_disc.dynamic_hlo.print import to_stablehlo
from hlo_disc.dynamic_hlo.reference import evaluate
from hlo_disc.dynamic_hlo.rewrite import simplify
from hlo_disc.dynamic_hlo.verify import verify
from hlo_disc.executable import Executable
from hlo_disc.options import Options
from hlo_disc.pipeline import compile as compile_graph

SIZES = [(4, 3), (0, 3), (1, 1), (2, 33), (3, 0), (257, 2), (7, 32)]


def assert_close(ours, reference) -> None:
    for y, x in zip(map(np.asarray, ours), reference, strict=True):
        assert (y.shape, y.dtype) == (x.shape, x.dtype)
        np.testing.assert_allclose(y, x, rtol=1e-3, atol=1e-3)


@settings(max_examples=100, deadline=None)
@given(graphs(max_ops=10), st.sampled_from(SIZES))
def test_rewrites_keep_the_meaning(graph, sizes):
    note(to_stablehlo(graph))
    rewritten = simplify(graph)
    verify(rewritten)
    note(to_stablehlo(rewritten))
    arrays = sample(graph, dict(zip("bs", sizes, strict=True)))
    assert_close(evaluate(rewritten, arrays), evaluate(graph, arrays))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(max_ops=6))
def test_one_binary_runs_every_shape(graph):
    note(to_stablehlo(graph))
    executable = Executable(compile_graph(graph, Options()))
    for b, s in SIZES:
        note(f"b = {b}, s = {s}")
        arrays = sample(graph, dict(b=b, s=s))
        results = executable(*arrays)
        assert_close(results if isinstance(results, tuple) else (results,), evaluate(graph, arrays))
