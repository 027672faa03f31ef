"""The regular ops: one row per op, from its name to an LLVM opcode, intrinsic or vector-math function."""

from __future__ import annotations

from functools import partial

from hlo_disc.kernel_ops import KNOWN, UNPREDICTABLE, Compress, Known, PairDot, TileAction
from hlo_disc.mlir import MlirValue, ir
from hlo_disc.targets.translate.emit import Extensions, FunctionBody, Handler
from hlo_disc.targets.translate.floats import is_small, like, narrow, widen
from hlo_disc.targets.translate.types import (
    BF16,
    F32,
    F64,
    I4,
    I6,
    Type,
    Untranslatable,
    attribute_constant,
    int_constant,
    splat,
)
from hlo_disc.targets.translate.vectors import shuffle

INTEGER = {
    "addi": "add", "subi": "sub", "muli": "mul", "divsi": "sdiv", "remsi": "srem", "divui": "udiv", "remui": "urem",
    "andi": "and", "ori": "or", "xori": "xor",
}  # fmt: skip
SHIFTS = {"shli": "shl", "shrsi": "ashr", "shrui": "lshr"}
FLOAT = {"addf": "fadd", "subf": "fsub", "mulf": "fmul", "negf": "fneg"}
MIN_MAX = {
    "minsi": "smin", "maxsi": "smax", "minui": "umin", "maxui": "umax", "minimumf": "minimum", "maximumf": "maximum",
}  # fmt: skip
CASTS = {
    "fptosi": "fptosi", "fptoui": "fptoui", "sitofp": "sitofp", "uitofp": "uitofp",
    "extf": "fpext", "truncf": "fptrunc", "extsi": "sext", "extui": "zext", "trunci": "trunc",
}  # fmt: skip
MATH_INTRINSICS = {
    "absf": "fabs", "floor": "floor", "ceil": "ceil", "roundeven": "roundeven", "round": "round",
    "copysign": "copysign", "sqrt": "sqrt", "fma": "fma", "ctpop": "ctpop",
}  # fmt: skip
MATH_FUNCTIONS = (
    "exp", "expm1", "log", "log1p", "tanh", "erf", "erfc", "sin", "cos", "tan", "atan2", "powf", "cbrt",
)  # fmt: skip
INTEGER_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
FLOAT_PREDICATES = (
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true",
)  # fmt: skip
# Numbers that are divided together: the way of rare ones holds all that it starts from in registers.
_AT_ONCE = 4


def _integer(opcode: str) -> Handler:
    def handler(body: FunctionBody, op: ir.Operation) -> None:
        result = op.results[0]
        left, right = op.operands
        body[result] = body.op(f"{opcode} {body.type(result.type).text} {body[left]}, {body[right]}")

    return handler


def _shift(opcode: str) -> Handler:
    plain = _integer(opcode)

    def handler(body: FunctionBody, op: ir.Operation) -> None:
        type_ = body.type(op.results[0].type)
        if not body.module.machine.shifts_by_words or type_.size != 8:
            return plain(body, op)
        left, right = op.operands
        amount = body.op(f"and {type_.text} {body[right]}, {splat(type_, '63')}")
        body[op.results[0]] = body.op(f"{opcode} {type_.text} {body[left]}, {amount}")

    return handler


def _computable(body: FunctionBody, type_: Type, operands: list[str]) -> tuple[Type, list[str]]:
    """Return the type to compute in, and the operands in it: f32 for f16 and bf16."""
    if not is_small(type_):
        return type_, operands
    return like(type_, F32), [widen(body.op, x, type_) for x in operands]


def _stored(body: FunctionBody, value: str, computed: Type, type_: Type) -> str:
    return value if computed is type_ else narrow(body.op, value, computed, type_)


def _float(name: str, is_intrinsic: bool = False) -> Handler:
    def handler(body: FunctionBody, op: ir.Operation) -> None:
        result = op.results[0]
        type_, operands = _computable(body, body.type(result.type), body.all(op.operands))
        if is_intrinsic:
            value = body.intrinsic(name, type_, operands, body.fastmath(op))
        else:
            value = body.op(f"{name} {body.fastmath(op)}{type_.text} {', '.join(operands)}")
        body[result] = _stored(body, value, type_, body.type(result.type))

    return handler


_intrinsic = partial(_float, is_intrinsic=True)


def _intrinsic_with_flag(name: str) -> Handler:
    """Emit intrinsics with a trailing i1 "poison at the edge", which MLIR's ops do not have."""

    def handler(body: FunctionBody, op: ir.Operation) -> None:
        result = op.results[0]
        type_ = body.type(result.type)
        arguments = [(type_.text, body[op.operands[0]]), ("i1", "false")]
        body[result] = body.call(type_.text, f"llvm.{name}.{type_.suffix}", arguments)

    return handler


