"""Control flow: `while`, `case` and `if` as ops with regions; tokens, which carry nothing; tuples.

A carried value that the body returns unchanged is captured instead, so that sizes which pass through a loop stay sizes.
Carried tensors have the shapes of their initial values, and the body must keep them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Region, Value, with_captures
from hlo_disc.dynamic_hlo.ops.expr import I32
from hlo_disc.errors import ShapeError
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import TOKEN, Bundle, Operand, Symbolic, Token
from hlo_disc.import_.stablehlo.decode import integer

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.mlir import ir


def _while(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    test, step = op.regions
    return make_while(r, test, step, operands)


def make_while(r: Reader, test: ir.Region, step: ir.Region, operands: list[Operand]) -> list[Operand]:
    """Make the loop of two regions that take all operands."""
    block = step.blocks[0]
    arguments, returned = list(block.arguments), list(list(block.operations)[-1].operands)
    carried = [
        k
        for k, (argument, value) in enumerate(zip(arguments, returned, strict=True))
        if argument != value and not isinstance(operands[k], Token)
    ]
    initial = [r.data(operands[k]) for k in carried]
    regions = []
    for region in (test, step):
        inputs = [Value(v.dtype, v.shape, None, i) for i, v in enumerate(initial)]
        given = dict(zip(carried, inputs, strict=True))
        regions.append(r.region(region, inputs, [given.get(k, x) for k, x in enumerate(operands)]))
    (cond, body), captured = with_captures(regions, len(initial))
    # Tokens that the body returns are no values.
    kept = [k for k, value in enumerate(returned) if not isinstance(operands[k], Token)]
    outputs = dict(zip(kept, body.outputs, strict=True))
    body = Region(body.inputs, body.ops, tuple(outputs[k] for k in carried))
    for number, value, start in zip(carried, body.outputs, initial, strict=True):
        _need_shape(r, value, start, f"the loop changes the size of its value {number}")
    results = r.emit_all("while", (*initial, *captured), cond=cond, body=body, carried=len(initial))
    made = dict(zip(carried, results, strict=True))
    return [made.get(k, x) for k, x in enumerate(operands)]


def _need_shape(r: Reader, value: Value, expected: Value, what: str) -> None:
    """Require that a value has the expected sizes; otherwise the program is unsupported."""
    for axis, (a, b) in enumerate(zip(value.shape, expected.shape, strict=True)):
        try:
            r.agree(a, b, f"{what}: dimension {axis}, and what is expected there,")
        except ShapeError:
            r.unsupported(f"{what} in dimension {axis} from {b} to {a}: sizes that change as it runs are not supported")


def _if(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    yes, no = op.regions
    index = operands[0]
    if isinstance(index, Symbolic) and not index.wraps and isinstance(index.elements[0], bool):
        return r.run_inline(yes if index.elements[0] else no)
    number = r.emit("convert", (r.data(index),), dtype=I32)
    return make_choice(r, number, [no, yes])


def _choose(r: Reader, index: Operand, regions: Sequence[ir.Region]) -> Result:
    known = r.constant_of(index)
    if known is not None:
        return r.run_inline(regions[known if 0 <= known < len(regions) else -1])
    return make_choice(r, r.data(index), regions)


def make_choice(r: Reader, index: Value, regions: Sequence[ir.Region]) -> Result:
    """Emit a choice between regions without arguments; an index without a region takes the last one. Returns the
    results."""
    results = iter(make_branches(r, index, regions, [()] * len(regions)))
    return [TOKEN if r.is_token(value) else next(results) for value in r.op.results]


def make_branches(
    r: Reader, index: Value, regions: Sequence[ir.Region], operands: Sequence[Sequence[Operand]]
) -> tuple[Value, ...]:
    """Emit a choice between regions with their own operands; return the tensors of the results.

    An index without a region takes the last one.
    """
    made = [r.region(region, [], given) for region, given in zip(regions, operands, strict=True)]
    branches, captured = with_captures(made, 0)
    for number, branch in enumerate(branches[1:], 1):
        for k, (value, first) in enumerate(zip(branch.outputs, branches[0].outputs, strict=True)):
            _need_shape(r, value, first, f"branches 0 and {number} differ in the size of their result {k}")
    return r.emit_all("case", (index, *captured), branches=tuple(branches))


def _get_tuple_element(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    (bundle,) = operands
    if not isinstance(bundle, Bundle):
        r.unsupported("its operand is no tuple that the program makes")
    return [bundle[r.attr(op, "index", integer)]]


HANDLERS: dict[str, Handler] = {
    "stablehlo.while": _while,
    "stablehlo.case": lambda r, op, operands: _choose(r, operands[0], list(op.regions)),
    "stablehlo.if": _if,
    "stablehlo.optimization_barrier": lambda r, op, operands: operands,
    "stablehlo.after_all": lambda r, op, operands: [TOKEN],
    "stablehlo.create_token": lambda r, op, operands: [TOKEN],
    "stablehlo.tuple": lambda r, op, operands: [Bundle(operands)],
    "stablehlo.get_tuple_element": _get_tuple_element,
}
