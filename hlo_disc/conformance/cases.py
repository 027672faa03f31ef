"""Reads a module from a file into a `Case`: the program under test, and the results that it is checked against.

A module with `check.*` custom calls contains its results. Its given values (the results of `@inputs()`, or otherwise
the constants of the body) become arguments, so that compiled code does the work at run time. The checked values become
the results. The checks, and values that only they read, are removed. Any other module is compared with XLA
(differential.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hlo_disc import mlir
from hlo_disc.errors import ParseError
from hlo_disc.frozen import frozen
from hlo_disc.import_.stablehlo.decode import Decoder, constant, text
from hlo_disc.mlir import MlirValue, ir

# Operands that say sizes: a size that only the run knows is another program than the one that the case tests.
_SIZES: Mapping[str, tuple[int, ...]] = {
    "stablehlo.dynamic_broadcast_in_dim": (1,),
    "stablehlo.dynamic_conv": (2,),
    "stablehlo.dynamic_gather": (2,),
    "stablehlo.dynamic_iota": (0,),
    "stablehlo.dynamic_pad": (2, 3, 4),
    "stablehlo.dynamic_reshape": (1,),
    "stablehlo.real_dynamic_slice": (1, 2, 3),
    "stablehlo.set_dimension_size": (1,),
    "chlo.dynamic_reshape": (1,),
}

# Ops that mean something only between devices or with the outside.
_NO_MEANING = ("stablehlo.infeed", "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv", "interpreter.")

# What every program is made of, and what most hold beside the op that they are about.
_STRUCTURE = frozenset(
    "builtin.module func.func func.call func.return stablehlo.return stablehlo.constant @shape_assertion".split()
)
_COMMON = frozenset(
    f"stablehlo.{name}"
    for name in "broadcast_in_dim dynamic_broadcast_in_dim reshape dynamic_reshape convert iota dynamic_iota select "
    "compare concatenate get_dimension_size add subtract multiply divide negate maximum minimum and or not xor "
    "transpose slice tuple get_tuple_element".split()
)

# The functions that return what a case is given, and what must come out.
_SOURCES = ("inputs", "expected")


@frozen
class Check:
    """One check: `kind` is eq, expect_eq, expect_close or expect_almost_eq."""

    kind: str
    expected: np.ndarray


@frozen
class Case:
    """A module whose `main` takes `inputs` and returns the values that `checks` check; without `inputs` XLA is the
    reference."""

    module: ir.Module
    inputs: tuple[np.ndarray, ...] = ()
    checks: tuple[Check, ...] = ()


def classify(module: ir.Module) -> tuple[str, str]:
    """Return the kind of case that a module contains, "testdata", "interpret" or "differential", and the op that it
    tests."""
    found = functions(module)
    if not any(any(_checks(f)) for f in found.values()):
        return "differential", _main_op(module)
    return "testdata" if any(name in found for name in _SOURCES) else "interpret", _main_op(module)


def make_case(module: ir.Module, kind: str) -> Case:
    """Make the case of a module of this kind; the module is changed.

    Raises ParseError, UnsupportedTypeError (of a constant).
    """
    found = functions(module)
    if kind == "differential":
        if "main" not in found:
            raise ParseError(f"no checks and no @main: the module has {', '.join(found) or 'no functions'}")
        return Case(module)
    checked = next(f for f in found.values() if any(_checks(f)))
    inputs, checks = _split(checked, found, constants_are_given=kind == "interpret")
    return Case(module, inputs, checks)


def functions(module: ir.Module) -> dict[str, ir.OpView]:
    """Return the module's functions by name."""
    return {text(op.attributes["sym_name"]): op for op in module.body.operations if op.operation.name == "func.func"}


def without_meaning(module: ir.Module) -> str:
    """Return the reason why a module has no meaning on one device, or ""."""
    shown = str(module.operation.get_asm(large_elements_limit=16))
    return next((f"{name} needs more than one device or a host beside it" for name in _NO_MEANING if name in shown), "")


def set_arguments(function: ir.OpView, results: Sequence[MlirValue] | None = None) -> None:
    """Give a function the type of its block's arguments and of its returned values."""
    block = function.regions[0].blocks[0]
    terminator = block.operations[len(block.operations) - 1]
    if results is not None:
        with ir.InsertionPoint(terminator), terminator.location:
            mlir.func.ReturnOp(list(results))
        terminator.operation.erase()
        terminator = block.operations[len(block.operations) - 1]
    for name in ("arg_attrs", "res_attrs"):
        if name in function.attributes:
            del function.attributes[name]
    kind = ir.FunctionType.get(
        [a.type for a in block.arguments], [v.type for v in terminator.operands], context=function.context
    )
    function.attributes["function_type"] = ir.TypeAttr.get(kind, context=function.context)


