"""The types of ops' attributes, by name: an attribute means the same wherever it occurs.

`ops/table.py` derives the checks at run time from the annotations, which are therefore no texts in this file.
"""

from typing import TypedDict

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Region, Shape
from hlo_disc.dynamic_hlo.sizes.dim import Dim

Ints = tuple[int, ...]
Orders = tuple[Ints, ...]


class Attributes(TypedDict, total=False):
    """The attributes of an op: those that its row names. They do not change when the op is made."""

    value: np.ndarray
    dtype: np.dtype
    shape: Shape
    expr: Dim
    dim: int
    dims: Ints
    perm: Ints
    lhs_batch: Ints
    rhs_batch: Ints
    lhs_contract: Ints
    rhs_contract: Ints
    lhs_spec: Ints
    rhs_spec: Ints
    out_spec: Ints
    reversal: Ints
    offset_dims: Ints
    collapsed_slice_dims: Ints
    operand_batching_dims: Ints
    start_indices_batching_dims: Ints
    start_index_map: Ints
    index_vector_dim: int
    start: Shape
    limit: Shape
    stride: Ints
    starts: Shape
    steps: Shape
    sizes: Shape
    slice_sizes: Shape
    low: Shape
    high: Shape
    interior: Shape
    window: Shape
    strides: Ints
    dilations: Ints
    base_dilations: Ints
    window_dilations: Ints
    direction: str
    kind: str
    transform: str
    length: Shape
    exponent_bits: int
    mantissa_bits: int
    feature_groups: int
    batch_groups: int
    tf32: bool
    unique: bool
    stable: bool
    reverse: bool
    first: Dim
    body: Region
    cond: Region
    select: Region
    branches: tuple[Region, ...]
    carried: int
    count: int
    lhs: Dim
    relation: str
    rhs: Dim
    message: str
    args: Shape
    symbol: str
    effect: bool
    target: str
    config: tuple[tuple[str, str, str, object], ...]
    ranks: Ints
    dtypes: tuple[np.dtype, ...]
    operand_orders: Orders
    result_orders: Orders
    aliases: tuple[tuple[int, int], ...]
