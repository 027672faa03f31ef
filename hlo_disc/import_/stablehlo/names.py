"""The inputs of a module: their names, and a symbol or an expression for every size that is not fixed.

Names come from these sources, in this order: the attribute that DHLO prints (`hlo_disc.shape`), the user's names, the
framework's expressions for its dimension variables, and new names d0, d1 … for the rest. Frameworks give their names at
the call of the real function (`jax.global_constant`), after assertions about the sizes. That prefix of `main` is
evaluated over raw sizes, and the resulting equations are solved.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Value, raw_dim
from hlo_disc.dynamic_hlo.print.text import ARGUMENT_SHAPE
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import ArgumentError
from hlo_disc.frozen import frozen
from hlo_disc.import_.sizes.elements import Compare, Junction
from hlo_disc.import_.sizes.shapes import Evaluator, Operand, Symbolic
from hlo_disc.import_.sizes.symbols import DimsOfInputs, Input, parse_shape, select_specs, solve
from hlo_disc.import_.stablehlo.decode import Decoder, TypeShape, UnsupportedTypeError, is_token, location_line, text
from hlo_disc.mlir import MlirValue, ir

_GLOBAL = "jax.global_constant"


@frozen
class Inputs:
    """inputs: what a call passes. size_arguments: arguments of `main` that are sizes by name, (position, name).

    reopened: symbols that stand for sizes which the module writes as numbers, with those numbers.
    """

    inputs: tuple[Input, ...]
    size_arguments: tuple[tuple[int, str], ...]
    reopened: Mapping[str, int]


def input_shapes(
    module: ir.Module,
    main: ir.OpView,
    decoder: Decoder,
    dims: DimsOfInputs | None = None,
    names: Sequence[str] | None = None,
) -> Inputs:
    """The inputs of `main`. Raises ArgumentError for `dims` or `names` that do not fit."""
    block = main.regions[0].blocks[0]
    attributes = _argument_attributes(main, len(block.arguments))
    sizes = [(i, text(a[_GLOBAL])) for i, a in enumerate(attributes) if a is not None and _GLOBAL in a]
    tokens = [i for i, a in enumerate(block.arguments) if is_token(a)]
    skipped = {*tokens, *(i for i, _ in sizes)}
    positions = sorted(set(range(len(block.arguments))) - skipped)
    arguments = [block.arguments[i] for i in positions]
    framework = _Framework(module, block, skipped)
    shown = _input_names(arguments, framework, names)
    types = [_input_type(decoder, argument, name) for argument, name in zip(arguments, shown, strict=True)]
    specs = select_specs(dims or {}, shown, [len(shape) for _, shape in types])
    for spec, i in zip(specs, positions, strict=True):
        own = attributes[i]
        if own is not None and ARGUMENT_SHAPE in own:
            printed = parse_shape(text(own[ARGUMENT_SHAPE]))
            spec[:] = [mine if given is None else given for given, mine in zip(spec, printed, strict=True)]
    shapes: list[list[Dim]] = []
    open_dims = False
    for number, (spec, (_, static)) in enumerate(zip(specs, types, strict=True)):
        shape = [_first(given, size, number, axis) for axis, (given, size) in enumerate(zip(spec, static, strict=True))]
        open_dims = open_dims or any(_is_raw(d) for d in shape)
        shapes.append(shape)
    if open_dims:
        inputs = [
            Value(dtype, tuple(shape), None, i) for i, ((dtype, _), shape) in enumerate(zip(types, shapes, strict=True))
        ]
        solution = framework.solve(decoder, inputs)
        taken = {name for shape in shapes for d in shape for name in d.symbols} | set(map(str, solution.values()))
        fresh = (name for name in (f"d{i}" for i in count()) if name not in taken)
        for shape in shapes:
            for axis, d in enumerate(shape):
                if _is_raw(d):
                    (raw,) = d.symbols
                    shape[axis] = solution.setdefault(raw, Dim.symbol(next(fresh)) if raw not in solution else d)
    inputs_ = tuple(
        Input(name, dtype, tuple(shape)) for name, (dtype, _), shape in zip(shown, types, shapes, strict=True)
    )
    return Inputs(inputs_, tuple(sizes), _reopened(inputs_, [static for _, static in types]))


def _input_type(decoder: Decoder, argument: ir.BlockArgument[ir.Type], name: str) -> tuple[np.dtype, TypeShape]:
    try:
        return decoder.tensor(argument.type)
    except UnsupportedTypeError as error:
        line = location_line(argument.location)
        place = f"func.func{f' at {line}' if line else ''}"
        raise UnsupportedTypeError(f"{place}: input {name!r} of @main: {error}") from None


def _first(given: Dim | None, size: int | None, number: int, axis: int) -> Dim:
    if given is not None:
        return given
    return raw_dim(number, axis) if size is None else Dim.const(size)


def _is_raw(d: Dim) -> bool:
    return len(d.symbols) == 1 and next(iter(d.symbols)).startswith("%")


def _reopened(inputs: Sequence[Input], types: Sequence[tuple[int | None, ...]]) -> dict[str, int]:
    """Return the number that each symbol stands for if it replaces one that the module writes."""
    values: dict[str, int] = {}
    pairs = [
        (x, axis, d, size)
        for x, static in zip(inputs, types, strict=True)
        for axis, (d, size) in enumerate(zip(x.shape, static, strict=True))
        if size is not None
    ]
    for x, axis, d, size in sorted(pairs, key=lambda pair: len(pair[2].terms)):
        unknown = [name for name in d.symbols if name not in values]
        if len(unknown) == 1:
            value = solve(d, unknown[0], Dim.const(size))
            value = value.substitute(values) if value is not None else None
            if value is not None and value.is_const:
                values[unknown[0]] = value.value
        if d.symbols <= values.keys() and d.evaluate(values) != size:
            chosen = ", ".join(f"{name} = {values[name]}" for name in sorted(d.symbols))
            raise ArgumentError(
                f"dims calls dimension {axis} of {x.name!r} '{d}', but the module has {size} there"
                + (f", and {chosen} by another" if chosen else "")
            )
    return values


def _argument_attributes(main: ir.OpView, length: int) -> Sequence[ir.DictAttr | None]:
    if "arg_attrs" not in main.attributes:
        return [None] * length
    return [ir.DictAttr(a) for a in ir.ArrayAttr(main.attributes["arg_attrs"])]


def _input_names(
    arguments: Sequence[ir.BlockArgument[ir.Type]], framework: _Framework, names: Sequence[str] | None
) -> list[str]:
    if names is not None:
        if len(names) != len(arguments):
            raise ArgumentError(f"{len(names)} names for {len(arguments)} inputs")
        return list(names)
    found = [_location_name(a) for a in arguments]
    if not all(found):
        inner = framework.argument_names()
        found = [name or inner.get(a, "") for name, a in zip(found, arguments, strict=True)]
    times = Counter(found)
    return [name if name and times[name] == 1 else f"args[{i}]" for i, name in enumerate(found)]


def _location_name(argument: ir.BlockArgument[ir.Type]) -> str:
    location = argument.location
    return location.name_str if isinstance(location, ir.NameLoc) else ""


class _Framework:
    """The prefix of `main` up to the call that names the dimension variables."""

    def __init__(self, module: ir.Module, block: ir.Block, skipped: Collection[int]):
        self.block = block
        self.skipped = skipped
        self.module = module

    @functools.cached_property
    def callee(self) -> ir.OpView | None:
        """Return the only function that `main` calls; None if there are several or none."""
        calls = [op for op in self.block.operations if op.operation.name == "func.call"]
        if len(calls) != 1:
            return None
        self.call = calls[0]
        name = ir.FlatSymbolRefAttr(self.call.attributes["callee"]).value
        return next(
            (
                op
                for op in self.module.body.operations
                if op.operation.name == "func.func" and text(op.attributes["sym_name"]) == name and op.regions[0].blocks
            ),
            None,
        )

    def argument_names(self) -> dict[MlirValue, str]:
        """Return the names that the called function has for arguments of `main`."""
        if self.callee is None:
            return {}
        inner = self.callee.regions[0].blocks[0].arguments
        return {
            value: name
            for value, argument in zip(self.call.operands, inner, strict=True)
            if (name := _location_name(argument))
        }

    def solve(self, decoder: Decoder, inputs: Sequence[Value]) -> dict[str, Dim]:
        """Express raw sizes in the framework's dimension variables, as far as the prefix determines them."""
        if self.callee is None:
            return {}
        arguments = [a for i, a in enumerate(self.block.arguments) if i not in self.skipped]
        env: dict[Any, Operand] = dict(zip(arguments, inputs, strict=True))
        evaluator = Evaluator(ShapeFacts(), decoder)
        equations: list[tuple[Dim, Dim]] = []
        for op in self.block.operations:
            name = op.operation.name
            if name == "func.call":
                break
            if not all(value in env for value in op.operands):
                continue
            operands = [env[value] for value in op.operands]
            if name == "stablehlo.custom_call":
                equations += _asserted(operands)
                continue
            result = evaluator.evaluate(name, op, operands)
            if result is not None:
                env[op.results[0]] = result
        named = []
        for value, attributes in zip(
            self.call.operands, _argument_attributes(self.callee, len(self.call.operands)), strict=True
        ):
            known = env.get(value)
            if attributes is not None and _GLOBAL in attributes and type(known) is Symbolic:
                named.append((Dim.symbol(text(attributes[_GLOBAL])), evaluator.scalar.number(known.elements[0])))
        return _solve(named, equations)


