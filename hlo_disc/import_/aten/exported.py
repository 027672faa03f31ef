"""Programs of `torch.export`: weights and constants are constants of the program, its dims are the export's symbols."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.import_.aten import sizes
from hlo_disc.import_.aten.decompositions import export_decompositions
from hlo_disc.import_.aten.reader import read_alone

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def read_exported(program: ExportedProgram) -> tuple[Graph, Any]:
    """The graph of an exported program, and the nest of its results with their numbers as leaves.

    Its inputs are the flattened arguments that are tensors. Raises UnsupportedOpError, ShapeError.
    """
    lowered = program.run_decompositions(export_decompositions())
    signature = lowered.graph_signature
    state = {**lowered.constants, **lowered.state_dict}
    constants: dict[int, torch.Tensor] = {}
    for i, spec in enumerate(signature.input_specs):
        if spec.kind in _WEIGHTS:
            constants[i] = state[spec.target]  # type: ignore[index]
        elif spec.kind is not InputKind.USER_INPUT:
            raise UnsupportedOpError(f"the input {spec.arg.name} of the exported program is a {spec.kind.name.lower()}")
        elif (
            isinstance(spec.arg, ConstantArgument)
            and spec.arg.value is not None
            and not isinstance(spec.arg.value, (int, float, bool, str))
        ):
            raise UnsupportedOpError(f"the input {spec.arg.name} of the exported program is {spec.arg.value!r}")
    for spec in signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            what = spec.kind.name.lower().replace("_", " ")
            raise UnsupportedOpError(
                f"the exported program changes {spec.target} ({what}), and a program changes nothing: return it instead"
            )
    graph = read_alone(lowered.graph_module, sizes.conditions(lowered.range_constraints), constants)
    spec = lowered.call_spec.out_spec
    return graph, torch.utils._pytree.tree_unflatten(range(spec.num_leaves), spec)
