"""All handlers of TensorFlow's ops by the ops' names."""

from __future__ import annotations

from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.tensorflow import elementwise, nn, optimizers, quantization, reductions, shapes, special
from hlo_disc.import_.tensorflow.flow import branches, control, modules, variables, xla
from hlo_disc.import_.tensorflow.images import blocks, boxes, crops, images, resampling
from hlo_disc.import_.tensorflow.indexing import indexing, scatters, uniques
from hlo_disc.import_.tensorflow.matrices import diagonals, factors, linalg
from hlo_disc.import_.tensorflow.sampling import counts, gammas, random
from hlo_disc.import_.tensorflow.windows import formats, pools, windows

FAMILIES = (
    blocks, boxes, branches, control, counts, crops, diagonals, elementwise, factors, formats, gammas, images, indexing,
    linalg, modules, nn, optimizers, pools, quantization, random, reductions, resampling, scatters, shapes, special,
    uniques, variables, windows, xla,
)  # fmt: skip
HANDLERS: dict[str, Handler] = {f"tf.{name}": row for family in FAMILIES for name, row in family.HANDLERS.items()}
assert len(HANDLERS) == sum(len(family.HANDLERS) for family in FAMILIES), "an op has two handlers"
