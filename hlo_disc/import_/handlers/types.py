"""The type of handlers, which convert a StableHLO or CHLO op whose operands are known to DHLO ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hlo_disc.import_.sizes.shapes import Operand

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader

Result = Operand | Sequence[Operand]
# The op is MLIR's, or a node of TensorFlow's, which has the same form: a reader has handlers for one of them.
Handler = Callable[["Reader", Any, list[Operand]], Result]
