"""Translation of memory ops. A memref is its pointer and an index counts elements; vectors are aligned as elements."""

from __future__ import annotations

from hlo_disc.kernel_ops import ALIGNMENT
from hlo_disc.mlir import MlirValue, arith, ir
from hlo_disc.targets.translate.emit import FunctionBody, Handler
from hlo_disc.targets.translate.types import Type, Untranslatable


def _element(body: FunctionBody, memref: MlirValue) -> Type:
    element = body.type(memref.type).element
    if element is None:
        raise Untranslatable(f"{memref.type} is no memref of rank 1")
    return element


def _address(body: FunctionBody, memref: MlirValue, element: Type, index: MlirValue) -> str:
    at = body[index]
    if at == "0":
        return body[memref]
    return body.op(f"getelementptr inbounds {element.text}, ptr {body[memref]}, {body.types.index.text} {at}")


def _alignment(op: ir.Operation, element: Type) -> int:
    """Return a vector's alignment in bytes."""
    return ALIGNMENT.of(op) or element.size


def _alloca(body: FunctionBody, op: ir.Operation) -> None:
    (count,) = ir.MemRefType(op.results[0].type).shape
    body[op.results[0]] = body.alloca(f"[{count} x {_element(body, op.results[0]).text}]")


def _load(body: FunctionBody, op: ir.Operation) -> None:
    memref, index = op.operands
    result = op.results[0]
    element = _element(body, memref)
    address = _address(body, memref, element, index)
    body[result] = body.op(f"load {body.type(result.type).text}, ptr {address}, align {_alignment(op, element)}")


def _store(body: FunctionBody, op: ir.Operation) -> None:
    value, memref, index = op.operands
    element = _element(body, memref)
    address = _address(body, memref, element, index)
    body.do(f"store {body.type(value.type).text} {body[value]}, ptr {address}, align {_alignment(op, element)}")


def _prefetch(body: FunctionBody, op: ir.Operation) -> None:
    memref, index = op.operands
    place = f"{_element(body, memref).text}, ptr {body[memref]}, {body.types.index.text} {body[index]}"
    address = body.op(f"getelementptr {place}")  # not inbounds: it may be beyond the end
    data = "1" if ir.BoolAttr(op.attributes["isDataCache"]).value else "0"
    write = "1" if ir.BoolAttr(op.attributes["isWrite"]).value else "0"
    locality = str(ir.IntegerAttr(op.attributes["localityHint"]).value)
    body.call("void", "llvm.prefetch.p0", [("ptr", address), ("i32", write), ("i32", locality), ("i32", data)])


# MLIR's kinds of updates in LLVM's words.
ATOMICS = {
    "addi": "add", "andi": "and", "maxs": "max", "maxu": "umax", "mins": "min", "minu": "umin", "ori": "or",
    "xori": "xor",
}  # fmt: skip


def _atomic(body: FunctionBody, op: ir.Operation) -> None:
    value, memref, index = op.operands
    element = _element(body, memref)
    kind = str(arith.AtomicRMWKind(ir.IntegerAttr(op.attributes["kind"]).value))
    if kind not in ATOMICS:
        raise Untranslatable(f"no instruction updates memory by {kind}")
    address = _address(body, memref, element, index)
    update = f"{ATOMICS[kind]} ptr {address}, {element.text} {body[value]}"
    body[op.results[0]] = body.op(f"atomicrmw {update} monotonic, align {element.size}")


def _same_pointer(body: FunctionBody, op: ir.Operation) -> None:
    body[op.results[0]] = body[op.operands[0]]


def _view(body: FunctionBody, op: ir.Operation) -> None:
    source, shift = op.operands[0], body[op.operands[1]]
    pointer = body[source]
    index = body.types.index.text
    moved = f"getelementptr inbounds i8, ptr {pointer}, {index} {shift}"
    body[op.results[0]] = pointer if shift == "0" else body.op(moved)


def _pointer_as_index(body: FunctionBody, op: ir.Operation) -> None:
    body[op.results[0]] = body.op(f"ptrtoint ptr {body[op.operands[0]]} to i64")


# LLVM 22 takes the alignment of the four masked forms as an attribute of the pointer argument.


