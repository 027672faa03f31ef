"""Notes about kernels, read from their code: threads of a block, shared memory, registers, and blocks that fit.

It is read from what the driver loads, so that it holds of a saved program too. NVIDIA's registers are the driver's to
choose: PTX has at most a bound.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hlo_disc.frozen import frozen


@frozen
class Note:
    """threads: of a block. shared: bytes of shared memory, without those that a launch asks for. registers: of a
    thread, 0 where they are not known. most: a bound on them, 0 for none.
    """

    name: str
    threads: int
    shared: int
    registers: int = 0
    most: int = 0

    def __str__(self) -> str:
        text = f"{self.name}: {self.threads} threads, {self.shared} bytes of shared memory"
        if self.registers:
            return f"{text}, {self.registers} registers, occupancy at most {occupancy(self):.0%}"
        return f"{text}, at most {self.most} registers" if self.most else text


@frozen
class Roof:
    """The peak rates of a GPU: gigabytes a second from its memory, and 10^12 operations a second in f32 and, by
    instructions for matrices, in bf16 (its maker's data sheet).
    """

    gpu: str
    memory: float
    f32: float
    matrices: float

    def __str__(self) -> str:
        """Format as in S. Williams and others, "Roofline" (2009)."""
        f32, matrices = (rate * 1000 / self.memory for rate in (self.f32, self.matrices))
        return f"{self.gpu} waits for its memory below {f32:.0f} operations a byte, in matrices of bf16 {matrices:.0f}"


# Of a compute unit of gfx90a and gfx942 (LLVM's "User Guide for AMDGPU Backend"; the instruction set's manuals): SIMD
# units, waves that each holds, registers of a lane in each and how many are given at once, bytes of shared memory.
_UNITS, _WAVES, _REGISTERS, _AT_ONCE, _SHARED, _WAVE = 4, 8, 512, 8, 64 << 10, 64


def occupancy(note: Note) -> float:
    """Return the waves of the kernel that a compute unit of AMD's can hold, over the most that it can hold of any.

    A launch that asks for more shared memory may hold fewer.
    """
    waves = -(-note.threads // _WAVE)
    given = -(-note.registers // _AT_ONCE) * _AT_ONCE
    blocks = _UNITS * min(_WAVES, _REGISTERS // given) // waves
    if note.shared:
        blocks = min(blocks, _SHARED // note.shared)
    return blocks * waves / (_UNITS * _WAVES)


def of_ptx(code: bytes) -> list[Note]:
    """Return the kernels of PTX."""
    text = code.partition(b"\0")[0].decode()
    shared = {name: int(size) for name, size in re.findall(r"^\s*\.shared .*?(\w+)\[(\d+)\];", text, re.M)}
    notes = []
    for name, head, body in re.findall(r"^\.visible \.entry (\w+)\((.*?)^\{(.*?)^\}", text, re.S | re.M):
        used = sum(size for variable, size in shared.items() if re.search(rf"\b{variable}\b", body))
        words = dict(re.findall(r"^\.(reqntid|maxnreg) (\d+)", head, re.M))
        notes.append(Note(name, int(words["reqntid"]), used, most=int(words.get("maxnreg", 0))))
    return notes


def of_code_object(code: bytes) -> list[Note]:
    """Return the kernels of an AMD code object, from its metadata (a note of type 32, which is MessagePack)."""
    at = code.index(_NOTE) + len(_NOTE)
    (size,) = struct.unpack_from("<I", code, at - len(_NOTE) - 4)
    metadata, _ = _unpacked(code[at : at + size], 0)
    return [
        Note(k[".name"], k[".max_flat_workgroup_size"], k[".group_segment_fixed_size"], k[".vgpr_count"])
        for k in metadata["amdhsa.kernels"]
    ]


_NOTE = struct.pack("<I", 32) + b"AMDGPU\0\0"
# Of MessagePack what metadata have: the format of a size or a number that follows, by the byte before it.
_NUMBERS = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_SIZES = {0xD9: (">B", str), 0xDA: (">H", str), 0xDC: (">H", list), 0xDE: (">H", dict)}


def _unpacked(data: bytes, at: int) -> tuple[Any, int]:
    """Return the value that begins there, and where it ends."""
    byte, at = data[at], at + 1
    if byte < 0x80:
        return byte, at
    if byte >= 0xE0:
        return byte - 0x100, at
    if byte in (0xC2, 0xC3):
        return byte == 0xC3, at
    if byte in _NUMBERS:
        (number,) = struct.unpack_from(_NUMBERS[byte], data, at)
        return number, at + struct.calcsize(_NUMBERS[byte])
    if byte in _SIZES:
        form, kind = _SIZES[byte]
        (size,) = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
    else:
        kind = dict if byte < 0x90 else list if byte < 0xA0 else str
        size = byte & (0x0F if kind is not str else 0x1F)
    if kind is str:
        return data[at : at + size].decode(), at + size
    values = []
    for _ in range(size * (2 if kind is dict else 1)):
        value, at = _unpacked(data, at)
        values.append(value)
    return (dict(zip(values[::2], values[1::2], strict=True)) if kind is dict else values), at


def lines(notes: Mapping[str, Sequence[Note]], roofs: Mapping[str, Roof]) -> Iterator[str]:
    """Return a line for each kernel, by level of features."""
    for level, own in notes.items():
        yield f"kernels for {level} ({roofs[level]}):"
        yield from (f"  {note}" for note in own)
