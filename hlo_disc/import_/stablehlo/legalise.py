"""A module in StableHLO alone: StableHLO's own passes decompose the CHLO and shape ops that DHLO does not have."""

from __future__ import annotations

from hlo_disc import mlir
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.import_.handlers import HANDLERS
from hlo_disc.import_.handlers.broadcasts import OPERANDS
from hlo_disc.import_.stablehlo import diagnostics
from hlo_disc.mlir import ir, stablehlo

_PASSES = "func.func(chlo-legalize-to-stablehlo,shape-legalize-to-stablehlo)"
_BROADCAST = "chlo.broadcast_"


def legalised(module: ir.Module) -> ir.Module:
    """Return a copy whose ops are ones that DHLO has, as far as the passes can decompose the others.

    Raises UnsupportedOpError with the passes' message.
    """
    copy = ir.Module.parse(mlir.bytecode(module), context=mlir.context())
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name.startswith("chlo.") or op.name == "stablehlo.custom_call":
            found.append(op)
        return ir.WalkResult.ADVANCE

    copy.operation.walk(visit)
    for op in found:
        with copy.context, op.location, ir.InsertionPoint(op):
            if op.name == "stablehlo.custom_call":
                _as_op(op)
            elif op.name in HANDLERS:
                if not len(op.regions):
                    # The pass would expand it into polynomials; it leaves custom calls alone.
                    _replace(op, _call(op.name, op))
            elif op.name.startswith(_BROADCAST):
                _spread(op)
    try:
        mlir.run_passes(copy, _PASSES)
    except ir.MLIRError as error:
        message = diagnostics.describe(error, "the module", "")
        raise UnsupportedOpError(f"it cannot be brought to StableHLO: {message}") from None
    return copy


def _call(target: str, op: ir.Operation) -> ir.OpView:
    """Replace an op by a custom call with its attributes."""
    call: ir.OpView = stablehlo.CustomCallOp(
        [r.type for r in op.results], list(op.operands), call_target_name=ir.StringAttr.get(target)
    )
    for name in op.attributes:
        call.attributes[name] = op.attributes[name]
    return call


def _as_op(call: ir.Operation) -> None:
    """Replace a custom call @mhlo.name or @chlo.name by the CHLO op, unless DHLO has the call."""
    dialect, _, rest = ir.StringAttr(call.attributes["call_target_name"]).value.partition(".")
    name = f"chlo.{rest}"
    if dialect in ("mhlo", "chlo") and name not in HANDLERS and call.context.is_registered_operation(name):
        made = ir.Operation.create(name, [r.type for r in call.results], list(call.operands))
        try:
            made.verify()
        except ir.MLIRError as error:
            message = diagnostics.describe(error, "the module", "")
            raise UnsupportedOpError(f"stablehlo.custom_call @{dialect}.{rest} is no {name}: {message}") from None
        _replace(call, made)


def _spread(op: ir.Operation) -> None:
    """Replace `broadcast_zeta` and similar ops: broadcast the operands, then apply the op without `broadcast_`."""
    kinds = []
    shape = ir.RankedTensorType(op.results[0].type).shape
    for x in op.operands:
        kinds.append(ir.RankedTensorType.get(shape, ir.RankedTensorType(x.type).element_type))
    call = stablehlo.CustomCallOp(kinds, list(op.operands), call_target_name=ir.StringAttr.get(f"chlo.{OPERANDS}"))
    if "broadcast_dimensions" in op.attributes:
        call.attributes["broadcast_dimensions"] = op.attributes["broadcast_dimensions"]
    name = f"chlo.{op.name.removeprefix(_BROADCAST)}"
    _replace(op, ir.Operation.create(name, [r.type for r in op.results], list(call.results)))


def _replace(op: ir.Operation, new: ir.Operation | ir.OpView) -> None:
    for old, result in zip(op.results, new.results, strict=True):
        old.replace_all_uses_with(result)
    op.erase()
