"""Translation of structured control flow to basic blocks and phis, and of calls between functions."""

from __future__ import annotations

from hlo_disc.kernel_ops import CHECKED
from hlo_disc.mlir import ir
from hlo_disc.targets.translate.emit import FunctionBody, Handler
from hlo_disc.targets.translate.types import Untranslatable


def _phis(body: FunctionBody, count: int) -> tuple[int, list[str]]:
    """Reserve the lines of `count` phis here; returns where the first is and their names."""
    at = len(body.lines)
    return at, [body.op("") for _ in range(count)]


def _for(body: FunctionBody, op: ir.Operation) -> None:
    operands = body.all(op.operands)
    low, high, step = operands[:3]
    initial = operands[3:]
    block = op.regions[0].blocks[0]
    if "unsignedCmp" in op.attributes:
        raise Untranslatable("a loop counts with a sign")
    arguments = list(block.arguments)
    types = [body.type(a.type).text for a in arguments]
    counter = types[0]
    loop, done = body.fresh("loop"), body.fresh("done")

    before = body.current
    body.do(f"br i1 {body.op(f'icmp slt {counter} {low}, {high}')}, label %{loop}, label %{done}")
    body.begin(loop)
    at, phis = _phis(body, len(arguments))
    for argument, phi in zip(arguments, phis, strict=True):
        body[argument] = phi
    yielded = body.region(block)
    # the counter stays below `high` + step, which no size of memory brings near overflow
    following = body.op(f"add nsw {counter} {phis[0]}, {step}")
    end = body.current
    # While a thread waits, others are under way: registers for more of its steps at once would be theirs.
    rolled = body.module.machine.threads and not body.tuned
    how = f", !llvm.loop {body.module.rolled_loop()}" if rolled else ""
    body.do(f"br i1 {body.op(f'icmp slt {counter} {following}, {high}')}, label %{loop}, label %{done}{how}")
    for k, (type_, first, next_) in enumerate(zip(types, [low, *initial], [following, *yielded], strict=True)):
        body.lines[at + k] = f"  {phis[k]} = phi {type_} [ {first}, %{before} ], [ {next_}, %{end} ]"
    body.begin(done)
    for result, type_, first, last in zip(op.results, types[1:], initial, yielded, strict=True):
        body[result] = body.op(f"phi {type_} [ {first}, %{before} ], [ {last}, %{end} ]")


def _if(body: FunctionBody, op: ir.Operation) -> None:
    then_region, else_region = op.regions
    has_else = len(else_region.blocks) > 0
    then, join = body.fresh("then"), body.fresh("join")
    otherwise = body.fresh("else") if has_else else join
    body.do(f"br i1 {body[op.operands[0]]}, label %{then}, label %{otherwise}")
    incoming = []
    for label, region in ((then, then_region), (otherwise, else_region))[: 2 if has_else else 1]:
        body.begin(label)
        yielded = body.region(region.blocks[0])
        incoming.append((yielded, body.current))
        body.do(f"br label %{join}")
    body.begin(join)
    for k, result in enumerate(op.results):
        edges = ", ".join(f"[ {values[k]}, %{label} ]" for values, label in incoming)
        body[result] = body.op(f"phi {body.type(result.type).text} {edges}")


def _while(body: FunctionBody, op: ir.Operation) -> None:
    initial = body.all(op.operands)
    test, step = (region.blocks[0] for region in op.regions)
    arguments = list(test.arguments)
    types = [body.type(a.type).text for a in arguments]
    head, loop, done = body.fresh("head"), body.fresh("loop"), body.fresh("done")

    before = body.current
    body.do(f"br label %{head}")
    body.begin(head)
    at, phis = _phis(body, len(arguments))
    for argument, phi in zip(arguments, phis, strict=True):
        body[argument] = phi
    condition, *passed = body.region(test)
    body.do(f"br i1 {condition}, label %{loop}, label %{done}")
    body.begin(loop)
    for argument, value in zip(step.arguments, passed, strict=True):
        body[argument] = value
    yielded = body.region(step)
    body.do(f"br label %{head}")
    for k, (type_, first, next_) in enumerate(zip(types, initial, yielded, strict=True)):
        body.lines[at + k] = f"  {phis[k]} = phi {type_} [ {first}, %{before} ], [ {next_}, %{body.current} ]"
    body.begin(done)
    for result, value in zip(op.results, passed, strict=True):
        body[result] = value


def _yield(body: FunctionBody, op: ir.Operation) -> None:
    body.yielded = body.all(op.operands)


def _call(body: FunctionBody, op: ir.Operation) -> None:
    name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
    symbol = body.symbols.get(name)
    if symbol is None:
        raise Untranslatable(f"there is no function @{name}")
    results = list(op.results)
    result_types = [body.type(r.type).text for r in results]
    arguments = ", ".join([f"{body.type(a.type).text} {body[a]}" for a in op.operands])
    call = f"call {result_text(result_types)} @{symbol}({arguments})"
    if not results:
        body.do(call)
        return
    value = body.op(call)
    if CHECKED.of(op):
        return_failure(body, value)
    body[results[0]] = value


def return_failure(body: FunctionBody, status: str) -> None:
    """Return a status that is not 0 from the function."""
    failed, fine = body.fresh("failed"), body.fresh("fine")
    body.do(f"br i1 {body.op(f'icmp eq i32 {status}, 0')}, label %{fine}, label %{failed}")
    body.begin(failed)
    body.do(f"ret i32 {status}")
    body.begin(fine)


def _return(body: FunctionBody, op: ir.Operation) -> None:
    operands = list(op.operands)
    body.do(f"ret {result_text([body.type(x.type).text for x in operands])} {''.join(body.all(operands))}".rstrip())


def result_text(types: list[str]) -> str:
    """Return the LLVM type of a function's result, void for none."""
    if len(types) > 1:
        raise Untranslatable(f"a function has one result at most, not {len(types)}")
    return types[0] if types else "void"


HANDLERS: dict[str, Handler] = {
    "scf.for": _for,
    "scf.if": _if,
    "scf.while": _while,
    "scf.yield": _yield,
    "scf.condition": _yield,
    "func.call": _call,
    "func.return": _return,
}
