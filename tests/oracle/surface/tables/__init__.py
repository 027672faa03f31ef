"""The tables by module."""

from __future__ import annotations

from collections.abc import Mapping

from surface.row import Table, table
from surface.tables import (
    compositions,
    draws,
    lax_arrays,
    lax_control,
    lax_elementwise,
    nn,
    numpy_elementwise,
    numpy_products,
    numpy_reductions,
    numpy_shapes,
    scipy_linalg,
    scipy_other,
    scipy_special,
    scipy_stats,
)

TABLES: Mapping[str, Table] = {
    "jax.numpy": table(numpy_elementwise.TABLE, numpy_reductions.TABLE, numpy_shapes.TABLE, numpy_products.PRODUCTS),
    "jax.numpy.fft": numpy_products.FFT,
    "jax.numpy.linalg": numpy_products.LINALG,
    "jax.lax": table(
        lax_elementwise.TABLE, lax_arrays.VIEWS, lax_arrays.REDUCTIONS, lax_arrays.PRODUCTS, lax_control.CONTROL
    ),
    "jax.lax.linalg": lax_control.LINALG,
    "jax.nn": nn.NN,
    "jax.nn.initializers": nn.INITIALIZERS,
    "jax.image": nn.IMAGE,
    "jax.random": draws.TABLE,
    "jax.scipy.linalg": scipy_linalg.LINALG,
    "jax.scipy.sparse.linalg": scipy_linalg.SPARSE,
    "jax.scipy.special": scipy_special.TABLE,
    "jax.scipy.stats": scipy_stats.STATS,
    **scipy_stats.DISTRIBUTIONS,
    **scipy_other.OTHER,
    "surface.compositions": compositions.COMPOSITIONS,
}
