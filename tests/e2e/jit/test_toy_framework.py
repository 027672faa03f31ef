"""A framework of the tests' own: programs of steps, which are read, and tensors, which come in and go out.

A real one touches, beside its own files: `sources.py` (what claims a program, and what reads it), and
`ral/contexts/__init__.py` (what claims a tensor). Nothing else may have to change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from graphs.dhlo import make_graph

import hlo_disc
from hlo_disc import sources
from hlo_disc.dynamic_hlo.ir.graph import Graph, Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.errors import ArgumentError, UnsupportedOpError
from hlo_disc.ral import contexts


class Beads:
    """A tensor of the framework's."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values


class Abacus(NamedTuple):
    """A program: inputs ("float32", "n, m"), and steps (op, numbers of the values that it takes)."""

    inputs: list[tuple[str, str]]
    steps: list[tuple[str, tuple[int, ...]]]


class BeadsAdapter:
    """Implements `hlo_disc.ral.contexts.Adapter`."""

    immutable = False

    def give(self, beads: Beads) -> np.ndarray:
        return beads.values

    def type(self, beads: Beads) -> None:
        """Nothing says it of beads."""

    def weak(self, beads: Beads) -> bool:
        return False

    def deleted(self, beads: Beads) -> bool:
        return False

    def take(self, tensor: object, like: object, weak: bool) -> Beads:
        raise AssertionError("there are no beads on a GPU")

    def wrap(self, result: np.ndarray, like: Beads | None, weak: bool = False) -> Beads:
        return Beads(result)


OPS = {"plus": "add", "times": "multiply"}


def graph_of(program: Abacus) -> Graph:
    def build(g: GraphBuilder, *values: Value) -> Value:
        known = list(values)
        for name, operands in program.steps:
            if name not in OPS:
                raise UnsupportedOpError(f"there is no step {name}")
            known.append(g.op(OPS[name], [known[i] for i in operands]))
        return known[-1]

    return make_graph(program.inputs, build)


def read(given: sources.Given) -> sources.Reading:
    if given.specs or given.dims:
        raise ArgumentError("an abacus has its own types")
    return f"an abacus of {len(given.source.steps)} steps", lambda: sources.Read(graph_of(given.source))


@pytest.fixture(autouse=True, scope="module")
def framework() -> Iterator[None]:
    contexts.register(__name__, lambda kind: BeadsAdapter() if kind is Beads else None)
    kind = sources.Kind(lambda source, specs: isinstance(source, Abacus), read)
    sources.register(kind)
    yield
    sources._KINDS.remove(kind)
    del contexts._CONTEXTS[__name__]


PROGRAM = Abacus([("float32", "n, m"), ("float32", "n, m")], [("times", (0, 1)), ("plus", (2, 0))])


def test_a_program_of_the_framework_runs_with_its_tensors() -> None:
    executable = hlo_disc.compile(PROGRAM)
    assert "an abacus of 2 steps" in executable.explain()
    for shape in ((2, 3), (1, 1), (0, 4), (33, 65)):
        x, y = np.random.default_rng(0).standard_normal((2, *shape)).astype(np.float32)
        result = executable(Beads(x), Beads(y))
        assert type(result) is Beads
        np.testing.assert_allclose(result.values, x * y + x, rtol=1e-6, atol=1e-6)


def test_its_programs_are_stablehlo_too() -> None:
    text = hlo_disc.stablehlo(PROGRAM)
    assert "stablehlo.multiply" in text and "stablehlo.add" in text
    assert not sources.is_module(PROGRAM) and not sources.is_function(PROGRAM, ())


def test_what_its_reader_refuses_is_an_error() -> None:
    with pytest.raises(UnsupportedOpError, match="there is no step minus"):
        hlo_disc.compile(Abacus([("float32", "n")], [("minus", (0, 0))]))
    with pytest.raises(ArgumentError, match="an abacus has its own types"):
        hlo_disc.compile(PROGRAM, "f32[n]")
    with pytest.raises(ArgumentError, match="only SavedModels have signatures"):
        hlo_disc.compile(PROGRAM, signature="main")
