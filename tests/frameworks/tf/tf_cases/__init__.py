"""Small functions of TensorFlow with unknown sizes, as data: a module of TensorFlow a file."""

from . import control, data, image, indexing, linalg, math, nn, pools, quantization, random, xla

CASES = [
    case
    for module in (math, nn, pools, linalg, image, indexing, data, control, quantization, random, xla)
    for case in module.CASES
]
