"""PyTorch's ATen ops: a row an op, by its name, in files of families.

A handler is `f(reader, *args, **kwargs)` with the op's own arguments in its own order: tensors are values, symbolic
sizes `Dim`s, dtypes PyTorch's. It returns a value, or a sequence of them where the op has several results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hlo_disc.import_.aten import (
    elementwise,
    gathers,
    linalg,
    padding,
    products,
    reductions,
    scans,
    scatters,
    searches,
    sorting,
    special,
    strides,
    views,
)

Handler = Callable[..., Any]

HANDLERS: dict[str, Handler] = {}
for _family in (
    elementwise,
    special,
    views,
    reductions,
    products,
    linalg,
    gathers,
    scatters,
    sorting,
    scans,
    strides,
    searches,
    padding,
):
    assert HANDLERS.keys().isdisjoint(_family.ROWS), HANDLERS.keys() & _family.ROWS.keys()
    HANDLERS.update(_family.ROWS)
