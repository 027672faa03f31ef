"""Programs of `torch.export`: weights and constants are constants of the program, its dims are the export's symbols."""

from __future__ import annotations

from typing import Any

import torch
from torch._export.utils import _get_shape_env_from_gm
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.utils._pytree import tree_unflatten

from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.import_.aten import sizes
from hlo_disc.import_.aten.decompositions import export_decompositions
from hlo_disc.import_.aten.reader import read_alone
from hlo_disc.import_.elements import ZERO
from hlo_disc.import_.leaves import Constant, Number

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def read_exported(program: ExportedProgram) -> tuple[Graph, Any, Any]:
    """The graph of an exported program, and the nests of its results and of its (args, kwargs), see `nest.py`.

    Its inputs are the arguments that are tensors, in order, then those that are numbers. The last nest is None where
    the arguments are the inputs. Raises UnsupportedOpError, ShapeError.
    """
    _forget_expressions(program)
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
    imported = read_alone(lowered.graph_module, _conditions(lowered), constants)
    number = {placeholder: i for i, placeholder in enumerate((*imported.arguments, *imported.numbers))}
    natural = {i for i in imported.numbers if imported.graph.inputs[number[i]].shape[1] is ZERO}
    given = [
        _leaf(spec.arg, number.get(i, 0), i in natural)
        for i, spec in enumerate(signature.input_specs)
        if spec.kind is InputKind.USER_INPUT
    ]
    results, made = [], 0
    for spec in signature.output_specs:
        results.append(_leaf(spec.arg, made))
        made += not isinstance(spec.arg, ConstantArgument)
    arguments = tree_unflatten(given, lowered.call_spec.in_spec)
    is_plain = given == list(range(len(given))) and arguments == (tuple(given), {})
    return imported.graph, tree_unflatten(results, lowered.call_spec.out_spec), None if is_plain else arguments


def _forget_expressions(program: ExportedProgram) -> None:
    """Take out the ranges of expressions, which PyTorch's loader leaves among symbols and its passes do not expect."""
    env = _get_shape_env_from_gm(program.graph_module)
    for ranges in [program.range_constraints, *([env.var_to_range] if env else [])]:
        for symbol in [x for x in ranges if not x.is_Symbol]:
            del ranges[symbol]


def _conditions(program: ExportedProgram) -> list[Any]:
    """What the ranges of symbols say. A least size of 2 is what PyTorch assumes, not what it asks of a call."""
    return [x for x in sizes.conditions(program.range_constraints) if not (x.rel_op == ">=" and x.rhs == 2)]


def _leaf(argument: Any, number: int, natural: bool = False) -> Any:
    if isinstance(argument, ConstantArgument):
        return Constant(argument.value)
    return number if isinstance(argument, TensorArgument) else Number(number, natural)
