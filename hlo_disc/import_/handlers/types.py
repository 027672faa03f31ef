"""The type of handlers, which convert a StableHLO or CHLO op whose operands are known to DHLO ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hlo_disc.import_.sizes.shapes import Operand

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.mlir import ir

Result = Operand | Sequence[Operand]
Handler = Callable[["Reader", "ir.OpView", list[Operand]], Result]
