"""PTX as LLVM IR for the CPU, instruction by instruction: what LLVM makes of our kernels runs in the emulator.

LLVM's IR of a kernel, which `emulated.py` runs, does not show what LLVM's back end for NVIDIA's GPUs makes of it. This
reads what it makes, by the PTX ISA alone. A register is a variable of the function; an instruction is what `ptx_ops.py`
and `ptx_memory.py` have for it; one with a predicate is jumped over where that does not hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import ptx_memory
import ptx_ops
from ptx_function import WIDTHS, Function, Unknown, Variable, number

_PARAMETER = (
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)(?:\s+\.\w+(?:\s+\d+)?)*\s+"
    r"(?P<name>[\w$]+)(?:\[(?P<count>\d*)\])?"
)
_FUNCTION = re.compile(
    r"\.(?P<kind>entry|func)\s*(?:\((?P<result>[^)]*)\))?\s*(?P<name>[\w$]+)\s*(?:\((?P<params>[^)]*)\))?"
    r"(?P<rest>[^{;]*)(?P<body>[{;])",
    re.S,
)
OPS = ptx_ops.OPS | ptx_memory.OPS
# Parts of opcodes that instructions look at, or that say nothing of the result.
_KNOWN = frozenset(
    """rn rna rni rzi rmi rpi ftz approx full lo hi wide l r wrap clamp NaN and or xor add exch cas min max
    nc volatile relaxed acquire release acq_rel weak gpu cta sys L1 L2 evict_first evict_last v2 v4 to proxy
    sync aligned warp async ca cg commit_group wait_group bfly up down idx all row col x4 trans satfinite
    m16n8k16 m16n8k8 m16n8k32 m8n8k4 m8n8""".split()
).union(
    ptx_memory.SPACES,
    ptx_ops.ORDERED,
    ptx_ops.UNSIGNED,
    WIDTHS,
    ("bf16x2", "f16x2", "tf32"),
)
_SATURATED = ("fma", "cvt")


def statements(body: str) -> Iterator[str]:
    """Yield the text between semicolons, labels with their colon, and braces that open and close scopes."""
    at = 0
    while at < len(body):
        match = re.compile(r"\s*([$\w]+:|[{}]|[^;{}]*(?:\{[^{}]*\}[^;{}]*)*;|$)").match(body, at)
        if match is None:
            raise Unknown(body[at : at + 100])
        at = match.end()
        if match[1]:
            yield match[1].rstrip(";").strip()
        elif at >= len(body):
            return


def for_cpu(ptx: str, alone: bool = True) -> tuple[str, dict[str, int]]:
    """Return LLVM IR with a function of its record for each kernel, and each kernel's bytes of named shared memory.

    alone: no two threads may store to one address between two barriers, even if they store the same value.
    """
    ptx = re.sub(r"//[^\n]*|/\*.*?\*/", "", ptx, flags=re.S)
    ptx = ptx.replace("::cta", "")
    ptx = re.sub(r"^\s*\.(?:loc|file|pragma)\b.*$", "", ptx, flags=re.M).split(".section")[0]
    shared, constants = _shared(ptx), _constants(ptx)
    parts, named = list(constants.values()), {}
    at = 0
    while match := _FUNCTION.search(ptx, at):
        at = match.end()
        if match["body"] == ";":
            continue
        depth, start = 1, at
        while depth:
            depth += {"{": 1, "}": -1}.get(ptx[at], 0)
            at += 1
        body = ptx[start : at - 1]
        parts.append(_translated(match, body, shared, constants, 1 if alone else 2))
        if match["kind"] == "entry":
            named[match["name"]] = sum(max(n, 0) for x, (_, n) in shared.items() if _names(body, x))
    declared = [*ptx_ops.INTRINSICS, *map(ptx_memory.declared, ptx_memory.CALLED)]
    return "\n".join([*parts, *declared]), named


def _shared(ptx: str) -> dict[str, tuple[int, int]]:
    """Return the offset and bytes of each array in shared memory. The last one has -1: the bytes of a launch."""
    found, end = {}, 16
    pattern = r"\.shared\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)\[(\d*)\];"
    for alignment, type_, name, count in sorted(re.findall(pattern, ptx), key=lambda found: not found[3]):
        end = -(-end // int(alignment or 1)) * int(alignment or 1)
        size = int(count) * WIDTHS[type_] // 8 if count else -1
        found[name] = end, size
        end += max(size, 0) + 16  # what is outside of one is not inside of the next
    return found


def _constants(ptx: str) -> dict[str, str]:
    """Return the arrays of numbers of a module, as globals of LLVM IR."""
    found = {}
    pattern = r"\.(?:global|const)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[\d*\])?\s*=\s*\{?([^;}]*)\}?;"
    for alignment, type_, name, values in re.findall(pattern, ptx):
        bits = WIDTHS[type_]
        elements = [f"i{bits} {number(x, bits)}" for x in values.split(",")]
        array, least = f"[{len(elements)} x i{bits}] [{', '.join(elements)}]", max(int(alignment or 1), bits // 8)
        found[name] = f"@{_plain(name)} = private global {array}, align {least}"
    return found


def _names(body: str, name: str) -> bool:
    return bool(re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", body))


def _plain(name: str) -> str:
    return f'"{name}"'


def _translated(
    match: re.Match, body: str, shared: dict[str, tuple[int, int]], constants: dict[str, str], store: int
) -> str:
    """Return a function or a kernel.

    A function takes the addresses of its result and parameters. A kernel's parameters are a record.
    """
    f = Function(name=match["name"], store=store)
    if threads := re.search(r"\.reqntid\s+(\d+)", match["rest"]):
        f.threads = int(threads[1])
    for name, (at, size) in shared.items():
        if _names(body, name):
            f.scopes[0][name] = Variable(f.new(f"call ptr @simt_shared(i64 {at}, i64 {size})"), 0)
    f.shared = f.new("call ptr @simt_shared(i64 0, i64 0)") if "shared" in body else "null"
    for name in constants:
        f.scopes[0][name] = Variable(f"@{_plain(name)}", 0)
    params = [m.groupdict() for m in re.finditer(_PARAMETER, match["params"] or "")]
    if match["kind"] == "entry":
        offset = 0
        for p in params:
            size = WIDTHS[p["type"]] // 8 * int(p["count"] or 1)
            alignment = max(int(p["align"] or 1) if p["count"] else 1, WIDTHS[p["type"]] // 8)
            offset = -(-offset // alignment) * alignment
            f.scopes[0][p["name"]] = Variable(f.new(f"getelementptr i8, ptr %record, i64 {offset}"), 0)
            offset += size
        head = f"define void @{_plain(match['name'])}(ptr %record) {{"
    else:
        params = [m.groupdict() for m in re.finditer(_PARAMETER, match["result"] or "")] + params
        for k, p in enumerate(params):
            f.scopes[0][p["name"]] = Variable(f"%p{k}", 0)
        pointers = ", ".join(f"ptr %p{k}" for k in range(len(params)))
        head = f"define internal void @{_plain(match['name'])}({pointers}) noinline {{"
    for statement in statements(body):
        _statement(f, statement)
    f.do("ret void")
    return "\n".join([head, "entry:", *f.allocated, *f.lines, "}", *f.sites])


def _statement(f: Function, statement: str) -> None:
    f.statement = statement
    if statement == "{":
        f.scopes.append({})
    elif statement == "}":
        f.scopes.pop()
    elif statement.endswith(":"):
        f.do(f"br label %{_plain(statement[:-1])}")
        f.begin(_plain(statement[:-1]))
    elif statement.startswith("."):
        _declaration(f, statement)
    elif statement:
        predicate, _, rest = statement.partition(" ") if statement.startswith("@") else ("", "", statement)
        opcode, *operands = rest.split(None, 1)
        parts = re.findall(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,\s]+", operands[0]) if operands else []
        _instruction(f, predicate[1:], opcode, parts)


def _declaration(f: Function, statement: str) -> None:
    if match := re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", statement):
        for name in match[2].split(","):
            several = re.fullmatch(r"(.*)<(\d+)>", name.strip())
            names = [f"{several[1]}{k}" for k in range(int(several[2]))] if several else [name.strip()]
            for own in names:
                f.declare(own, WIDTHS[match[1]])
    elif match := re.fullmatch(
        r"\.(?:param|local)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d+)\])?", statement
    ):
        f.memory(match[3], WIDTHS[match[2]] // 8 * int(match[4] or 1), int(match[1] or 1))
    elif not statement.startswith(".shared "):  # which `_shared` has found
        raise Unknown(statement)


def _instruction(f: Function, predicate: str, opcode: str, operands: list[str]) -> None:
    name, *rest = opcode.split(".")
    if name == "bra":
        target = f"label %{_plain(operands[0])}"
        following = f.label()
        f.do(f"br i1 {f.get(predicate, 1)}, {target}, label %{following}" if predicate else f"br {target}")
        return f.begin(following)
    after = f.label() if predicate else ""
    if predicate:
        taken = f.label()
        f.do(f"br i1 {f.get(predicate, 1)}, label %{taken}, label %{after}")
        f.begin(taken)
    if name in ("ret", "exit"):
        f.do("ret void")
        f.begin(f.label())
    elif name == "call":
        passed = [x.strip() for part in operands if part.startswith("(") for x in part[1:-1].split(",") if x.strip()]
        (function,) = (x for x in operands if not x.startswith("("))
        given = ", ".join(f"ptr {f.variable(x).at}" for x in passed)
        f.do(f"call void @{_plain(function)}({given})")
    else:
        op = OPS.get(name)
        unknown = [x for x in rest if x not in _KNOWN and not (x == "sat" and name in _SATURATED)]
        if op is None or unknown:
            raise Unknown(f"{f.statement} in {f.name}")
        op(f, rest, operands)
    if predicate:
        f.do(f"br label %{after}")
        f.begin(after)