def _checks(function: ir.OpView) -> Iterator[ir.OpView]:
    for block in function.regions[0].blocks:
        for op in block.operations:
            if op.operation.name == "stablehlo.custom_call":
                if text(op.attributes["call_target_name"]).startswith("check."):
                    yield op


def _split(
    main: ir.OpView, found: Mapping[str, ir.OpView], constants_are_given: bool
) -> tuple[tuple[np.ndarray, ...], tuple[Check, ...]]:
    """Make `main` a function from the given values to the checked ones; returns the values and the checks."""
    decoder = Decoder()
    known: dict[MlirValue, np.ndarray] = {}
    given: list[MlirValue] = []
    checks: list[Check] = []
    results: list[MlirValue] = []
    sources: list[Any] = []  # what made the given values and the expected ones
    for op in main.regions[0].blocks[0].operations:
        name = op.operation.name
        if name == "func.call" and (callee := ir.FlatSymbolRefAttr(op.attributes["callee"]).value) in _SOURCES:
            known |= zip(op.results, _returned(found[callee], decoder), strict=True)
            given += op.results if callee == "inputs" else ()
            sources.append(op)
        elif name == "stablehlo.constant":
            known[op.results[0]] = _constant(op, decoder)
            if constants_are_given and not _says_sizes(op.results[0]):
                given.append(op.results[0])
                sources.append(op)
        elif name == "stablehlo.custom_call":
            target = text(op.attributes["call_target_name"])
            if target.startswith("check."):
                result, expected = op.operands
                if expected not in known:
                    raise ParseError(f"@{target}: the expected value is no constant")
                checks.append(Check(target.removeprefix("check."), known[expected]))
                results.append(result)
    for op in list(_checks(main)):
        op.operation.erase()
    return _rebuild(main, found, known, given, results, sources), tuple(checks)


def _rebuild(
    main: ir.OpView,
    found: Mapping[str, ir.OpView],
    known: Mapping[MlirValue, np.ndarray],
    given: Sequence[MlirValue],
    results: Sequence[MlirValue],
    sources: Sequence[ir.OpView],
) -> tuple[np.ndarray, ...]:
    set_arguments(main, results)
    inputs = []
    for value in given:
        if any(True for _ in value.uses):
            argument = main.regions[0].blocks[0].add_argument(value.type, main.location)
            value.replace_all_uses_with(argument)
            inputs.append(known[value])
    for op in sources:
        op.operation.erase()
    for name in _SOURCES:
        if name in found:
            found[name].operation.erase()
    set_arguments(main)
    main.attributes["sym_name"] = ir.StringAttr.get("main", context=main.context)
    return tuple(inputs)


def _says_sizes(value: MlirValue) -> bool:
    return any(use.operand_number in _SIZES.get(use.owner.name, ()) for use in value.uses)


def _returned(function: ir.OpView, decoder: Decoder) -> list[np.ndarray]:
    """Evaluate a function of constants. Returns its values."""
    operations = list(function.regions[0].blocks[0].operations)
    values = {op.results[0]: op for op in operations if op.operation.name == "stablehlo.constant"}
    returned = operations[-1].operands
    if any(value not in values for value in returned):
        raise ParseError(f"@{text(function.attributes['sym_name'])} returns what is no constant")
    return [_constant(values[value], decoder) for value in returned]


def _constant(op: ir.OpView, decoder: Decoder) -> np.ndarray:
    dtype, sizes = decoder.tensor(op.results[0].type)
    # A copy that is not MLIR's memory: the module may be gone when it is read.
    return np.array(constant(op, dtype)).reshape([n or 0 for n in sizes])


def _main_op(module: ir.Module) -> str:
    """Return the first op that is not common to most programs; the last op if all are common."""
    names: list[str] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        is_call = op.name == "stablehlo.custom_call"
        names.append("@" + text(op.attributes["call_target_name"]) if is_call else op.name)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    names = [name for name in names if name not in _STRUCTURE and not name.startswith("@check.")]
    rare = [name for name in names if name not in _COMMON]
    return ([*rare, *reversed(names)] or ["identity"])[0].removeprefix("stablehlo.")
