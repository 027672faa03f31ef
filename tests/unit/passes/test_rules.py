"""A rule is a function with a picture: it fires by its name, and docs/rules.md shows all of them."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from graphs.dhlo import make_graph

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.passes.alike import ALIKE
from hlo_disc.dynamic_hlo.passes.rules.rewrite import rewrite
from hlo_disc.dynamic_hlo.passes.rules.rule import Instead, Rule, make, rule
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import CompileError

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import rules_table


def absolute_of_negated() -> Graph:
    return make_graph([("float32", "b, s")], lambda b, x: b.op("abs", (b.op("negate", (x,)),)))


def test_a_rule_is_one_function() -> None:
    rules: list[Rule] = []

    @rule(rules, "abs", of="negate")
    def abs_of_negate(facts: ShapeFacts, op: Op, inner: Op) -> Instead | None:
        """abs(negate(x)) → abs(x)"""
        return make("abs", *inner.operands)

    @rule(rules, "abs", name="abs as a maximum")
    def maximum(facts: ShapeFacts, op: Op) -> Instead | None:
        """abs(x) → maximum(x, negate(x))"""
        (x,) = op.operands
        return make("maximum", x, make("negate", x))

    assert [(r.name, r.picture, r.roots) for r in rules] == [
        ("abs of negate", "abs(negate(x)) → abs(x)", ("abs",)),
        ("abs as a maximum", "abs(x) → maximum(x, negate(x))", ("abs",)),
    ]
    fired = Counter[str]()
    after = rewrite(absolute_of_negated(), rules, fired)
    assert fired == {"abs of negate": 1, "abs as a maximum": 1}
    assert [op.name for op in after.ops] == ["negate", "maximum"]
    assert all(x in (after.inputs[0], after.ops[0].result) for x in after.ops[1].operands)


def test_a_rule_that_does_not_apply_leaves_the_op() -> None:
    rules: list[Rule] = []

    @rule(rules, "abs")
    def nothing(facts: ShapeFacts, op: Op) -> Instead | None:
        """abs(x) → x"""
        return None

    fired = Counter[str]()
    assert [op.name for op in rewrite(absolute_of_negated(), rules, fired).ops] == ["negate", "abs"]
    assert not fired


def test_what_a_rule_makes_is_at_the_place_of_the_op() -> None:
    rules: list[Rule] = []

    @rule(rules, "abs")
    def square(facts: ShapeFacts, op: Op) -> Instead | None:
        """abs(x) → sqrt(multiply(x, x))"""
        (x,) = op.operands
        return make("sqrt", make("multiply", x, x))

    def build(b: GraphBuilder, x: Value) -> Value:
        return b.op("negate", (b.op("abs", (x,), "model.py:7"),), "model.py:8")

    after = rewrite(make_graph([("float32", "b, s")], build), rules)
    assert [(op.name, op.loc) for op in after.ops] == [
        ("multiply", "model.py:7"),
        ("sqrt", "model.py:7"),
        ("negate", "model.py:8"),
    ]


@pytest.mark.parametrize("other", ["dtype", "rank"])
def test_another_type_is_an_error_that_names_the_rule(other: str) -> None:
    rules: list[Rule] = []

    @rule(rules, "abs")
    def wrong_type(facts: ShapeFacts, op: Op) -> Instead | None:
        """abs(x) → convert(x)"""
        (x,) = op.operands
        if other == "dtype":
            return make("convert", x, dtype=np.dtype(np.float16))
        return make("reshape", x, shape=(x.shape[0] * x.shape[1],))

    with pytest.raises(CompileError, match="rewrite 'wrong type' turns"):
        rewrite(absolute_of_negated(), rules)


@pytest.mark.parametrize("each", ALIKE, ids=lambda each: each.name)
def test_every_rule_has_a_picture(each: Rule) -> None:
    assert re.fullmatch(r"[^→`|\n]+ → [^→`|\n]+", each.picture), each.picture
    assert not each.roots or each.picture.split("(")[0].split(" ")[0] in each.roots


def test_names_are_unique() -> None:
    assert len({each.name for each in ALIKE}) == len(ALIKE)


def test_the_page_is_current() -> None:
    assert rules_table.TARGET.read_text() == rules_table.document(), "run python tools/rules_table.py"
    tables = (*rules_table.COMPILED, *rules_table.COMPARED)
    assert [each.name for _, _, rules in tables for each in rules] == [each.name for each in ALIKE]
