"""Special functions, by the formulas that JAX has of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND

from hlo_disc.import_.aten.by_jax import by_jax
from hlo_disc.import_.aten.elementwise import elementwise


def _function(fn: Callable[..., Any]) -> Callable[..., Any]:
    return elementwise(by_jax(fn), KIND.INT_TO_FLOAT)


ROWS: dict[str, Callable[..., Any]] = {
    "aten.lgamma.default": _function(jax.lax.lgamma),
    "aten.digamma.default": _function(jax.lax.digamma),
    "aten.erfinv.default": _function(jax.lax.erf_inv),
    "aten.acos.default": _function(jax.lax.acos),
    "aten.asin.default": _function(jax.lax.asin),
    "aten.atan.default": _function(jax.lax.atan),
    "aten.acosh.default": _function(jax.lax.acosh),
    "aten.asinh.default": _function(jax.lax.asinh),
    "aten.atanh.default": _function(jax.lax.atanh),
    "aten.cosh.default": _function(jax.lax.cosh),
    "aten.sinh.default": _function(jax.lax.sinh),
    "aten.igamma.default": _function(jax.lax.igamma),
    "aten.igammac.default": _function(jax.lax.igammac),
    "aten.nextafter.default": _function(jax.lax.nextafter),
}
