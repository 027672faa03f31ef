"""Functions and launches: kernels, device functions and host functions, with the runtime's calling convention.

A block is a core: a kernel becomes `void @k(arguments..., i64 block, ptr fast)` and the function that the runtime
calls, `void @k__blocks(ptr record, i64 begin, i64 end, ptr fast)`, which unpacks the record and loops over its blocks.
`gpu.launch_func` packs the record on the stack and calls `ral_parallel_for(call, @k__blocks, record, blocks)`. Where a
driver has the kernels (`threads.py`), it calls `ral_launch(call, @k, blocks, threads, bytes of fast memory, record, its
bytes)`, where @k is the ral_kernel that says what the driver loads. A kernel whose code is made later is launched by
`ral_launch_deferred(call, @k__blocks.deferred, record, blocks)`, whose status the function returns where it failed.

Exported host functions have the C ABI. One that starts with a `!llvm.ptr` runs kernels: `f(ptr call, ptr env, ptr
arena, ptr buffers)`, every argument after the third being loaded from the array `buffers`. Others keep their signature.
What modules of one program find in each other is hidden: @k__blocks, and the device functions that say so. Everything
else is internal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hlo_disc.abi import LAUNCH, LAUNCH_DEFERRED, MODULES, PARALLEL_FOR, SLOT
from hlo_disc.kernel_ops import CALLS_ONLY, EXPORTED, LINKED, NOALIAS, OFTEN, READONLY, KernelName
from hlo_disc.mlir import ir
from hlo_disc.targets.translate.control import result_text, return_failure
from hlo_disc.targets.translate.emit import Extensions, FunctionBody, Handler, ModuleBody
from hlo_disc.targets.translate.types import PTR, Type, Untranslatable

_FIXED_ARGUMENTS = 3
# What LLVM calls an attribute of an argument, and the attribute's reader.
_ARGUMENT_ATTRIBUTES = {"noalias": NOALIAS.among, "readonly": READONLY.among}
_PLAIN_NAME = re.compile(r"[A-Za-z$._][A-Za-z0-9$._]*\Z")
# Most host code runs once a call and does next to nothing: generating it quickly is worth more than good code. The
# same holds for the loop over a kernel's blocks, and for kernels that only call.
_UNOPTIMIZED = " noinline optnone"
# the operand groups of gpu.launch_func, in order
_GRID, _THREADS, _DYNAMIC_BYTES, _ARGUMENTS = 1, 4, 10, 11


def symbol(name: str) -> str:
    """Return a function's name as LLVM text (without the @)."""
    return name if _PLAIN_NAME.match(name) else '"' + name.replace("\\", "\\5C").replace('"', "\\22") + '"'


def name_of(op: ir.Operation) -> str:
    """Return the name that a function or module op defines."""
    return ir.StringAttr(op.attributes["sym_name"]).value


def signature(module: ModuleBody, op: ir.Operation) -> tuple[list[Type], list[Type]]:
    attr = op.attributes["function_type"]
    found = module.signatures.get(attr)
    if found is None:
        types = ir.FunctionType(ir.TypeAttr(attr).value)
        found = [module.type(t) for t in types.inputs], [module.type(t) for t in types.results]
        module.signatures[attr] = found
    return found


def _has_body(op: ir.Operation) -> bool:
    return len(op.regions[0].blocks) > 0


def parameters(op: ir.Operation, types: list[Type]) -> list[str]:
    """Return the parameters `%a0`, `%a1`, … with the attributes that MLIR's arguments carry."""
    attributes: list[ir.DictAttr | None] = [None] * len(types)
    if "arg_attrs" in op.attributes:
        attributes = [ir.DictAttr(x) for x in ir.ArrayAttr(op.attributes["arg_attrs"])]
    texts = []
    for k, (type_, known) in enumerate(zip(types, attributes, strict=True)):
        words = [w for w, has in _ARGUMENT_ATTRIBUTES.items() if known is not None and has(known)]
        texts.append(" ".join([type_.text, *words, f"%a{k}"]))
    return texts


def define(module: ModuleBody, head: str, body: FunctionBody, attributes: str = "") -> None:
    module.functions.append(
        f"define {head} {module.machine.attributes}{attributes}{module.section} {{\n{body.text()}\n}}"
    )