def _cast(opcode: str) -> Handler:
    def handler(body: FunctionBody, op: ir.Operation) -> None:
        operand, result = op.operands[0], op.results[0]
        source, target = body.type(operand.type), body.type(result.type)
        value = body[operand]
        if is_small(source) and opcode != "bitcast":
            value, source = widen(body.op, value, source), like(source, F32)
            if source == target:
                body[result] = value
                return
        if is_small(target) and opcode != "bitcast":
            # an integer of up to 53 bits is exact in f64, so that only the last step rounds
            via = source if source.is_float else like(source, F64 if source.size > 2 else F32)
            if via is not source:
                value = body.op(f"{opcode} {source.text} {value} to {via.text}")
            body[result] = _narrowed(body, op, value, via, target)
            return
        body[result] = body.op(f"{opcode} {source.text} {value} to {target.text}")

    return handler


def _narrowed(body: FunctionBody, op: ir.Operation, value: str, source: Type, target: Type) -> str:
    machine = body.module.machine
    known = KNOWN.of(op)
    if known is Known.CLEAN and not machine.passes_nan_on:
        known = Known.NOTHING
    exactly = partial(narrow, body.op, value, source, target, known)
    by_machine = machine.to_bf16 and known is not Known.EXACT and target.element is BF16 and source.element is F32
    if by_machine and (machine.to_bf16_always or any(use.owner.name != "arith.extf" for use in op.results[0].uses)):
        return machine.to_bf16(body, value, source, exactly) or exactly()  # type: ignore[misc]
    return exactly()


def _bitcast(body: FunctionBody, op: ir.Operation) -> None:
    """Cast bits; floats of 4 and 6 bits lie in the low bits of a byte."""
    operand, result = op.operands[0], op.results[0]
    source, target = body.type(operand.type), body.type(result.type)
    opcode = "bitcast"
    if (target.element or target) in (I4, I6):
        opcode = "trunc"
    elif (source.element or source) in (I4, I6):
        opcode = "zext"
    body[result] = body.op(f"{opcode} {source.text} {body[operand]} to {target.text}")


def _index_cast(extend: str) -> Handler:
    def handler(body: FunctionBody, op: ir.Operation) -> None:
        operand, result = op.operands[0], op.results[0]
        source, target = body.type(operand.type), body.type(result.type)
        value = body[operand]
        if body.types.narrow and source.size >= target.size and _is_index(result.type):
            value = _in_reach(body, value, source, signed=extend == "sext")
        if source.text == target.text:
            body[result] = value
            return
        wide, narrow = (target.element or target), (source.element or source)
        opcode = extend if int(narrow.text[1:]) < int(wide.text[1:]) else "trunc"
        body[result] = body.op(f"{opcode} {source.text} {value} to {target.text}")

    return handler


def _is_index(type_: ir.Type) -> bool:
    return isinstance(ir.VectorType(type_).element_type if isinstance(type_, ir.VectorType) else type_, ir.IndexType)


def _in_reach(body: FunctionBody, x: str, type_: Type, signed: bool) -> str:
    """Clamp a number for use as an index of 32 bits: a number beyond all indices stays beyond them."""
    for name, bound in (("smin", 1), ("smax", -1)) if signed else (("umin", 1),):
        limit = int_constant(bound * body.types.narrow, type_.element or type_)
        x = body.intrinsic(name, type_, [x, splat(type_, limit)])
    return x


def _math_function(name: str) -> Handler:
    def handler(body: FunctionBody, op: ir.Operation) -> None:
        result = op.results[0]
        body[result] = _called(body, name, body.type(result.type), body.all(op.operands))

    return handler


def _called(body: FunctionBody, name: str, type_: Type, operands: list[str]) -> str:
    arguments = ", ".join([f"{type_.text} {x}" for x in operands])
    return body.op(f"call {type_.text} @{body.module.math_function(name, type_)}({arguments})")


def _divide(body: FunctionBody, op: ir.Operation) -> None:
    result = op.results[0]
    type_, operands = _computable(body, body.type(result.type), body.all(op.operands))
    if not body.module.machine.reciprocal or (type_.element or type_) is not F32:
        return _float("fdiv")(body, op)
    body[result] = _stored(body, _divided(body, type_, operands), type_, body.type(result.type))


def _divided(body: FunctionBody, type_: Type, operands: list[str]) -> str:
    lanes, step = range(type_.lanes), _AT_ONCE
    if type_.lanes <= step or type_.lanes % step:
        return _called(body, "divide", type_, operands)
    part, whole = F32.vector(step), "poison"
    for first in lanes[::step]:
        own = [shuffle(body, type_, x, "poison", lanes[first : first + step]) for x in operands]
        y = _called(body, "divide", part, own)
        y = shuffle(body, part, y, "poison", [k - first if 0 <= k - first < step else -1 for k in lanes])
        whole = shuffle(body, type_, whole, y, [k if k < first else type_.lanes + k for k in lanes])
    return whole


