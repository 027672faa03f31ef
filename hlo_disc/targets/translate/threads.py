"""Kernels of a machine whose blocks are teams of threads: `@k(arguments...)`, which a driver launches by its name.

Buffers are in the address space of global memory, which loads and stores are told by inference from the cast at the
kernel's entry; fast memory is the block's shared memory, behind what kernels have of it under names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from hlo_disc.kernel_ops import REGISTERS, Mma, Parts, Tf32
from hlo_disc.mlir import MlirValue, ir
from hlo_disc.targets.machine import Threads
from hlo_disc.targets.translate.emit import Extensions, FunctionBody, Handler, ModuleBody
from hlo_disc.targets.translate.functions import define, parameters
from hlo_disc.targets.translate.types import F64, I64, Type, Untranslatable

# Address spaces, which NVPTX and AMDGPU number alike.
GLOBAL, SHARED = 1, 3
_FAST = "fast"


def kernel(module: ModuleBody, op: ir.Operation, name: str, symbols: Mapping[str, str]) -> None:
    """Define a `gpu.func`."""
    threads = _threads(module)
    block = op.regions[0].blocks[0]
    registers = REGISTERS.of(op)
    body = FunctionBody(module, symbols, block="hardware", fast=f"%{_FAST}", tuned=registers > 0)
    types = [body.type(argument.type) for argument in block.arguments]
    texts = []
    for k, (argument, type_, text) in enumerate(zip(block.arguments, types, parameters(op, types), strict=True)):
        body[argument] = f"%a{k}"
        if type_.text == "ptr":
            texts.append(text.replace("ptr", f"ptr addrspace({GLOBAL})", 1).replace(f"%a{k}", f"%p{k}"))
            body.entry.append(f"  %a{k} = addrspacecast ptr addrspace({GLOBAL}) %p{k} to ptr")
        elif body.types.narrow and isinstance(argument.type, ir.IndexType):  # a launch passes 64 bits of it
            texts.append(f"i64 %p{k}")
            body.entry.append(f"  %a{k} = trunc i64 %p{k} to {type_.text}")
        else:
            texts.append(text)
    body.entry.append(_cast(_FAST))
    module.declarations.setdefault(_FAST, f"@{_FAST} = external addrspace({SHARED}) global [0 x i8], align 16")
    body.region(block)
    count, *_ = ir.DenseI32ArrayAttr(op.attributes["known_block_size"])
    define(
        module,
        f"{threads.convention} void @{name}({', '.join(texts)})",
        body,
        " " + threads.attributes(count, registers),
    )


def shared_memory(module: ModuleBody, op: ir.Operation) -> None:
    """Define a `memref.global` of fast memory."""
    name = ir.StringAttr(op.attributes["sym_name"]).value
    (size,) = ir.MemRefType(ir.TypeAttr(op.attributes["type"]).value).shape
    text = f"@{name} = internal addrspace({SHARED}) global [{size} x i8] undef, align 16"
    module.declarations[name] = text


def _cast(name: str) -> str:
    return f"  %{name} = addrspacecast ptr addrspace({SHARED}) @{name} to ptr"


def _threads(module: ModuleBody) -> Threads:
    threads = module.machine.threads
    if threads is None:
        raise Untranslatable("the machine has no teams of threads")
    return threads


def _number(intrinsic: Callable[[Threads], str]) -> Handler:
    def handler(body: FunctionBody, op: ir.Operation) -> None:
        if not body.block:
            raise Untranslatable("only a kernel has blocks and threads; pass their numbers to a device function")
        x = body.call("i32", intrinsic(_threads(body.module)), [])
        body[op.results[0]] = x if body.types.narrow else body.op(f"zext i32 {x} to i64")

    return handler


def _barrier(body: FunctionBody, op: ir.Operation) -> None:
    _threads(body.module).barrier(body)


def _constant(x: MlirValue) -> int:
    op = x.owner
    assert not isinstance(op, ir.Block)
    return ir.IntegerAttr(op.attributes["value"]).value


def _shuffle(body: FunctionBody, op: ir.Operation) -> None:
    x, distance, width = op.operands
    mode = re.split("[ <]", str(op.attributes["mode"]).rstrip(">"))[-1]  # MLIR has spelled it in two ways
    type_ = body.type(x.type)

    def shuffled(word: str) -> str:
        return _threads(body.module).shuffled(body, word, mode, _constant(distance), _constant(width))

    body[op.results[0]] = _by_words(body, body[x], type_, shuffled)


def _by_words(body: FunctionBody, x: str, type_: Type, move: Callable[[str], str]) -> str:
    """Move a value of 32 or 64 bits in words of 32."""
    bits = x if not type_.is_float else body.op(f"bitcast {type_.text} {x} to i{8 * type_.size}")
    if type_ in (I64, F64):
        high = body.op(f"trunc i64 {body.op(f'lshr i64 {bits}, 32')} to i32")
        words = [move(body.op(f"trunc i64 {bits} to i32")), move(high)]
        low, high = (body.op(f"zext i32 {word} to i64") for word in words)
        moved = body.op(f"or i64 {low}, {body.op(f'shl i64 {high}, 32')}")
    else:
        moved = move(bits)
    return moved if not type_.is_float else body.op(f"bitcast i{8 * type_.size} {moved} to {type_.text}")


def _get_global(body: FunctionBody, op: ir.Operation) -> None:
    name = ir.FlatSymbolRefAttr(op.attributes["name"]).value
    if _cast(name) not in body.entry:
        body.entry.append(_cast(name))
    body[op.results[0]] = f"%{name}"


def _parts(body: FunctionBody, op: ir.Operation, parts: Parts) -> None:
    read = _threads(body.module).parts
    if read is None:
        raise Untranslatable("the machine reads no parts of matrices")
    pointer, index = op.operands
    generic = body.op(f"getelementptr inbounds i16, ptr {body[pointer]}, i64 {body[index]}")
    address = body.op(f"addrspacecast ptr {generic} to ptr addrspace({SHARED})")
    words = read(body, address, parts.turned)
    body.put(op.results[0], body.vector(body.type(op.results[0].type), words))


def _mma(body: FunctionBody, op: ir.Operation, mma: Mma) -> None:
    multiply = _threads(body.module).mma
    if multiply is None:
        raise Untranslatable("the machine multiplies no small matrices")
    body.put(op.results[0], multiply(body, mma.name, *op.operands))


def _tf32(body: FunctionBody, op: ir.Operation, tf32: Tf32) -> None:
    rounded = _threads(body.module).tf32
    if rounded is None:
        raise Untranslatable("the machine does not round to TF32")
    (x,) = op.operands
    type_ = body.type(x.type)
    body.put(op.results[0], body.vector(type_, [rounded(body, element) for element in body.elements(x)]))


HANDLERS: Mapping[str, Handler] = {
    "gpu.thread_id": _number(lambda threads: threads.thread),
    "gpu.block_id": _number(lambda threads: threads.block),
    "gpu.barrier": _barrier,
    "gpu.shuffle": _shuffle,
    "memref.get_global": _get_global,
}

EXTENSIONS: Extensions = {Parts: _parts, Mma: _mma, Tf32: _tf32}
