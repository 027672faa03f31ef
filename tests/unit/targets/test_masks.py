"""Loads, stores, gathers and scatters of lanes that a condition of all lanes and a constant choose together.

Code generation is given to forget such masks when it divides them between registers.
"""

from __future__ import annotations

import depth
import numpy as np
import pytest
from hand_written import kernel_runner as kernels

CHOSEN = {
    "in the first register": [3, 4],
    "in the second": [8, 9],
    "the first register": range(8),
    "in both": [1, 9],
    "the first half of both": [0, 1, 2, 3, 8, 9, 10, 11],
    "prefix": range(10),
    "none": [],
}
OPS = {
    "load": """
      %v = vector.maskedload %a0[%c0], %m, %z : memref<?xT>, MASKS, vector<16xT> into vector<16xT>
      vector.store %v, %a1[%c0] : memref<?xT>, vector<16xT>""",
    "store": """
      %v = vector.load %a0[%c0] : memref<?xT>, vector<16xT>
      vector.maskedstore %a1[%c0], %m, %v : memref<?xT>, MASKS, vector<16xT>""",
    "gather": """
      %v = vector.gather %a0[%c0] [%lanes], %m, %z
        : memref<?xT>, vector<16xindex>, MASKS, vector<16xT> into vector<16xT>
      vector.store %v, %a1[%c0] : memref<?xT>, vector<16xT>""",
    "scatter": """
      %v = vector.load %a0[%c0] : memref<?xT>, vector<16xT>
      vector.scatter %a1[%c0] [%lanes], %m, %v : memref<?xT>, vector<16xindex>, MASKS, vector<16xT>""",
}
CONDITIONS = {
    "one for all": """
      %flag = memref.load %a2[%c0] : memref<?xi8>
      %zero = arith.constant 0 : i8
      %set = arith.cmpi ne, %flag, %zero : i8
      %some = vector.broadcast %set : i1 to MASKS""",
    "a flag a lane": """
      %flags = vector.load %a2[%c0] : memref<?xi8>, vector<16xi8>
      %zeros = arith.constant dense<0> : vector<16xi8>
      %some = arith.cmpi ne, %flags, %zeros : vector<16xi8>""",
}


@depth.sampled(2)
@pytest.mark.parametrize("level", kernels.levels())
@pytest.mark.parametrize("type_", [np.float32, np.float64, np.int32, np.int16])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("op", OPS)
def test_only_chosen_lanes(op, condition, type_, level):
    name = kernels.mlir_type(type_)
    for which in CHOSEN.values():
        chosen = np.isin(np.arange(16), list(which))
        constant = "dense<[" + ", ".join("true" if c else "false" for c in chosen) + "]> : MASKS"
        body = f"""
          {CONDITIONS[condition]}
          %these = arith.constant {constant}
          %m = arith.andi %some, %these : MASKS
          %z = arith.constant dense<{0 if np.issubdtype(type_, np.integer) else 0.0}> : vector<16xT>
          %lanes = vector.step : vector<16xindex>
          {OPS[op]}""".replace("MASKS", "vector<16xi1>").replace("xT>", f"x{name}>")
        for flag in (0, 1):
            x, flags = np.arange(1, 17, dtype=type_), np.full(16, flag, np.int8)
            result = np.zeros(16, type_)
            kernels.run(body, x, result, flags, level=level)
            np.testing.assert_array_equal(result, np.where(chosen & bool(flag), x, 0), str(which))
