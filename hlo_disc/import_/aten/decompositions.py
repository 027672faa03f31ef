"""The ops that are decomposed before reading a graph: all that PyTorch or `formulas.py` can, but those with a row."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch
from torch._decomp import decomposition_table

from hlo_disc.import_.aten.formulas import FORMULAS
from hlo_disc.import_.aten.rows import HANDLERS


@functools.cache
def decompositions() -> dict[torch._ops.OpOverload, Callable[..., object]]:
    """Return the decompositions by op, for `aot_autograd`."""
    return _without_rows(decomposition_table | FORMULAS)


def export_decompositions() -> dict[torch._ops.OpOverload, Callable[..., object]]:
    """Return the decompositions by op for exported programs, in which composite ops are still whole."""
    table = dict(torch.export.default_decompositions().items())
    return _without_rows(table | decompositions())


def _without_rows(
    table: Mapping[torch._ops.OpOverload, Callable[..., object]],
) -> dict[torch._ops.OpOverload, Callable[..., object]]:
    return {op: made for op, made in table.items() if str(op) not in HANDLERS}