def kernel(module: ModuleBody, op: ir.Operation, name: str, symbols: Mapping[str, str]) -> None:
    """Define a `gpu.func` and the loop over its blocks that the runtime calls."""
    types, _ = signature(module, op)
    block = op.regions[0].blocks[0]
    body = FunctionBody(module, symbols, block="%block", fast="%fast")
    for k, argument in enumerate(block.arguments):
        body[argument] = f"%a{k}"
    body.region(block)
    declared = ", ".join([*parameters(op, types), "i64 %block", "ptr noalias %fast"])
    attributes = _UNOPTIMIZED if CALLS_ONLY.of(op) else " noinline"
    define(module, f"internal void @{name}({declared})", body, attributes)

    loop = FunctionBody(module, symbols)
    fields = _record(types)
    arguments = []
    for k, type_ in enumerate(types):
        address = loop.op(f"getelementptr inbounds {fields}, ptr %record, i32 0, i32 {k}")
        loaded = loop.op(f"load {type_.text}, ptr {address}, align {_field_alignment(type_)}")
        arguments.append(f"{type_.text} {loaded}")
    loop.do(f"br i1 {loop.op('icmp slt i64 %begin, %end')}, label %loop, label %done")
    loop.begin("loop")
    loop.do("%block = phi i64 [ %begin, %entry ], [ %next, %loop ]")
    loop.do(f"call void @{name}({', '.join([*arguments, 'i64 %block', 'ptr %fast'])})")
    loop.do("%next = add nsw i64 %block, 1")
    loop.do(f"br i1 {loop.op('icmp slt i64 %next, %end')}, label %loop, label %done")
    loop.begin("done")
    loop.do("ret void")
    head = f"hidden void @{blocks_name(name)}(ptr noalias readonly %record, i64 %begin, i64 %end, ptr noalias %fast)"
    define(module, head, loop, _UNOPTIMIZED)
    module.defined.add(blocks_name(name))


def device_function(module: ModuleBody, op: ir.Operation, name: str, symbols: Mapping[str, str]) -> None:
    """Define (or declare) a private function of the kernels' module; its registers are its own, so it stays a call."""
    linkage = "hidden " if LINKED.of(op) else "internal "
    _function(module, op, name, symbols, f" {module.machine.outlined}", "", linkage)


def host_function(module: ModuleBody, op: ir.Operation, name: str, symbols: Mapping[str, str]) -> None:
    """Define (or declare) a `func.func` beside the kernels' module."""
    exported = EXPORTED.of(op)
    types, results = signature(module, op)
    if not exported or not types or types[0] is not PTR:
        runtime = "%a0" if types and types[0] is PTR else ""
        _function(module, op, name, symbols, _effort(op), runtime, "" if exported else "internal ")
        return
    if not _has_body(op):
        raise Untranslatable(f"the exported function @{name} has no body")
    block = op.regions[0].blocks[0]
    body = FunctionBody(module, symbols, runtime="%call")
    fixed = ["%call", "%env", "%arena"]
    for k, argument in enumerate(block.arguments):
        if k < _FIXED_ARGUMENTS:
            body[argument] = fixed[k]
            continue
        if types[k].text != "ptr":
            raise Untranslatable(f"argument {k} of @{name} must be a buffer, not {argument.type}")
        address = body.op(f"getelementptr inbounds ptr, ptr %buffers, i64 {k - _FIXED_ARGUMENTS}")
        body[argument] = body.op(f"load ptr, ptr {address}, align 8")
    body.region(block)
    result = result_text([t.text for t in results])
    define(module, f"{result} @{name}(ptr %call, ptr %env, ptr %arena, ptr %buffers)", body, _effort(op))


def _effort(op: ir.Operation) -> str:
    return " noinline" if OFTEN.of(op) else _UNOPTIMIZED


def _function(
    module: ModuleBody,
    op: ir.Operation,
    name: str,
    symbols: Mapping[str, str],
    attributes: str,
    runtime: str,
    linkage: str,
) -> None:
    types, results = signature(module, op)
    result = result_text([t.text for t in results])
    if not _has_body(op):
        hidden = linkage if LINKED.of(op) else ""
        module.declare(name, hidden + result, (t.text for t in types))
        return
    block = op.regions[0].blocks[0]
    body = FunctionBody(module, symbols, runtime=runtime)
    for k, argument in enumerate(block.arguments):
        body[argument] = f"%a{k}"
    body.region(block)
    define(module, f"{linkage}{result} @{name}({', '.join(parameters(op, types))})", body, attributes)
    module.defined.add(name)


def _record(types: list[Type]) -> str:
    return "{ " + ", ".join(t.text for t in types) + " }"


def _field_alignment(type_: Type) -> int:
    return 8 if type_.text == "ptr" else type_.size


