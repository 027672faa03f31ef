"""Linear algebra, as JAX writes it with LAPACK's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.import_.aten.by_jax import traced

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _cholesky(r: AtenReader, x: Value, upper: bool = False) -> Value:
    return traced(r, lambda a: jnp.linalg.cholesky(a, upper=upper), x)[0]


ROWS: dict[str, Callable[..., Any]] = {
    "aten.cholesky.default": _cholesky,
}
