"""A StableHLO module inside of a graph, as jax2tf makes it: read like any module, at the sizes of its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import ParseError
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.inlined import inlined
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.sizes.symbols import Input
from hlo_disc.import_.stablehlo.decode import Decoder
from hlo_disc.import_.stablehlo.module import functions_of, read_module
from hlo_disc.import_.stablehlo.names import input_shapes
from hlo_disc.import_.stablehlo.policy import JAX_EXPORT
from hlo_disc.import_.stablehlo.source import load_module
from hlo_disc.import_.tensorflow.flow.xla import as_bytes

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node

_PLATFORM = "CPU"
# The argument by which a module for several platforms is told which one it is on.
_PLATFORM_NUMBER = "_platform_index"


def _call(r: Reader, op: Node, operands: list[Operand]) -> Result:
    platforms = op.attributes.get("platforms") or [_PLATFORM]
    if op.attributes.get("function_list"):
        r.unsupported("its module calls functions of TensorFlow")
    if _PLATFORM not in platforms:
        r.unsupported(f"its module is for {', '.join(platforms)}, and not for {_PLATFORM}")
    values = [r.data(x) for x in operands]
    names: dict[Dim, str] = {}
    try:
        module = load_module(as_bytes(op.attributes["module"]))
        inputs = input_shapes(module, functions_of(module)["main"], Decoder()).inputs
        if len(inputs) != len(values):
            r.unsupported(f"its module takes {len(inputs)} arguments where {len(values)} are given")
        dims = [_spec(r, x, given, names) for x, given in zip(values, inputs, strict=True)]
        number = {_PLATFORM_NUMBER: platforms.index(_PLATFORM)}
        graph = read_module(module, dims=dims, origin=JAX_EXPORT, sizes=number)
    except ParseError as error:
        r.unsupported(str(error))
    return inlined(r, graph, values, {name: d for d, name in names.items()})


def _spec(r: Reader, x: Value, given: Input, names: dict[Dim, str]) -> list[str]:
    """Return the sizes of an argument: the module's numbers, and names for the others."""
    if (x.dtype, x.rank) != (given.dtype, len(given.shape)):
        r.unsupported(f"{given.name} is {x!r}, the module's is {given.dtype} of rank {len(given.shape)}")
    spec = []
    for axis, (d, size) in enumerate(zip(x.shape, given.shape, strict=True)):
        if size.is_const:
            r.equal(d, size, f"dimension {axis} of {given.name} and the module's")
            spec.append("_")
        else:
            known = r.facts.canonical(d)
            spec.append(str(known) if known.is_const else names.setdefault(known, f"size{len(names)}"))
    return spec


HANDLERS: dict[str, Handler] = {"XlaCallModule": _call}
