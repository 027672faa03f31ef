"""PyTorch's ATen ops: a row for each op, by its name, in a file for each family.

A handler is `f(reader, *args, **kwargs)` with the op's own arguments in its own order: tensors are `Array`s,
symbolic sizes `Dim`s, dtypes PyTorch's. It returns an array, or a sequence of them where the op has several results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hlo_disc.import_.aten.rows import control, prims, random
from hlo_disc.import_.aten.rows.axes import norms, reductions, scans, sorting, strides, views
from hlo_disc.import_.aten.rows.indexing import bags, chosen, gathers, scatters, searches, segments
from hlo_disc.import_.aten.rows.matrices import attention, distances, fourier, linalg, products
from hlo_disc.import_.aten.rows.numbers import bessel, complexes, elementwise, polynomials, special
from hlo_disc.import_.aten.rows.windows import (
    antialias,
    convolutions,
    fractional,
    lines,
    padding,
    pools,
    regions,
    sampling,
)

Handler = Callable[..., Any]

_FAMILIES = (
    antialias, attention, bags, bessel, chosen, complexes, control, convolutions, distances, elementwise, fourier,
    fractional, gathers, linalg, lines, norms, padding, polynomials, pools, prims, products, random, reductions,
    regions, sampling, scans, scatters, searches, segments, sorting, special, strides, views,
)  # fmt: skip
HANDLERS: dict[str, Handler] = {name: row for family in _FAMILIES for name, row in family.ROWS.items()}
assert len(HANDLERS) == sum(len(family.ROWS) for family in _FAMILIES), "an op has two handlers"