def _mask(body: FunctionBody, mask: MlirValue, type_: Type) -> tuple[str, str]:
    """Return the argument that says which lanes of a vector are in memory."""
    text, form = body[mask], body.module.machine.mask
    return body.type(mask.type).text, form(body, text, type_) if form and text.startswith("%") else text


def _masked_load(body: FunctionBody, op: ir.Operation) -> None:
    memref, index, mask, other = op.operands
    result = op.results[0]
    type_ = body.type(result.type)
    element = _element(body, memref)
    arguments = [
        (f"ptr align {_alignment(op, element)}", _address(body, memref, element, index)),
        _mask(body, mask, type_),
        (type_.text, body[other]),
    ]
    body[result] = body.call(type_.text, f"llvm.masked.load.{type_.suffix}.p0", arguments)


def _is_first_lane(mask: MlirValue) -> bool:
    """Whether the mask is known to be that of the first lane alone."""
    op = mask.owner
    if isinstance(op, ir.Block) or op.name != "vector.constant_mask":
        return False
    return list(ir.DenseI64ArrayAttr(op.attributes["mask_dim_sizes"])) == [1]


def _masked_store(body: FunctionBody, op: ir.Operation) -> None:
    memref, index, mask, value = op.operands
    type_ = body.type(value.type)
    element = _element(body, memref)
    address = _address(body, memref, element, index)
    if _is_first_lane(mask):
        # LLVM 22 writes as many bytes as a lane had before it was truncated, over the neighbours.
        first = body.op(f"extractelement {type_.text} {body[value]}, i64 0")
        body.do(f"store {element.text} {first}, ptr {address}, align {element.size}")
        return
    arguments = [
        (type_.text, body[value]),
        (f"ptr align {_alignment(op, element)}", address),
        _mask(body, mask, type_),
    ]
    body.call("void", f"llvm.masked.store.{type_.suffix}.p0", arguments)


def _lane_pointers(body: FunctionBody, op: ir.Operation) -> tuple[str, str, Type]:
    """Return the pointer of every lane of a gather or scatter, its argument type, and the element type."""
    memref, index, lanes = op.operands[0], op.operands[1], op.operands[2]
    element = _element(body, memref)
    base = _address(body, memref, element, index)
    type_ = body.type(lanes.type)
    pointers = body.op(f"getelementptr {element.text}, ptr {base}, {type_.text} {body[lanes]}")
    return pointers, f"<{type_.lanes} x ptr> align {element.size}", element


def _gather(body: FunctionBody, op: ir.Operation) -> None:
    mask, other = op.operands[3], op.operands[4]
    result = op.results[0]
    type_ = body.type(result.type)
    pointers, pointer_type, _ = _lane_pointers(body, op)
    arguments = [(pointer_type, pointers), _mask(body, mask, type_), (type_.text, body[other])]
    body[result] = body.call(type_.text, f"llvm.masked.gather.{type_.suffix}.v{type_.lanes}p0", arguments)


def _scatter(body: FunctionBody, op: ir.Operation) -> None:
    mask, value = op.operands[3], op.operands[4]
    type_ = body.type(value.type)
    pointers, pointer_type, _ = _lane_pointers(body, op)
    arguments = [(type_.text, body[value]), (pointer_type, pointers), _mask(body, mask, type_)]
    body.call("void", f"llvm.masked.scatter.{type_.suffix}.v{type_.lanes}p0", arguments)


HANDLERS: dict[str, Handler] = {
    "memref.alloca": _alloca,
    "memref.load": _load,
    "memref.store": _store,
    "memref.atomic_rmw": _atomic,
    "memref.prefetch": _prefetch,
    "memref.view": _view,
    "memref.cast": _same_pointer,
    "memref.memory_space_cast": _same_pointer,
    "builtin.unrealized_conversion_cast": _same_pointer,
    "memref.extract_aligned_pointer_as_index": _pointer_as_index,
    "vector.load": _load,
    "vector.store": _store,
    "vector.maskedload": _masked_load,
    "vector.maskedstore": _masked_store,
    "vector.gather": _gather,
    "vector.scatter": _scatter,
}
