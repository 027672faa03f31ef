"""JAX's public functions, a row or several each: what `hlo_disc.jit` is compared with `jax.jit` on."""

from __future__ import annotations

from surface.row import Row
from surface.tables import TABLES

# By "jax.numpy.sum:1", the function and which of its rows it is.
ROWS: dict[str, Row] = {
    f"{module}.{name}:{i}": row
    for module, functions in TABLES.items()
    for name, rows in functions.items()
    for i, row in enumerate(rows)
}

__all__ = ["ROWS", "Row"]
