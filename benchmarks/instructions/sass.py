"""A reader of SASS, NVIDIA's machine code. Triton's tools make it from PTX and cubins; innermost loops are counted."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FLOAT = 4


@dataclass(frozen=True)
class Loop:
    """An innermost loop. instructions: those of an iteration on its usual path.

    elements: the f32 that a thread stores in an iteration, or, where it stores nothing, loads.
    """

    instructions: int
    elements: int


@dataclass(frozen=True)
class Code:
    """A kernel: the number of its instructions without the NOPs that fill up its end, and its innermost loops."""

    instructions: int
    loops: tuple[Loop, ...]

    def each(self, loops: int) -> float:
        """Return the instructions for an element in the first loops, which run one after the other."""
        return sum(loop.instructions / loop.elements for loop in self.loops[:loops])


def _tool(name: str) -> Path:
    package = importlib.util.find_spec("triton")
    assert package is not None and package.origin is not None, "needs Triton, whose tools these are"
    return Path(package.origin).parent / "backends" / "nvidia" / "bin" / name


def assembled(ptx: str, level: str) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        source, cubin = Path(directory, "k.ptx"), Path(directory, "k.cubin")
        source.write_text(ptx)
        subprocess.run([_tool("ptxas"), f"-arch={level}", source, "-o", cubin], check=True)
        return cubin.read_bytes()


def kernels(cubin: bytes) -> Mapping[str, Code]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(cubin)
        file.flush()
        run = subprocess.run([_tool("nvdisasm"), "-c", file.name], check=True, capture_output=True, text=True)
    return listed(run.stdout)


def listed(listing: str) -> Mapping[str, Code]:
    """Return the code of each kernel in a disassembler's listing."""
    sections = re.split(r"^\.text\.(\w+):$", listing, flags=re.M)
    return {name: _code(text) for name, text in zip(sections[1::2], sections[2::2], strict=True)}


def _code(text: str) -> Code:
    labels: dict[str, int] = {}
    lines: list[str] = []
    for label, line in re.findall(r"^(\.L_\w+):|^\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", text, re.M):
        if label:
            labels[label] = len(lines)
        else:
            lines.append(line)
    jumps = {k: labels[m[1]] for k, line in enumerate(lines) if (m := re.search(r"\bBRA\b.*\((\.L_\w+)\)", line))}
    back = [(first, last) for last, first in jumps.items() if first < last]
    inner = [a for a in back if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in back)]
    found = [_loop(lines, jumps, *ends) for ends in inner]
    return Code(sum("NOP" not in line for line in lines), tuple(loop for loop in found if loop.elements))


def _loop(lines: list[str], jumps: Mapping[int, int], first: int, last: int) -> Loop:
    """Count a loop along its usual path: code that a jump skips is for rare numbers. Masks are predicates, no jumps."""
    usual, k = [], first
    while k <= last:
        usual.append(lines[k])
        target = jumps.get(k, 0)
        k = target if k < target <= last else k + 1
    size = {op: sum(_width(line) for line in usual if re.search(rf"\b{op}\b", line)) for op in ("STG", "STS", "LDG")}
    return Loop(len(usual), next((n for n in size.values() if n), 0) // _FLOAT)


def _width(line: str) -> int:
    """Return the bytes of an access."""
    wide = re.search(r"\.(64|128)\b", line.split()[1 if line.startswith("@") else 0])
    return int(wide[1]) // 8 if wide else 4
