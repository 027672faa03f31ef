"""A compiled program as text for people: a summary that fits a screen, and everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from hlo_disc.compiled.account import Account, Launch, parse
from hlo_disc.compiled.program import Program
from hlo_disc.dynamic_hlo.sizes.dim import Dim

# The name of an op, its place, and how many there are.
OpRow: TypeAlias = tuple[str, int, int]

# A summary's lines, how many rows of a kind it shows at most, and how long its lines are.
LINES = 59
_ROWS, _SPLITS, _STAGES, _WIDTH = 6, 5, 4, 160
_LEAST = 18  # lines of one program among several
_ARRANGING = ("constant", "broadcast", "reshape", "transpose", "convert", "slice", "iota", "dim")
_PRODUCTS = ("dot_general", "convolution")
# What a dim is taken for, where launches are ordered by their work.
_TYPICAL = 64


def summary(program: Program, lines: int = LINES) -> str:
    """Return the signature and the launches with their reasons, similar ones in one line; at most so many lines."""
    head = _head(program, _ROWS)
    if not program.account:
        return "\n".join(head[:lines])
    account = parse(program.account)
    splits = _splits(account)
    below = _shortened([f"  {_cut(split)}" for split in splits], _SPLITS)
    below = ["", f"not fused, {len(splits)}:", *below] if splits else []
    below += ["", "explain(full=True), or hlo-disc explain --full, shows every launch, its work, and the arena"]
    title = ["", f"program {account.name}: {_counts(account)}, {_arena(account)}"]
    room = max(lines - len(head) - len(title) - len(below), 3)
    return "\n".join([*head, *title, *_alike(account, room), *below][:lines])


def several(stats: str, programs: Sequence[Program]) -> str:
    """Return a function's statistics, and a summary of each program while lines are left."""
    lines = stats.split("\n")
    lines = _shortened(lines, LINES // 3)
    shown = min(len(programs), max((LINES - len(lines)) // (_LEAST + 1), 1))
    each = (LINES - len(lines)) // max(shown, 1) - 1
    for program in programs[:shown]:
        lines += ["", *summary(program, each).split("\n")]
    more = len(programs) - shown
    return "\n".join([*lines[: LINES - bool(more)], *([f"and {more} more programs"] if more else [])])


def full(program: Program, notes: Iterable[str] = ()) -> str:
    """Return the whole text. notes: lines about the object code."""
    head = [*_head(program, None), *notes]
    return "\n".join([*head, "", plan_text(program.account)] if program.account else head).rstrip()


def plan_text(account: str) -> str:
    """Return a line for each launch with its inputs, outputs and computation, the arena, and why ops were not fused."""
    found = parse(account)
    lines = [f"program {found.name}", launches_text(found)]
    lines.append("what launches read and write, each once, and compute:")
    lines += [f"{i:6d}  {x.bytes} bytes, {x.operations} operations" for i, x in enumerate(found.launches)]
    needs = {form.kernel: form.fast for launch in found.launches for form in launch.forms if form.fast != "0"}
    if needs:
        lines.append("fast memory of a block, in bytes, which launches ask for:")
        lines += [f"  {kernel}: {need}" for kernel, need in needs.items()]
    lines.append(_arena(found))
    lines += [f"  {slot.bytes} bytes" for slot in found.slots if not slot.late]
    splits = _splits(found)
    if splits:
        lines += ["not fused:", *(f"  {split}" for split in splits)]
    return "\n".join(lines)


def launches_text(account: Account) -> str:
    """Return one line for each launch: its variants, and their conditions."""
    return "\n".join([_counts(account), *_flow(account.flow, account, "  ")])


def ops_text(ops: Iterable[OpRow]) -> str:
    """Return "2 constant, add" for (name, location, count)."""
    names: Counter[str] = Counter()
    for name, _, count in ops:
        names[name] += count
    return ", ".join(name if n == 1 else f"{n} {name}" for name, n in names.items()) or "copy"


def main_ops(ops: Sequence[OpRow]) -> str:
    """Return the text of the main ops: products first, without ops that only arrange numbers, unless all do."""
    kept = [op for op in ops if op[0] not in _ARRANGING] or list(ops)
    return ops_text(sorted(kept, key=lambda op: op[0] not in _PRODUCTS))


def _head(program: Program, rows: int | None) -> list[str]:
    """Return the signature and the origin of the program, with at most so many lines of each kind."""
    p = program
    total = sum(p.compile_ms.values())
    stages = list(p.compile_ms.items())
    if rows is not None:
        stages = sorted(stages, key=lambda stage: -stage[1])[:_STAGES]
    times = ", ".join(f"{name} {ms:.1f}" for name, ms in stages)
    more = ", …" if len(stages) < len(p.compile_ms) else ""
    return [
        *([f"source  {p.source}"] if p.source else []),
        *_shortened([f"input   {x}" for x in p.inputs], rows),
        *_shortened([f"output  {x}" for x in p.outputs], rows),
        *_shortened([f"guard   {x.lhs} {x.relation} {x.rhs}" for x in p.guards], rows),
        *_shortened([f"asked   {x.message}" for x in p.asked], rows),
        f"object  {len(p.object)} bytes for {', '.join(p.features)}; {len(p.constants)} constants of "
        f"{p.weights} bytes; {len(p.packs)} packed weights",
        f"compile {total:.1f} ms: {times}{more}",
    ]


def _shortened(lines: list[str], most: int | None) -> list[str]:
    if most is None or len(lines) <= most:
        return lines
    kind = lines[0][:8] if lines[0][0] != " " else "  "
    return [*lines[: most - 1], f"{kind}and {len(lines) - most + 1} more"]


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"


def _counts(account: Account) -> str:
    launches = len(account.launches)
    return f"{launches} launches, {len(account.kernels)} kernels, {account.packs} packed weights"


def _arena(account: Account) -> str:
    slots = sum(not slot.late for slot in account.slots)
    return f"arena: {slots} slots for {account.values} values"


def _alike(account: Account, room: int) -> list[str]:
    """Return a line for similar launches. If there is no room for all, those with the most work stay."""
    same: dict[str, list[Launch]] = {}
    for launch in account.launches:
        same.setdefault(_launch(launch), []).append(launch)
    work = {text: sum(map(_weight, launches)) for text, launches in same.items()}
    kept = sorted(same, key=lambda text: -work[text])
    kept = kept if len(kept) <= room else kept[: room - 1]
    counts = {text: f"{len(launches)} x" if len(launches) > 1 else "" for text, launches in same.items()}
    lines = [_cut(f"{counts[text]:>6}  {text}") for text in same if text in kept]
    left = sum(len(same[text]) for text in same if text not in kept)
    return lines + ([f"        and {left} launches with less work"] if left else [])


def _weight(launch: Launch) -> float:
    """Estimate the work of a launch, at likely sizes."""
    total = 0
    for text in (launch.bytes, launch.operations):
        dim = Dim.parse(text)
        try:
            total += dim.evaluate(dict.fromkeys(dim.symbols, _TYPICAL))
        except ZeroDivisionError:
            continue
    return total


def _splits(account: Account) -> list[str]:
    """List each reason once: similar layers have the same."""
    texts = (
        f"{x.op} ({account.places[x.place] or 'unknown line'}) starts a kernel of its own: {x.reason}"
        for x in account.splits
    )
    return list(dict.fromkeys(texts))


def _flow(flow: Sequence[Any], account: Account, indent: str) -> list[str]:
    lines: list[str] = []
    for item in flow:
        if isinstance(item, int):
            lines.append(f"{indent}{item:4d}  {_launch(account.launches[item])}")
            continue
        text, parts = item
        lines.append(f"{indent}      {text}")
        for name, inside in parts:
            lines.append(f"{indent}      {name}:")
            lines += _flow(inside, account, indent + "  ")
    return lines


def _launch(launch: Launch) -> str:
    forms = []
    for form in launch.forms:
        conditions = list(map(str, form.when))
        if form.packed:
            conditions.append("weight packed")
        if form.declines:
            conditions.append("the vendor's library takes it")
        forms.append(form.kernel + (f" if {' and '.join(conditions)}" if conditions else ""))
    return f"{' else '.join(forms)} -> {', '.join(launch.writes)}  [{ops_text(launch.ops)}]"
