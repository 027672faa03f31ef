"""Faults in a GPU's kernels, all of them in one compiled program: `simt_plant` says which of them is one.

Where kernels wait for each other, exchange values or touch memory, their LLVM IR gets a switch for each fault that may
stand there: so hundreds of faults cost one compilation.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field

import instrument

MISSING, DIVERGENT, MEMBERS, RACE, OUTSIDE = (
    "a barrier that is missing",
    "a barrier that not all threads come to",
    "an exchange with wrong members",
    "a race",
    "an access outside of memory",
)
KINDS = (MISSING, DIVERGENT, MEMBERS, RACE, OUTSIDE)
_DECLARATIONS = "declare i1 @simt_planted(i32, i32)\ndeclare void @simt_no_barrier(i32)"
_BARRIER = re.compile(r"  call void (@llvm\.nvvm\.barrier\S+)\(i32 0\)")
_EXCHANGE = re.compile(r"(  \S+ = call i32 @llvm\.nvvm\.shfl\.sync\.\w+\.i32\()i32 ([^,]+)(, .*)")
# What one thread does for all: a store of a scalar behind a condition.
_GUARD = re.compile(r"  br i1 (%\w+), (label %(then\w+), label %\w+)")
# An address that is outside: before all memory of a buffer by no more than an access, or far behind.
_FAR = 1 << 24


@dataclass
class Faults:
    """The faults that may be planted in a program. A fault's number is its place in the lists, from 1."""

    kinds: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    @property
    def numbers(self) -> range:
        return range(1, len(self.kinds) + 1)

    def switched(self, text: str) -> str:
        """Return LLVM IR of a GPU with switches for the faults."""
        assert not self.kinds
        lines: list[str] = []
        whole, block, guarded = list(instrument.accesses(text)), "", ""
        for k, (line, access) in enumerate(whole):
            place = f"{access.function}: {line}" if access else f"line {k}: {line}"
            if found := _BARRIER.fullmatch(line):
                lines += self._barrier(found[1], place)
            elif found := _EXCHANGE.fullmatch(line):
                lines += self._exchange(found, place)
            elif access and not access.each:
                lines += self._address(access, line, place, by_all=block != guarded)
            elif (found := _GUARD.fullmatch(line)) and _only_stores(whole[k + 1 :], found[3]):
                guarded = found[3]
                on, switch = self._switch(RACE, place)
                lines += [switch, f"  {on}.all = or i1 {found[1]}, {on}", f"  br i1 {on}.all, {found[2]}"]
            else:
                block = line.removesuffix(":") if line.endswith(":") else block
                lines.append(line)
        head = next(k for k, line in enumerate(lines) if line.startswith("declare"))
        return "\n".join([*lines[:head], _DECLARATIONS, *lines[head:], ""])

    def _switch(self, kind: str, place: str, every: int = 1) -> tuple[str, str]:
        """Return the name of a condition, and the line that computes it."""
        self.kinds.append(kind)
        self.places.append(place)
        number = len(self.kinds)
        return f"%fault{number}", f"  %fault{number} = call i1 @simt_planted(i32 {number}, i32 {every})"

    def _barrier(self, name: str, place: str) -> list[str]:
        missing, one = self._switch(MISSING, place)
        divergent, two = self._switch(DIVERGENT, place, every=2)
        return [
            one,
            two,
            f"  {missing}.or = or i1 {missing}, {divergent}",
            f"  {missing}.barrier = select i1 {missing}.or, ptr @simt_no_barrier, ptr {name}",
            f"  call void {missing}.barrier(i32 0) convergent nomerge nounwind",
        ]

    def _exchange(self, call: re.Match, place: str) -> list[str]:
        """Return an exchange that, with the fault, lacks the last thread of each eight."""
        on, line = self._switch(MEMBERS, place)
        return [
            line,
            f"  {on}.fewer = and i32 {call[2]}, {0x7F7F7F7F}",
            f"  {on}.members = select i1 {on}, i32 {on}.fewer, i32 {call[2]}",
            f"{call[1]}i32 {on}.members{call[3]}",
        ]

    def _address(self, access: instrument.Access, line: str, place: str, by_all: bool) -> list[str]:
        planted = [(OUTSIDE, -access.alignment), (OUTSIDE, _FAR)]
        if access.store and not access.atomic and by_all:
            planted.append((RACE, 0))  # all threads write to the first place
        name = f"%address{len(self.kinds)}"
        lines = [
            f"  {name}.at = ptrtoint ptr {access.at} to i64",
            f"  {name}.base = ptrtoint ptr {access.base} to i64",
            f"  {name}.right = sub i64 {name}.at, {name}.base",
        ]
        offset = f"{name}.right"
        for kind, wrong in planted:
            on, switch = self._switch(kind, place)
            lines += [switch, f"  {on}.offset = select i1 {on}, i64 {wrong}, i64 {offset}"]
            offset = f"{on}.offset"
        lines.append(f"  {name} = getelementptr i8, ptr {access.base}, i64 {offset}")
        before, _, behind = line.rpartition(f" {access.at},")
        return [*lines, f"{before} {name},{behind}"]


def _only_stores(lines: list[tuple[str, instrument.Access | None]], label: str) -> bool:
    """Return whether all that the block with this label does to memory is one store. The block must be the next one."""
    assert lines[0][0] == f"{label}:"
    block = itertools.takewhile(lambda line: line[0].startswith("  "), lines[1:])
    return [access.store for _, access in block if access] == [True]
