"""Programs of `torch.export`: weights are constants of the program, and its dims are the export's symbols."""

from __future__ import annotations

from typing import Any, NamedTuple

import sympy
import torch
from torch._export.utils import _get_shape_env_from_gm
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, OutputSpec, TensorArgument
from torch.utils._pytree import tree_unflatten

from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.dynamic_hlo.sizes.dim import ZERO
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.import_.aten import sizes
from hlo_disc.import_.aten.decompositions import export_decompositions
from hlo_disc.import_.aten.reader import read_alone
from hlo_disc.import_.leaves import Constant, Number

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_OF_STATE = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)


class Exported(NamedTuple):
    """An exported program.

    graph: its inputs are `state`, then the tensor arguments in order, then the number arguments. results, arguments:
    the nests of its results and of its (args, kwargs), see `nest.py`; `arguments` is None if the inputs are the
    arguments. state: the tensors that it changes. changes: for inputs that a call changes, the output with the new
    content.
    """

    graph: Graph
    results: Any
    arguments: Any
    state: tuple[torch.Tensor, ...]
    changes: tuple[tuple[int, int], ...]


def read_exported(program: ExportedProgram, keeps: bool = False) -> Exported:
    """Read an exported program. Weights that it does not change become constants.

    keeps: allow the program to change its state or its arguments. Raises UnsupportedOpError, ShapeError.
    """
    _forget_expressions(program)
    lowered = program.run_decompositions(export_decompositions())
    signature = lowered.graph_signature
    tensors: dict[str | None, Any] = {**lowered.constants, **lowered.state_dict}
    kept: dict[str | None, Any] = {**program.constants, **program.state_dict}
    changed = {spec.target for spec in signature.output_specs if spec.kind in _OF_STATE}
    constants: dict[int, torch.Tensor] = {}
    state: list[torch.Tensor] = []
    for i, spec in enumerate(signature.input_specs):
        if spec.kind in _WEIGHTS and spec.target in changed:
            state.append(kept[spec.target])
        elif spec.kind in _WEIGHTS:
            constants[i] = tensors[spec.target]
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
            _check_change(spec, keeps)
    imported = read_alone(lowered.graph_module, _conditions(lowered), constants)
    arguments, numbers = imported.interface.arguments, imported.interface.numbers
    number = {placeholder: i for i, placeholder in enumerate((*arguments, *numbers))}
    natural = {i for i in numbers if imported.graph.inputs[number[i]].shape[1] is ZERO}
    given = [
        _leaf(spec.arg, number.get(i, 0), i in natural)
        for i, spec in enumerate(signature.input_specs)
        if spec.kind is InputKind.USER_INPUT
    ]
    place: dict[str | None, int] = {}
    for i in number:
        spec = signature.input_specs[i]
        place[spec.arg.name if spec.kind is InputKind.USER_INPUT else spec.target] = number[i]
    results, changes, made = [], [], 0
    for spec in signature.output_specs:
        if spec.kind is OutputKind.USER_OUTPUT:
            results.append(_leaf(spec.arg, made))
        else:
            changes.append((place[spec.target], made))
        made += not isinstance(spec.arg, ConstantArgument)
    nested = tree_unflatten(given, lowered.call_spec.in_spec)
    is_plain = not state and given == list(range(len(given))) and nested == (tuple(given), {})
    return Exported(
        imported.graph,
        tree_unflatten(results, lowered.call_spec.out_spec),
        None if is_plain else nested,
        tuple(state),
        tuple(changes),
    )


def _check_change(spec: OutputSpec, keeps: bool) -> None:
    what = f"the exported program changes {spec.target} ({spec.kind.name.lower().replace('_', ' ')})"
    if spec.kind not in (*_OF_STATE, OutputKind.USER_INPUT_MUTATION):
        raise UnsupportedOpError(f"{what}, which is not supported")
    if not keeps:
        raise UnsupportedOpError(f"{what}, and an executable changes nothing: hlo_disc.torch.compile writes it back")


def _forget_expressions(program: ExportedProgram) -> None:
    """Remove the ranges of expressions, which PyTorch's loader leaves among symbols and its passes do not expect."""
    env = _get_shape_env_from_gm(program.graph_module)
    for ranges in [program.range_constraints, *([env.var_to_range] if env else [])]:
        for symbol in [x for x in ranges if not x.is_Symbol]:
            del ranges[symbol]


def _conditions(program: ExportedProgram) -> list[sympy.Basic]:
    """List the conditions from the ranges of symbols, except the least size of 2, which PyTorch assumes without
    checking.

    PyTorch does not ask them of a call.
    """
    return [x for x in sizes.conditions(program.range_constraints) if not (x.rel_op == ">=" and x.rhs == 2)]


def _leaf(argument: object, number: int, natural: bool = False) -> Constant | Number | int:
    if isinstance(argument, ConstantArgument):
        return Constant(argument.value)
    return number if isinstance(argument, TensorArgument) else Number(number, natural)
