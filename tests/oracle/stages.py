"""Some of the pipeline's stages."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.options import Options
from hlo_disc.pipeline import STAGES, Flowing, Targeted


def stitched(graph: Graph, device: Device) -> Flowing:
    """Return what fusion, schedules and the host flow make of a graph for a device without target. Kernels are text."""
    compilation = SimpleNamespace(add=lambda *_: None)
    generator = SimpleNamespace(device=device, batch=0, linked=False, begin=lambda *_: nullcontext(compilation))
    shown = Options(dump="nothing is written")
    made: Any = Targeted(source=graph, options=shown, graph=graph, inputs=graph.inputs, generator=generator)
    names = [stage.name for stage in STAGES]
    for stage in STAGES[names.index("normalise") : names.index("codegen")]:
        made = stage.run(made)
    return made