def _asserted(operands: Sequence[Operand]) -> list[tuple[Dim, Dim]]:
    """Return the equalities in the condition of a `shape_assertion`."""
    if not operands or type(operands[0]) is not Symbolic:
        return []
    condition = operands[0].elements[0]
    parts = condition.parts if isinstance(condition, Junction) and condition.conjunction else (condition,)
    return [(c.lhs, c.rhs) for c in parts if isinstance(c, Compare) and c.relation == "=="]


def _solve(named: Sequence[tuple[Dim, Dim]], equations: Sequence[tuple[Dim, Dim]]) -> dict[str, Dim]:
    """Solve the equations for raw sizes, in terms of named symbols."""
    solution: dict[str, Dim] = {}
    # Equations first: they may hand on names that the user gave, which precede the framework's.
    pending = [(b, a, False) for a, b in equations] + [(symbol, value, True) for symbol, value in named]
    progress = True
    while progress:
        progress = False
        for known, value, is_name in list(pending):
            known, value = known.substitute(solution), value.substitute(solution)
            for left, right in ((known, value), (value, known)):
                raw = [name for name in right.symbols if name.startswith("%")]
                if len(raw) != 1 or any(name.startswith("%") for name in left.symbols):
                    continue
                found = _invert(right, raw[0], left, is_name)
                if found is not None:
                    solution[raw[0]] = found
                    progress = True
                    break
    return solution


def _invert(d: Dim, raw: str, value: Dim, exact: bool) -> Dim | None:
    """Solve `d == value` for `raw`. A dimension variable is a quotient without remainder, as its framework asserts."""
    if exact and len(d.terms) == 1 and d.terms[0][1] == 1 and len(d.terms[0][0]) == 1:
        (atom,) = d.terms[0][0]
        if atom.kind == "floordiv" and raw not in atom.args[1].symbols:
            return solve(atom.args[0], raw, value * atom.args[1])
    return solve(d, raw, value)
