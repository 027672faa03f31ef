"""All handlers of TensorFlow's ops by the ops' names."""

from __future__ import annotations

from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.tensorflow import (
    blocks,
    boxes,
    branches,
    control,
    counts,
    crops,
    diagonals,
    elementwise,
    factors,
    formats,
    gammas,
    images,
    indexing,
    linalg,
    modules,
    nn,
    optimizers,
    pools,
    quantization,
    random,
    reductions,
    resampling,
    scatters,
    shapes,
    special,
    uniques,
    variables,
    windows,
    xla,
)

FAMILIES = (
    blocks, boxes, branches, control, counts, crops, diagonals, elementwise, factors, formats, gammas, images, indexing,
    linalg, modules, nn, optimizers, pools, quantization, random, reductions, resampling, scatters, shapes, special,
    uniques, variables, windows, xla,
)  # fmt: skip
HANDLERS: dict[str, Handler] = {f"tf.{name}": row for family in FAMILIES for name, row in family.HANDLERS.items()}
assert len(HANDLERS) == sum(len(family.HANDLERS) for family in FAMILIES), "an op has two handlers"
