"""EfficientNet-B0 (Tan and Le 2019, arXiv:1905.11946), whose blocks squeeze and excite (arXiv:1709.01507)."""

from __future__ import annotations

from functools import partial

from benchmarks.programs import mobilenet
from benchmarks.programs.resnet import classifier

STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)

PROGRAMS = [
    classifier(
        "EfficientNet-B0",
        mobilenet.network(STAGES, "silu"),
        partial(mobilenet.weights, stages=STAGES, gain=1.0, squeezed=4),
    )
]
