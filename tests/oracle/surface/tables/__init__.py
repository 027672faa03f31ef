"""The tables by module."""

from __future__ import annotations

from collections.abc import Mapping

from surface.row import Table, table
from surface.tables import numpy_elementwise, numpy_reductions, numpy_shapes

TABLES: Mapping[str, Table] = {
    "jax.numpy": table(numpy_elementwise.TABLE, numpy_reductions.TABLE, numpy_shapes.TABLE),
}
