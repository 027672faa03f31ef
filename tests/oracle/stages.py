"""Some of the pipeline's stages."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.options import Options
from hlo_disc.pipeline import STAGES, InProgress


def stitched(graph: Graph, device: Device) -> InProgress:
    """What fusion, schedules and the host flow make of a graph for a device, without a target."""
    made = InProgress(graph, Options())
    kept = SimpleNamespace(add=lambda module: made.kernels.append(str(module)))
    generator = SimpleNamespace(device=device, batch=0, linked=False, begin=lambda dump, threads: nullcontext(kept))
    made.graph, made.inputs, made.generator = graph, graph.inputs, generator
    names = [stage.name for stage in STAGES]
    for stage in STAGES[names.index("normalise") : names.index("codegen")]:
        stage.run(made)
    return made
