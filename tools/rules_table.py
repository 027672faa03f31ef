"""A script that writes docs/rules.md from the docstrings of the rewrite rules: `python tools/rules_table.py`.

A test checks that the file is current.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from hlo_disc.dynamic_hlo.passes.alike import EMPTY_RULES, SPELLING_RULES
from hlo_disc.dynamic_hlo.passes.dots import DOT_RULES
from hlo_disc.dynamic_hlo.passes.rules.affine import AFFINE_RULES
from hlo_disc.dynamic_hlo.passes.rules.rule import Rule
from hlo_disc.dynamic_hlo.passes.rules.rules_math import MATH_RULES
from hlo_disc.dynamic_hlo.passes.rules.rules_view import VIEW_RULES
from hlo_disc.dynamic_hlo.passes.units import UNIT_RULES

TARGET = Path(__file__).parent.parent / "docs" / "rules.md"
FEW = 8  # ops that a row names
# In the order in which they are tried: a heading, the file in hlo_disc/dynamic_hlo/passes, the rules.
COMPILED: tuple[tuple[str, str, Sequence[Rule]], ...] = (
    ("Ops that move data", "rules_view.py", VIEW_RULES),
    ("Ops that compute", "rules_math.py", MATH_RULES),
    ("Products", "dots.py", DOT_RULES),
    ("Gathers of evenly spaced places", "affine.py", AFFINE_RULES),
)
COMPARED: tuple[tuple[str, str, Sequence[Rule]], ...] = (
    ("Empty arrays", "alike.py", EMPTY_RULES),
    ("Axes of size 1", "units.py", UNIT_RULES),
    ("Several spellings", "alike.py", SPELLING_RULES),
)


def _tables(tables: Sequence[tuple[str, str, Sequence[Rule]]]) -> Iterator[str]:
    for heading, file, rules in tables:
        yield f"\n### {heading} (`{file}`)\n"
        yield "| rule | at | picture |"
        yield "|---|---|---|"
        for rule in rules:
            roots = ", ".join(f"`{root}`" for root in rule.roots) if 0 < len(rule.roots) <= FEW else "many ops"
            yield f"| {rule.name} | {roots} | `{rule.picture}` |"


def document() -> str:
    """Return the text of docs/rules.md."""
    return f"""\
# Rewrite rules

Made by `python tools/rules_table.py` from the docstrings of the rules in `hlo_disc/dynamic_hlo/passes`; a test checks
that it is current.

In a picture the op before `→` becomes what stands after it, where `f(x)` is an op of `x`, and `constant c`, `dim s` and
numbers are constants and sizes. After `:` stands a shape, whose letters are any sizes and whose 0 and 1 are just these,
and after a comma an attribute or a condition; what is not written stays as it is.

## Programs

These rules are tried in this order at every op of a program that is compiled (`passes/simplify.py`).
{chr(10).join(_tables(COMPILED))}

## Graphs that are compared

These come after the others where graphs are compared (`passes/alike.py`), and make no program faster.
{chr(10).join(_tables(COMPARED))}
"""


if __name__ == "__main__":
    TARGET.write_text(document())
