"""All rewrites of a graph that hold at all sizes, to the point where nothing more fires."""

from __future__ import annotations

from hlo_disc.dynamic_hlo.ir.graph import Graph, everywhere
from hlo_disc.dynamic_hlo.passes.control import tidy
from hlo_disc.dynamic_hlo.passes.dots import DOT_RULES, orient_dots, split_batches
from hlo_disc.dynamic_hlo.passes.rules.affine import AFFINE_RULES
from hlo_disc.dynamic_hlo.passes.rules.rewrite import cse, rewrite
from hlo_disc.dynamic_hlo.passes.rules.rules_math import MATH_RULES
from hlo_disc.dynamic_hlo.passes.rules.rules_view import VIEW_RULES
from hlo_disc.dynamic_hlo.passes.unroll import unroll

# In the order in which they are tried.
RULES = (*VIEW_RULES, *MATH_RULES, *DOT_RULES, *AFFINE_RULES)


def simplify(graph: Graph) -> Graph:
    """An equal graph without what the facts make redundant, in regions too: all rules, CSE, dots turned and batched
    as their users read them, and control flow without what it need not carry or compute again.
    """
    graph = everywhere(graph, _simpler)
    while (tidied := everywhere(tidy(graph), unroll)) is not graph:
        graph = everywhere(tidied, _simpler)
    return graph


def _simpler(scope: Graph) -> Graph:
    scope = cse(rewrite(scope, RULES))
    turned = orient_dots(split_batches(scope))
    return scope if turned is scope else rewrite(turned, RULES)