def blocks_name(name: str) -> str:
    """Return the name of the function that loops over a kernel's blocks."""
    return name[:-1] + '__blocks"' if name.endswith('"') else name + "__blocks"


def _launch(body: FunctionBody, op: ir.Operation) -> None:
    if not body.runtime:
        raise Untranslatable("a function that launches kernels must have the runtime's !llvm.ptr as its first argument")
    sizes = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    operands = list(op.operands)
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    kernel_name = "::".join(re.findall(r'@("[^"]*"|[A-Za-z0-9$._-]+)', str(op.attributes["kernel"]))).replace('"', "")
    target = body.symbols.get(kernel_name)
    if target is None:
        raise Untranslatable(f"there is no kernel @{kernel_name}")
    arguments = operands[starts[_ARGUMENTS] : starts[_ARGUMENTS] + sizes[_ARGUMENTS]]
    types = [body.type(a.type) for a in arguments]
    fields = _record(types)
    record = body.alloca(fields)
    offset = 0
    for argument, type_ in zip(arguments, types, strict=True):
        bytes_ = _field_alignment(type_)
        offset = -(-offset // bytes_) * bytes_
        address = body.op(f"getelementptr inbounds i8, ptr {record}, i32 {offset}")
        body.do(f"store {type_.text} {body[argument]}, ptr {address}, align {bytes_}")
        offset += bytes_
    blocks = body[operands[starts[_GRID]]]
    if body.module.machine.launches:
        threads, fast = (body[operands[starts[k]]] for k in (_THREADS, _DYNAMIC_BYTES))
        _declare_kernel(body.module, target)
        passed = [("ptr", body.runtime), ("ptr", f"@{target}"), ("i64", blocks), ("i64", threads), ("i32", fast)]
        size = f"ptrtoint (ptr getelementptr ({fields}, ptr null, i32 1) to i64)"
        body.call("void", LAUNCH, [*passed, ("ptr", record), ("i64", size)])
        return
    function = blocks_name(target)
    if target in body.module.deferred:
        _launch_deferred(body, function, record, blocks)
        return
    if function not in body.module.defined:
        body.module.declare(function, "hidden void", ["ptr", "i64", "i64", "ptr"])
    passed = [("ptr", body.runtime), ("ptr", f"@{function}"), ("ptr", record), ("i64", blocks)]
    body.call("void", PARALLEL_FOR, passed)


def _launch_deferred(body: FunctionBody, function: str, record: str, blocks: str) -> None:
    slot = f"{function}{SLOT}"
    fields = f"{{ ptr null, ptr {_text(body.module, function)} }}"
    body.module.declarations.setdefault(slot, f"@{slot} = hidden global {{ ptr, ptr }} {fields}")
    passed = [("ptr", body.runtime), ("ptr", f"@{slot}"), ("ptr", record), ("i64", blocks)]
    return_failure(body, body.call("i32", LAUNCH_DEFERRED, passed))


def _declare_kernel(module: ModuleBody, name: str) -> None:
    module.declarations.setdefault(MODULES, f"@{MODULES} = external constant i8")
    fields = f"ptr @{MODULES}, ptr {_text(module, name)}, ptr null"
    module.declarations.setdefault(name, f"@{name} = internal global {{ ptr, ptr, ptr }} {{ {fields} }}")


def _text(module: ModuleBody, name: str) -> str:
    """Return the characters of a kernel's name."""
    text = f'@{name}.name = private constant [{len(name) + 1} x i8] c"{name}\\00"'
    module.declarations.setdefault(f"{name}.name", text)
    return f"@{name}.name"


def _pointer_to_text(body: FunctionBody, op: ir.Operation, kernel: KernelName) -> None:
    body[op.results[0]] = _text(body.module, kernel.name)


def _block_id(body: FunctionBody, op: ir.Operation) -> None:
    if not body.block:
        raise Untranslatable("only a kernel has blocks; pass the block id to a device function")
    along_x = "<x>" in str(op.attributes["dimension"]) or str(op.attributes["dimension"]).endswith(" x>")
    body[op.results[0]] = body.block if along_x else "0"


def _fast_memory(body: FunctionBody, op: ir.Operation) -> None:
    if not body.fast:
        raise Untranslatable("only a kernel has fast memory; pass a view of it to a device function")
    body[op.results[0]] = body.fast


HANDLERS: dict[str, Handler] = {
    "gpu.launch_func": _launch,
    "gpu.block_id": _block_id,
    "gpu.dynamic_shared_memory": _fast_memory,
    "gpu.return": lambda body, op: body.do("ret void"),
}

EXTENSIONS: Extensions = {KernelName: _pointer_to_text}
