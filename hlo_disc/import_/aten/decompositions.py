"""Which ops PyTorch takes apart before a graph is read: all that it can, but those that have a row here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table

from hlo_disc.import_.aten import HANDLERS


@functools.cache
def decompositions() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    """By op, for `aot_autograd` and `ExportedProgram.run_decompositions`."""
    return {op: made for op, made in decomposition_table.items() if str(op) not in HANDLERS}
