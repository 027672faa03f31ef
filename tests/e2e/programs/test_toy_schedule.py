"""A schedule of one's own is a file and two rows: which ops it is for, and how fusion and the host flow treat it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from graphs.dhlo import make_graph

from hlo_disc import pipeline
from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.ops.table import OPS
from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.executable import Executable
from hlo_disc.options import Options
from hlo_disc.stitch.codegen.body import Body, InMemory
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.index import Index
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedule import Joins, Schedule
from hlo_disc.stitch.schedules import table
from hlo_disc.stitch.variant import Choice, Condition, Variant, decided


def toy_choices(group: Group, facts: ShapeFacts, device: Device, static: Callable[[Value], bool]) -> list[Choice]:
    return [Choice(ToyVariant(group, facts))]


@dataclass(frozen=True)
class ToyVariant(Variant):
    """reverse(x) + mark, one element after another, in a kernel of one block."""

    group: Group
    facts: ShapeFacts
    mark: float = 0
    name: str = "toy"

    def key(self) -> tuple:
        return (self.group.key, self.mark)

    def build(self, b: Builder, name: str) -> None:
        group = self.group
        values = [*group.inputs, *group.outputs]
        args = [(b.buffer_type(b.memory_type(v.dtype)), "w" if v in group.outputs else "r") for v in values]
        with b.module.kernel(name, args + [(b.index_type, "")] * len(group.symbols)) as given:
            sizes = Sizes(b, dict(zip(group.symbols, given[len(values) :], strict=True)), self.facts)
            leaves = {v: InMemory(m, sizes.shape(v.shape), v.dtype) for v, m in zip(values, given, strict=False)}
            body = Body(b, 1, sizes, {v: leaves[v] for v in group.inputs})
            (result,) = group.outputs
            n = b.index(sizes(result.shape[0]))
            with b.loop(0, n) as loop:
                x = body.eval(result.op.operands[0], (Index(n - loop.i - 1),))
                body.store(x + b.like(self.mark, x), leaves[result], (Index(loop.i),))

    def launch(self, b: Builder, sizes: Sizes, name: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> None:
        some = b.minimum(sizes(dim_product(self.group.outputs[0].shape)), 1)
        b.launch(name, some, [*buffers, *symbols])


def program(b, x, y):
    turned = b.op("reverse", [b.op("multiply", [x, y])], dims=(0,))
    return b.op("add", [turned, y])


def compiled() -> Executable:
    options = Options()
    return Executable(pipeline.compile(make_graph([("float32", "n"), ("float32", "n")], program), options), options)


@pytest.mark.parametrize(("joins", "kernels"), [(Joins.READ, 2), (Joins.NOTHING, 3)])
def test_a_schedule_is_a_file_and_two_rows(monkeypatch, joins, kernels):
    monkeypatch.setitem(table.SCHEDULES, "toy", Schedule("toy", toy_choices, joins))
    monkeypatch.setitem(OPS, "reverse", replace(OPS["reverse"], kind="toy"))
    executable = compiled()
    explained = executable.explain(full=True)
    assert f"{kernels} launches" in explained and "_toy ->" in explained
    assert ("[multiply, reverse]" in explained) == (joins is Joins.READ)
    for n in (0, 1, 7, 300):
        x, y = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
        np.testing.assert_array_equal(executable(x, y), (x * y)[::-1] + y)


def test_without_it_the_row_schedule_computes_the_op():
    assert "toy" not in compiled().explain(full=True)


def marked_choices(group: Group, facts: ShapeFacts, device: Device, static: Callable[[Value], bool]) -> list[Choice]:
    (size,) = group.outputs[0].shape
    rules = [(Condition(size, "<=", 3),), (Condition(size, "multiple of", 8), Condition(size, ">=", 16)), ()]
    return decided([Choice(ToyVariant(group, facts, 100 * k), when) for k, when in enumerate(rules, 1)], facts)


def test_sizes_choose_the_form(monkeypatch):
    monkeypatch.setitem(table.SCHEDULES, "toy", Schedule("toy", marked_choices, Joins.NOTHING))
    monkeypatch.setitem(OPS, "reverse", replace(OPS["reverse"], kind="toy"))
    executable = compiled()
    assert "_toy if n <= 3 else k2_toy if n multiple of 8 and n >= 16 else k3_toy" in executable.explain(full=True)
    for n, mark in [(0, 0), (3, 100), (4, 300), (8, 300), (15, 300), (16, 200), (17, 300), (24, 200)]:
        x = np.zeros(n, np.float32)
        np.testing.assert_array_equal(executable(x, x), np.full(n, mark, np.float32))


def test_facts_decide_a_condition():
    facts, n = ShapeFacts(), Dim.symbol("n")
    facts.add_divisible(n, 12)
    facts.add_at_least(n, 5)
    truths = [("multiple of", 4), ("multiple of", 5), ("<=", 4), (">=", 5), (">=", 13)]
    expected = [Truth.YES, Truth.UNKNOWN, Truth.NO, Truth.YES, Truth.UNKNOWN]
    assert [Condition(n, *t).truth(facts) for t in truths] == expected
