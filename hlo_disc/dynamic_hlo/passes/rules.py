"""All rewrite rules, in the order in which they are tried."""

from __future__ import annotations

from hlo_disc.dynamic_hlo.passes.dots import DOT_RULES
from hlo_disc.dynamic_hlo.passes.rules_math import MATH_RULES
from hlo_disc.dynamic_hlo.passes.rules_view import VIEW_RULES

RULES = VIEW_RULES + MATH_RULES + DOT_RULES
