"""Vector ops that are no arithmetic: making, taking apart, permuting and reducing vectors of rank 1."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.mlir import ir
from hlo_disc.targets.emit import FunctionBody, Handler
from hlo_disc.targets.floats import is_small, like, narrow, widen
from hlo_disc.targets.types import (
    F32,
    I1,
    I32,
    I64,
    Type,
    Untranslatable,
    float_constant,
    splat,
    vector_constant,
)

# vector kind -> (llvm.vector.reduce name, opcode or intrinsic that joins an accumulator)
_REDUCTIONS = {
    "add": ("add", "add"),
    "mul": ("mul", "mul"),
    "and": ("and", "and"),
    "or": ("or", "or"),
    "xor": ("xor", "xor"),
    "minsi": ("smin", "llvm.smin"),
    "maxsi": ("smax", "llvm.smax"),
    "minui": ("umin", "llvm.umin"),
    "maxui": ("umax", "llvm.umax"),
    "minimumf": ("fminimum", "llvm.minimum"),
    "maximumf": ("fmaximum", "llvm.maximum"),
}
_DYNAMIC = -(2**63)


def broadcast(body: FunctionBody, type_: Type, scalar: str) -> str:
    """`scalar` in every lane of `type_`: a constant stays one."""
    element = type_.element
    assert element is not None
    if scalar[0] != "%":
        return splat(type_, scalar)
    first = body.op(f"insertelement {type_.text} poison, {element.text} {scalar}, i32 0")
    return body.op(f"shufflevector {type_.text} {first}, {type_.text} poison, <{type_.lanes} x i32> zeroinitializer")


def shuffle(body: FunctionBody, type_: Type, left: str, right: str, lanes: Sequence[int]) -> str:
    """Lanes of left ++ right (both of `type_`); -1 is any value."""
    mask = "<" + ", ".join("i32 poison" if k < 0 else f"i32 {k}" for k in lanes) + ">"
    return body.op(f"shufflevector {type_.text} {left}, {type_.text} {right}, <{len(lanes)} x i32> {mask}")


def _broadcast(body: FunctionBody, op: ir.Operation) -> None:
    operand, result = op.operands[0], op.results[0]
    source, type_ = body.type(operand.type), body.type(result.type)
    if not source.lanes:
        body[result] = broadcast(body, type_, body[operand])
    elif source.lanes == type_.lanes:
        body[result] = body[operand]
    else:
        body[result] = shuffle(body, source, body[operand], "poison", [0] * type_.lanes)


def _reduction(body: FunctionBody, op: ir.Operation) -> None:
    operands = body.all(op.operands)
    source, result = op.operands[0], op.results[0]
    type_, scalar = body.type(source.type), body.type(result.type)
    kind = body.module.enum_words(op.attributes["kind"]).strip()
    reduce, join = _REDUCTIONS[kind]
    flags = body.fastmath(op)
    if is_small(scalar):
        # all lanes join in f32; the result rounds once
        operands = [widen(body.op, operands[0], type_), *(widen(body.op, x, scalar) for x in operands[1:])]
        type_, scalar = like(type_, F32), F32
    value = _reduce(body, type_, scalar, kind, reduce, join, operands, flags)
    narrow_to = body.type(result.type)
    if narrow_to is not scalar:
        value = narrow(body.op, value, scalar, narrow_to)
    body[result] = value


def _reduce(
    body: FunctionBody, type_: Type, scalar: Type, kind: str, reduce: str, join: str, operands: list[str], flags: str
) -> str:
    if scalar.is_float and kind in ("add", "mul"):
        start = operands[1] if len(operands) > 1 else float_constant(-0.0 if kind == "add" else 1.0, scalar)
        arguments = [(scalar.text, start), (type_.text, operands[0])]
        return body.call(scalar.text, f"llvm.vector.reduce.f{reduce}.{type_.suffix}", arguments, flags)
    name = f"llvm.vector.reduce.{reduce}.{type_.suffix}"
    value = body.call(scalar.text, name, [(type_.text, operands[0])], flags if scalar.is_float else "")
    if len(operands) > 1:
        if join.startswith("llvm."):
            value = body.intrinsic(join.removeprefix("llvm."), scalar, [operands[1], value], flags)
        else:
            value = body.op(f"{join} {scalar.text} {operands[1]}, {value}")
    return value


def _position(body: FunctionBody, op: ir.Operation, first_dynamic: int) -> str:
    static = list(op.attributes["static_position"])
    if len(static) != 1:
        raise Untranslatable(f"one position is needed, not {static}")
    return body[op.operands[first_dynamic]] if static[0] == _DYNAMIC else str(static[0])


def _extract(body: FunctionBody, op: ir.Operation) -> None:
    vector = op.operands[0]
    position = _position(body, op, 1)
    body[op.results[0]] = body.op(f"extractelement {body.type(vector.type).text} {body[vector]}, i64 {position}")


def _insert(body: FunctionBody, op: ir.Operation) -> None:
    value, vector = op.operands[0], op.operands[1]
    position = _position(body, op, 2)
    text = f"insertelement {body.type(vector.type).text} {body[vector]}, {body.type(value.type).text} {body[value]}"
    body[op.results[0]] = body.op(f"{text}, i64 {position}")


def _from_elements(body: FunctionBody, op: ir.Operation) -> None:
    result = op.results[0]
    type_ = body.type(result.type)
    element = type_.element
    assert element is not None
    vector = "poison"
    for k, x in enumerate(body.all(op.operands)):
        vector = body.op(f"insertelement {type_.text} {vector}, {element.text} {x}, i64 {k}")
    body[result] = vector


def _to_elements(body: FunctionBody, op: ir.Operation) -> None:
    vector = op.operands[0]
    text = body.type(vector.type).text
    for k, result in enumerate(op.results):
        body[result] = body.op(f"extractelement {text} {body[vector]}, i64 {k}")


def _shuffle(body: FunctionBody, op: ir.Operation) -> None:
    left, right = op.operands
    a, b = body.type(left.type), body.type(right.type)
    x, y = body[left], body[right]
    mask = list(op.attributes["mask"])
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
    body[op.results[0]] = shuffle(body, a, x, y, mask)


def _interleave(body: FunctionBody, op: ir.Operation) -> None:
    left, right = op.operands
    type_ = body.type(left.type)
    n = type_.lanes
    lanes = [k for pair in zip(range(n), range(n, 2 * n), strict=True) for k in pair]
    body[op.results[0]] = shuffle(body, type_, body[left], body[right], lanes)


def _strided(op: ir.Operation) -> tuple[int, int]:
    offsets, strides = (list(op.attributes[name]) for name in ("offsets", "strides"))
    return offsets[0].value, strides[0].value


def _extract_slice(body: FunctionBody, op: ir.Operation) -> None:
    source, result = op.operands[0], op.results[0]
    start, stride = _strided(op)
    lanes = range(start, start + stride * body.type(result.type).lanes, stride)
    body[result] = shuffle(body, body.type(source.type), body[source], "poison", lanes)


def _insert_slice(body: FunctionBody, op: ir.Operation) -> None:
    part, whole = op.operands
    start, stride = _strided(op)
    small, large = body.type(part.type), body.type(whole.type)
    n = large.lanes
    long = shuffle(body, small, body[part], "poison", [*range(small.lanes), *[-1] * (n - small.lanes)])
    lanes = list(range(n))
    lanes[start : start + stride * small.lanes : stride] = range(n, n + small.lanes)
    body[op.results[0]] = shuffle(body, large, body[whole], long, lanes)


def _step(body: FunctionBody, op: ir.Operation) -> None:
    type_ = body.type(op.results[0].type)
    assert type_.element is not None
    body[op.results[0]] = vector_constant(type_.element, map(str, range(type_.lanes)))


def _create_mask(body: FunctionBody, op: ir.Operation) -> None:
    result = op.results[0]
    lanes = body.type(result.type).lanes
    count = body.intrinsic("smin", I64, [body[op.operands[0]], str(lanes)])
    count = body.intrinsic("smax", I64, [count, "0"])
    narrow = broadcast(body, I32.vector(lanes), body.op(f"trunc i64 {count} to i32"))
    body[result] = body.op(f"icmp ult <{lanes} x i32> {vector_constant(I32, map(str, range(lanes)))}, {narrow}")


def _constant_mask(body: FunctionBody, op: ir.Operation) -> None:
    result = op.results[0]
    (count,) = op.attributes["mask_dim_sizes"]
    lanes = body.type(result.type).lanes
    body[result] = vector_constant(I1, ("true" if k < count else "false" for k in range(lanes)))


def _shape_cast(body: FunctionBody, op: ir.Operation) -> None:
    operand, result = op.operands[0], op.results[0]
    if body.type(operand.type) != body.type(result.type):
        raise Untranslatable(f"{operand.type} to {result.type}: only vectors of rank 1")
    body[result] = body[operand]


# insert, to_elements, interleave, shape_cast, constant_mask and the strided slices: canonicalization makes them.
HANDLERS: dict[str, Handler] = {
    "vector.broadcast": _broadcast,
    "vector.reduction": _reduction,
    "vector.extract": _extract,
    "vector.insert": _insert,
    "vector.from_elements": _from_elements,
    "vector.to_elements": _to_elements,
    "vector.shuffle": _shuffle,
    "vector.interleave": _interleave,
    "vector.extract_strided_slice": _extract_slice,
    "vector.insert_strided_slice": _insert_slice,
    "vector.shape_cast": _shape_cast,
    "vector.step": _step,
    "vector.create_mask": _create_mask,
    "vector.constant_mask": _constant_mask,
}