def _compare(opcode: str, predicates: tuple[str, ...]) -> Handler:
    def handler(body: FunctionBody, op: ir.Operation) -> None:
        left, right = op.operands
        predicate = predicates[ir.IntegerAttr(op.attributes["predicate"]).value]
        flags = body.fastmath(op) if opcode == "fcmp" else ""
        type_, (a, b) = _computable(body, body.type(left.type), [body[left], body[right]])
        body[op.results[0]] = body.op(f"{opcode} {flags}{predicate} {type_.text} {a}, {b}")

    return handler


def _constant(body: FunctionBody, op: ir.Operation) -> None:
    attr, result = op.attributes["value"], op.results[0]
    constants = body.module.constants
    type_ = body.type(result.type)
    text = constants.get((attr, type_))
    if text is None:
        # an index that MLIR made of a number, which `_in_reach` would have kept there
        most = body.types.narrow if _is_index(result.type) else 0
        text = constants[attr, type_] = attribute_constant(attr, type_, most)
    body[result] = text


def _select(body: FunctionBody, op: ir.Operation) -> None:
    condition, left, right = op.operands
    text = body.type(left.type).text
    chosen = f"select {body.type(condition.type).text} {body[condition]}, {text} {body[left]}, {text} {body[right]}"
    # LLVM guesses that a condition can be predicted, and makes a branch of it.
    body[op.results[0]] = body.op(chosen + (", !unpredictable !{}" if UNPREDICTABLE.of(op) else ""))


def _poison(body: FunctionBody, op: ir.Operation) -> None:
    body[op.results[0]] = "poison"


def _as_llvm_has_it(body: FunctionBody, x: MlirValue) -> tuple[str, str]:
    """Return the type and value of an argument; bf16 is an integer everywhere else."""
    type_ = body.type(x.type)
    if type_.element is not BF16:
        return type_.text, body[x]
    text = f"<{type_.lanes} x bfloat>"
    return text, body.op(f"bitcast {type_.text} {body[x]} to {text}")


def _compress(body: FunctionBody, op: ir.Operation, compress: Compress) -> None:
    x, mask = op.operands
    type_ = body.type(x.type)
    assert type_.element is not None
    rest = splat(type_, int_constant(0, type_.element))
    arguments = [(type_.text, body[x]), (body.type(mask.type).text, body[mask]), (type_.text, rest)]
    body[op.results[0]] = body.call(type_.text, f"llvm.experimental.vector.compress.{type_.suffix}", arguments)


def _pair_dot(body: FunctionBody, op: ir.Operation, pair_dot: PairDot) -> None:
    name = body.module.machine.pair_dot
    if not name:
        raise Untranslatable("the machine does not multiply pairs of bf16")
    result = op.results[0]
    body[result] = body.call(body.type(result.type).text, name, [_as_llvm_has_it(body, x) for x in op.operands])


def _tile(body: FunctionBody, op: ir.Operation, action: TileAction) -> None:
    if body.module.machine.tile is None:
        raise Untranslatable("the machine has no registers of small matrices")
    body.module.machine.tile(body, action, body.all(op.operands))


HANDLERS: dict[str, Handler] = {
    **{f"arith.{op}": _integer(opcode) for op, opcode in INTEGER.items()},
    **{f"arith.{op}": _shift(opcode) for op, opcode in SHIFTS.items()},
    **{f"arith.{op}": _float(opcode) for op, opcode in FLOAT.items()},
    "arith.divf": _divide,
    "arith.remf": _math_function("fmod"),
    **{f"arith.{op}": _intrinsic(name) for op, name in MIN_MAX.items()},
    **{f"arith.{op}": _cast(opcode) for op, opcode in CASTS.items()},
    **{f"math.{op}": _intrinsic(name) for op, name in MATH_INTRINSICS.items()},
    **{f"math.{op}": _math_function(op.removesuffix("f") if op == "powf" else op) for op in MATH_FUNCTIONS},
    "arith.constant": _constant,
    "arith.cmpi": _compare("icmp", INTEGER_PREDICATES),
    "arith.cmpf": _compare("fcmp", FLOAT_PREDICATES),
    "arith.select": _select,
    "arith.bitcast": _bitcast,
    "arith.index_cast": _index_cast("sext"),
    "arith.index_castui": _index_cast("zext"),
    "math.absi": _intrinsic_with_flag("abs"),
    "math.ctlz": _intrinsic_with_flag("ctlz"),
    "vector.fma": _intrinsic("fma"),
    "vector.bitcast": _cast("bitcast"),
    "ub.poison": _poison,  # the canonicalizer's, for operands of which no lane is used
}

EXTENSIONS: Extensions = {
    Compress: _compress,
    PairDot: _pair_dot,
    **dict.fromkeys(TileAction.__subclasses__(), _tile),
}
