"""Vector ops that are no arithmetic: build, split, permute and reduce vectors of rank 1."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.mlir import MlirValue, ir
from hlo_disc.targets.translate.emit import FunctionBody, Handler
from hlo_disc.targets.translate.floats import is_small
from hlo_disc.targets.translate.types import (
    I1,
    I32,
    Type,
    Untranslatable,
    float_constant,
    splat,
    vector_constant,
)

# vector kind -> llvm.vector.reduce name
_REDUCTIONS = {
    "add": "add", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "minsi": "smin", "maxsi": "smax",
    "minui": "umin", "maxui": "umax", "minimumf": "fminimum", "maximumf": "fmaximum",
}  # fmt: skip


def broadcast(body: FunctionBody, type_: Type, scalar: str) -> str:
    """Broadcast `scalar` to every lane of `type_`: a constant stays one."""
    element = type_.element
    assert element is not None
    if scalar[0] != "%":
        return splat(type_, scalar)
    first = body.op(f"insertelement {type_.text} poison, {element.text} {scalar}, i32 0")
    return body.op(f"shufflevector {type_.text} {first}, {type_.text} poison, <{type_.lanes} x i32> zeroinitializer")


def shuffle(body: FunctionBody, type_: Type, left: str, right: str, lanes: Sequence[int]) -> str:
    """Shuffle the lanes of left ++ right (both of `type_`); -1 is any value."""
    mask = "<" + ", ".join("i32 poison" if k < 0 else f"i32 {k}" for k in lanes) + ">"
    return body.op(f"shufflevector {type_.text} {left}, {type_.text} {right}, <{len(lanes)} x i32> {mask}")


def _broadcast(body: FunctionBody, op: ir.Operation) -> None:
    operand, result = op.operands[0], op.results[0]
    if body.type(operand.type).lanes:
        raise Untranslatable(f"what is broadcast is a scalar, not {operand.type}")
    body[result] = broadcast(body, body.type(result.type), body[operand])


def _reduction(body: FunctionBody, op: ir.Operation) -> None:
    source, result = op.operands[0], op.results[0]
    type_, scalar = body.type(source.type), body.type(result.type)
    if len(op.operands) > 1 or is_small(scalar):
        raise Untranslatable(f"a reduction starts with nothing and has at least 32 bits, not {scalar.name}")
    kind = body.module.enum_words(op.attributes["kind"]).strip()
    arguments, flags, letter = [(type_.text, body[source])], "", ""
    if scalar.is_float:
        flags = body.fastmath(op)
        if kind in ("add", "mul"):
            arguments.insert(0, (scalar.text, float_constant(-0.0 if kind == "add" else 1.0, scalar)))
            letter = "f"
    name = f"llvm.vector.reduce.{letter}{_REDUCTIONS[kind]}.{type_.suffix}"
    body[result] = body.call(scalar.text, name, arguments, flags)


def _extract(body: FunctionBody, op: ir.Operation) -> None:
    vector = op.operands[0]
    if len(op.operands) > 1:
        raise Untranslatable("a lane is taken by its number, which is no value")
    (position,) = ir.DenseI64ArrayAttr(op.attributes["static_position"])
    body[op.results[0]] = body.element(vector, position)


def _from_elements(body: FunctionBody, op: ir.Operation) -> None:
    result = op.results[0]
    body.put(result, body.vector(body.type(result.type), body.all(op.operands)))


def _shuffle(body: FunctionBody, op: ir.Operation) -> None:
    left, right = op.operands
    mask, lanes = list(ir.DenseI64ArrayAttr(op.attributes["mask"])), body.type(left.type).lanes

    def element(k: int) -> str:
        lane = mask[k]
        if lane < 0:
            return "poison"
        return body.element(left, lane) if lane < lanes else body.element(right, lane - lanes)

    body.put(op.results[0], body.pending(lambda: _shuffled(body, left, right, mask), element))


def _shuffled(body: FunctionBody, left: MlirValue, right: MlirValue, mask: list[int]) -> str:
    a, b = body.type(left.type), body.type(right.type)
    x, y = body[left], body[right]
    if a.lanes != b.lanes:
        # LLVM wants both of one length: lengthen the shorter, and renumber the lanes of the right one
        n = max(a.lanes, b.lanes)
        assert a.element is not None
        wide = a.element.vector(n)
        if a.lanes < n:
            x = shuffle(body, a, x, "poison", [*range(a.lanes), *[-1] * (n - a.lanes)])
            mask = [k if k < a.lanes else k + n - a.lanes for k in mask]
        else:
            y = shuffle(body, b, y, "poison", [*range(b.lanes), *[-1] * (n - b.lanes)])
        a = wide
    return shuffle(body, a, x, y, mask)


def _interleave(body: FunctionBody, op: ir.Operation) -> None:
    left, right = op.operands
    type_ = body.type(left.type)
    n = type_.lanes
    lanes = [k for pair in zip(range(n), range(n, 2 * n), strict=True) for k in pair]
    body[op.results[0]] = shuffle(body, type_, body[left], body[right], lanes)


def _step(body: FunctionBody, op: ir.Operation) -> None:
    type_ = body.type(op.results[0].type)
    assert type_.element is not None
    body[op.results[0]] = vector_constant(type_.element, map(str, range(type_.lanes)))


def _create_mask(body: FunctionBody, op: ir.Operation) -> None:
    result = op.results[0]
    lanes = body.type(result.type).lanes
    index = body.types.index
    count = body.intrinsic("smin", index, [body[op.operands[0]], str(lanes)])
    count = body.intrinsic("smax", index, [count, "0"])
    if not body.types.narrow:
        count = body.op(f"trunc {index.text} {count} to i32")
    narrow = broadcast(body, I32.vector(lanes), count)
    body[result] = body.op(f"icmp ult <{lanes} x i32> {vector_constant(I32, map(str, range(lanes)))}, {narrow}")


def _constant_mask(body: FunctionBody, op: ir.Operation) -> None:
    result = op.results[0]
    (count,) = ir.DenseI64ArrayAttr(op.attributes["mask_dim_sizes"])
    lanes = body.type(result.type).lanes
    body[result] = vector_constant(I1, ("true" if k < count else "false" for k in range(lanes)))


HANDLERS: dict[str, Handler] = {
    "vector.broadcast": _broadcast,
    "vector.reduction": _reduction,
    "vector.extract": _extract,
    "vector.from_elements": _from_elements,
    "vector.shuffle": _shuffle,
    "vector.interleave": _interleave,  # the canonicalizer's, for a shuffle
    "vector.step": _step,
    "vector.create_mask": _create_mask,
    "vector.constant_mask": _constant_mask,  # the canonicalizer's, for a mask of known length
}
