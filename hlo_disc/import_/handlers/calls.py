"""Function calls, composites, custom calls, and ops that only mark or order values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ops.families.library import FFT_CALL
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import ParseError
from hlo_disc.import_.handlers import elementwise, library, random, sort
from hlo_disc.import_.handlers.reductions import windows
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand, Symbolic
from hlo_disc.import_.stablehlo.decode import text
from hlo_disc.mlir import ir

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader

# The custom call that a size becomes.
SIZE = "hlo_disc.size"
# Custom calls that place a value and change nothing.
_PLACEMENT = frozenset(
    ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement", "LayoutConstraint")
)

# (operands at least, results, attributes) of those, which no verifier knows.
_FORMS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "shape_assertion": (1, 0, ("error_message",)),
    FFT_CALL: (2, 1, ("transform",)),
    SIZE: (0, 1, ("dims", "size")),
    "mhlo.topk": (1, 2, ("mhlo.attributes",)),
    "stablehlo.dynamic_top_k": (2, 2, ()),
    "ApproxTopK": (2, 2, ("mhlo.backend_config", "called_computations")),
    "stablehlo.dynamic_reduce_window": (7, 1, ("called_computations",)),
    "stablehlo.dynamic_rng_bit_generator": (2, 2, ("rng_algorithm",)),
}


def _identity(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    return operands


def _call(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    return r.call(ir.FlatSymbolRefAttr(op.attributes["callee"]).value, operands)


def _composite(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    own = elementwise.HANDLERS.get(r.attr(op, "name", text))
    if own is not None:
        return own(r, op, operands)
    return r.call(ir.FlatSymbolRefAttr(op.attributes["decomposition"]).value, operands)


def _dim(attribute: ir.Attribute) -> Dim:
    return Dim.parse(text(attribute))


def _size(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    """Read `custom_call @hlo_disc.size(values) {dims, size}`: a size computed from the values of its dims.

    With the attribute `fits` it is a number that the result's type must hold: where it is "made", or where it is
    "used".
    """
    names = r.attr(op, "dims", text)
    try:
        size = r.attr(op, "size", _dim)
    except ParseError as error:
        r.unsupported(f"custom call @{SIZE}: {error}")
    values = dict(zip(names.split(", "), operands, strict=False))
    if len(values) != len(operands) or not size.symbols <= set(values):
        r.unsupported(f"custom call @{SIZE} gives {size} with {len(operands)} values of {names}")
    known = {}
    for name, x in values.items():
        if not isinstance(x, Symbolic) or not x.exact or len(x.elements) != 1:
            r.unsupported(f"custom call @{SIZE} is given data for {name}")
        known[name] = r.evaluator.scalar.number(x.elements[0])
    size, dtype = size.substitute(known), r.result_type(op)[0]
    if "fits" in op.attributes:
        used = any(True for _ in op.results[0].uses)
        if used or r.attr(op, "fits", text) == "made":
            r.fits(size, dtype)
    return Symbolic(dtype, (), (size,))


# Custom calls that are ops of ours.
CUSTOM_CALLS: dict[str, Handler] = {
    **windows.CUSTOM_CALLS,
    **sort.CUSTOM_CALLS,
    **random.CUSTOM_CALLS,
    FFT_CALL: library.dynamic_fft,
    SIZE: _size,
}


def _custom_call(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    target = r.attr(op, "call_target_name", text)
    least, made, attributes = _FORMS.get(target, (0, len(op.results), ()))
    missing = [name for name in attributes if name not in op.attributes]
    if len(operands) < least or len(op.results) < made or missing:
        what = f"has no {', '.join(missing)}" if missing else f"needs {least} operands and {made} results"
        r.unsupported(f"custom call @{target} {what}")
    if target == "shape_assertion":
        return r.assertion(op, operands)
    if target in _PLACEMENT or target.startswith("xla.sdy."):
        r.need_types(op, [r.data(x) for x in operands])
        return operands
    dialect, _, name = target.partition(".")
    if dialect in ("mhlo", "chlo") and (own := r.handler(f"chlo.{name}")):
        return own(r, op, operands)
    if dialect in ("mhlo", "chlo") and not r.legal:
        r.unknown(f"chlo.{name}")
    if target in CUSTOM_CALLS:
        return CUSTOM_CALLS[target](r, op, operands)
    return library.custom_call(r, op, target, operands)


HANDLERS: dict[str, Handler] = {
    "stablehlo.composite": _composite,
    "stablehlo.custom_call": _custom_call,
    "func.call": _call,
    "builtin.unrealized_conversion_cast": _identity,  # between index and integer, by the shape-legalisation pass
    "sdy.sharding_constraint": _identity,
    "sdy.mesh": lambda r, op, operands: (),
}
