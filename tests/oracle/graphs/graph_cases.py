"""Small graphs over sizes a, b and c by the names of what builds them, run at many sizes against the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from hand_written.fence import called_with_fenced
from hand_written.kernel_runner import KIND

from graphs.dhlo import make_graph
from hlo_disc import pipeline
from hlo_disc.dynamic_hlo.ir.graph import Graph, Value
from hlo_disc.dynamic_hlo.ops import reference
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.executable import Executable
from hlo_disc.options import Options

F32 = np.dtype(np.float32)
_LEAST = {"b": 0, "u": 0}  # by kind of type; other numbers have both signs

Build = Callable[..., Value | Sequence[Value]]


def constant(g: GraphBuilder, x: float, dtype: np.dtype = F32) -> Value:
    return g.op("constant", value=np.array(x, dtype))


class GraphCases:
    """Called with a case's inputs, "a, b" or (dtype, "a, b"), it decorates what builds the case's graph."""

    def __init__(self) -> None:
        self._graphs: dict[str, Graph] = {}

    def __call__(self, *inputs: str | tuple[str, str]) -> Callable[[Build], Build]:
        def add(build: Build) -> Build:
            rows = [("float32", i) if isinstance(i, str) else i for i in inputs]
            self._graphs[build.__name__] = make_graph(rows, build)
            return build

        return add

    def __iter__(self) -> Iterator[str]:
        return iter(self._graphs)

    def __getitem__(self, name: str) -> Graph:
        return self._graphs[name]

    def arguments(self, name: str, sizes: tuple[int, ...]) -> list[np.ndarray]:
        """Quarters of small integers, so that sums are exact in any order, with many ties."""
        env, rng = dict(zip("abc", sizes, strict=True)), np.random.default_rng(sum(sizes))
        arrays = []
        for value in self[name].inputs:
            shape = [d.evaluate(env) for d in value.shape]
            x = rng.integers(_LEAST.get(value.dtype.kind, -8), 2 if value.dtype.kind == "b" else 9, shape)
            arrays.append((x / 4 if value.dtype == F32 else x).astype(value.dtype))
        return arrays

    def check(self, name: str, features: str, sizes: Sequence[tuple[int, ...]]) -> None:
        """Compiled once, it computes at all sizes what the reference does, and reads nothing but its operands."""
        executable = Executable(pipeline.compile(self[name], Options(target=f"{KIND}:{features}")))
        calls = [self.arguments(name, row) for row in sizes]
        for row, arrays, results in zip(sizes, calls, called_with_fenced(executable, calls), strict=True):
            with np.errstate(all="ignore"):
                expected = reference.evaluate(self[name], arrays)
            for result, want in zip(results if isinstance(results, tuple) else (results,), expected, strict=True):
                assert result.dtype == want.dtype
                np.testing.assert_allclose(result, want, rtol=3e-5, atol=1e-5, err_msg=str(row))
