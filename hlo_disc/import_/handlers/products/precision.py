"""The precision that a program asks of a product. Only TF32 makes a difference here.

XLA on NVIDIA's GPUs rounds operands of f32 to TF32 unless their precision is HIGHEST, or an algorithm says otherwise
("Matmul precision" in JAX's documentation). Everything else is computed at least as exactly as it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.import_.stablehlo.decode import enumerator
from hlo_disc.mlir import ir, stablehlo

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader

# TF32 has as many binary digits as these, or more.
_FEW_DIGITS = ("tf32", "f16", "bf16", "f8")


def allows_tf32(r: Reader, op: ir.OpView, a: Value, b: Value, dtype: np.dtype) -> bool:
    """Whether a product of f32 may round its operands to TF32."""
    single = {a.dtype, b.dtype, dtype} == {np.dtype(np.float32)}
    if "algorithm" in op.attributes:
        types, sums, products = r.attr(op, "algorithm", _algorithm)
        if sums == "f64" and all(x.itemsize <= 4 for x in (a.dtype, b.dtype, dtype)):
            r.unsupported("sums in f64 of narrower operands, and a narrower result")
        return single and products == 1 and all(type_.startswith(_FEW_DIGITS) for type_ in types)
    if "precision_config" in op.attributes:
        return single and "HIGHEST" not in r.attr(op, "precision_config", _precisions)
    return single


def _precisions(attribute: ir.Attribute) -> tuple[str, ...]:
    return tuple(map(enumerator, ir.ArrayAttr(attribute)))


def _algorithm(attribute: ir.Attribute) -> tuple[tuple[str, str], str, int]:
    """Decode a dot algorithm: the types of rounded operands, the type of sums, and the number of products that make
    one."""
    found = stablehlo.DotAlgorithm(attribute)
    types = str(found.lhs_precision_type), str(found.rhs_precision_type)
    return types, str(found.accumulation_type), found.num_primitive_operations
