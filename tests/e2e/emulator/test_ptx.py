"""The emulator's reading of PTX, and the errors of LLVM's code for GPUs that it finds and LLVM's IR does not show."""

from __future__ import annotations

import ctypes
import dataclasses
import struct

import emulated
import jax
import numpy as np
import ptx
import pytest
import small_kernels
from jax import lax

import hlo_disc
from hlo_disc.targets import registry
from hlo_disc.targets.gpu import nvptx
from hlo_disc.targets.gpu.cuda import NVIDIA

NAN = float("nan")
F32, F64 = np.float32, np.float64


def bits(x: float, dtype: type = F32) -> int:
    return int(np.array(x, dtype).view(f"u{np.dtype(dtype).itemsize}"))


def executed(instruction: str, *operands: int) -> int:
    """Return the low 64 bits of %d after an instruction on %a to %c. Behind the opcode are their widths."""
    widths = dict(zip("abcd", instruction.partition(" ")[0].split("/")[1:], strict=False))
    opcode, _, text = instruction.partition(" ")
    opcode = opcode.split("/")[0]
    result = text.partition(",")[0].strip()
    loads = "".join(
        f"ld.global.b{widths[name]} %{name}, [%rd0+{8 * k + 8}];\n" for k, name in enumerate("abc"[: len(operands)])
    )
    registers = "".join(f".reg .b{width} %{name};\n" for name, width in widths.items())
    stored = {"%p": "selp.b32 %w, 1, 0, %p;\nst.global.b32 [%rd0], %w;"}.get(
        result, f"st.global.b{widths.get('d')} [%rd0], %d;"
    )
    code = f"""
.visible .entry kernel(.param .u64 .ptr .global .align 1 kernel_param_0)
{{
.reg .b64 %rd0;
.reg .b32 %w;
.reg .pred %p;
{registers}
ld.param.b64 %rd0, [kernel_param_0];
{loads}
{opcode} {text};
{stored}
ret;
}}"""
    with small_kernels.block_of_memory(64) as memory:
        given = b"".join(struct.pack("<Q", x & (1 << 64) - 1) for x in (0, *operands))
        ctypes.memmove(memory, given, len(given))
        small_kernels.launch_ptx(code, "kernel", struct.pack("<Q", memory), 1, 1, 0)
        emulated.check()
        return struct.unpack("<Q", ctypes.string_at(memory, 8))[0]


# Behind the opcode the widths of %a, %b, ... and of %d. As the PTX ISA says it.
ROWS: list[tuple[str, tuple[int, ...], int]] = [
    # Amounts are of 32 bits, all of which count.
    ("shl.b32/32/32/32/32 %d, %a, %b", (1, 31), 1 << 31),
    ("shl.b32/32/32/32/32 %d, %a, %b", (1, 32), 0),
    ("shl.b64/64/32/32/64 %d, %a, %b", (1, 63), 1 << 63),
    ("shl.b64/64/32/32/64 %d, %a, %b", (1, 1 << 31), 0),
    ("shr.u64/64/32/32/64 %d, %a, %b", (1 << 63, 63), 1),
    ("shr.u64/64/32/32/64 %d, %a, %b", (1 << 63, 64), 0),
    ("shr.s64/64/32/32/64 %d, %a, %b", (-2, 1), (1 << 64) - 1),
    ("shr.s32/32/32/32/32 %d, %a, %b", (1 << 31, 99), (1 << 32) - 1),
    ("shf.l.wrap.b32/32/32/32/32 %d, %a, %b, %c", (0x80000000, 1, 33), 3),
    ("shf.r.clamp.b32/32/32/32/32 %d, %a, %b, %c", (1, 7, 40), 7),
    ("bfe.u32/32/32/32/32 %d, %a, 4, 8", (0x12345678,), 0x67),
    ("bfe.s32/32/32/32/32 %d, %a, 4, 4", (0xF0,), (1 << 32) - 1),
    ("bfe.s32/32/32/32/32 %d, %a, 4, 0", (0xF0,), 0),
    ("bfe.s32/32/32/32/32 %d, %a, 28, 8", (0x80000000,), 0xFFFFFFF8),
    ("bfe.u64/64/32/32/64 %d, %a, 60, 255", (0xA << 60,), 0xA),
    ("bfi.b32/32/32/32/32 %d, %a, %b, 8, 4", (0x12F, 0xFFFF0000), 0xFFFF0F00),
    ("bfi.b32/32/32/32/32 %d, %a, %b, 28, 8", (0xAB, 0), 0xB0000000),
    ("prmt.b32/32/32/32/32 %d, %a, %b, 0x7610", (0x33221100, 0x77665544), 0x77661100),
    ("prmt.b32/32/32/32/32 %d, %a, %b, 0x321F", (0x33221100, 0x80665544), 0x332211FF),
    ("lop3.b32/32/32/32/32 %d, %a, %b, %c, 0x96", (0b1100, 0b1010, 0b0110), 0b0000),
    ("lop3.b32/32/32/32/32 %d, %a, %b, %c, 0xE8", (0b1100, 0b1010, 0b0110), 0b1110),
    ("popc.b64/64/32/32/32 %d, %a", (0xFF << 40,), 8),
    ("clz.b32/32/32/32/32 %d, %a", (0,), 32),
    ("brev.b32/32/32/32/32 %d, %a", (1,), 1 << 31),
    ("mul.hi.u32/32/32/32/32 %d, %a, %b", (1 << 31, 6), 3),
    ("mul.hi.s32/32/32/32/32 %d, %a, %b", (-1, 6), (1 << 32) - 1),
    ("mul.wide.s32/32/32/32/64 %d, %a, %b", (-2, 3), (1 << 64) - 6),
    ("mad.lo.s32/32/32/32/32 %d, %a, %b, %c", (-2, 3, 10), 4),
    ("div.s32/32/32/32/32 %d, %a, %b", (-7, 2), (1 << 32) - 3),
    ("rem.s64/64/64/64/64 %d, %a, %b", (-(1 << 63), -1), 0),
    ("min.s32/32/32/32/32 %d, %a, %b", (-1, 1), (1 << 32) - 1),
    ("max.u32/32/32/32/32 %d, %a, %b", (-1, 1), (1 << 32) - 1),
    # Numbers that are none.
    ("min.f32/32/32/32/32 %d, %a, %b", (bits(NAN), bits(2)), bits(2)),
    ("max.f32/32/32/32/32 %d, %a, %b", (bits(-0.0), bits(0)), bits(0)),
    ("setp.lt.f32/32/32/32/32 %p, %a, %b", (bits(NAN), bits(2)), 0),
    ("setp.ltu.f32/32/32/32/32 %p, %a, %b", (bits(NAN), bits(2)), 1),
    ("setp.ne.f32/32/32/32/32 %p, %a, %b", (bits(NAN), bits(2)), 0),
    ("setp.neu.f32/32/32/32/32 %p, %a, %b", (bits(NAN), bits(2)), 1),
    ("setp.num.f64/64/64/64/64 %p, %a, %b", (bits(NAN, F64), bits(2, F64)), 0),
    ("setp.lt.s32/32/32/32/32 %p, %a, %b", (-1, 1), 1),
    ("setp.lo.u32/32/32/32/32 %p, %a, %b", (-1, 1), 0),
    ("cvt.rzi.s32.f32/32/32/32/32 %d, %a", (bits(NAN),), 0),
    ("cvt.rzi.s64.f32/32/32/32/64 %d, %a", (bits(NAN),), 1 << 63),
    ("cvt.rzi.s32.f32/32/32/32/32 %d, %a", (bits(3e9),), (1 << 31) - 1),
    ("cvt.rzi.u32.f32/32/32/32/32 %d, %a", (bits(-1.5),), 0),
    ("cvt.rni.s32.f32/32/32/32/32 %d, %a", (bits(2.5),), 2),
    ("cvt.rmi.f64.f64/64/64/64/64 %d, %a", (bits(-0.5, F64),), bits(-1, F64)),
    ("cvt.s64.s32/32/32/32/64 %d, %a", (-5,), (1 << 64) - 5),
    ("cvt.u64.u32/32/32/32/64 %d, %a", (-5,), (1 << 32) - 5),
    ("cvt.rn.f32.f64/64/64/64/32 %d, %a", (bits(1 + 2**-24, F64),), bits(1)),
    ("cvt.rn.bf16x2.f32/32/32/32/32 %d, %a, %b", (bits(1), bits(-2)), 0x3F80C000),
    ("copysign.f32/32/32/32/32 %d, %a, %b", (bits(-1), bits(3)), bits(-3)),
    ("abs.f16x2/32/32/32/32 %d, %a", (0xBC003C00,), 0x3C003C00),
    ("add.rn.ftz.f32/32/32/32/32 %d, %a, %b", (1, 1), 0),
    ("fma.rn.f32/32/32/32/32 %d, %a, %b, %c", (bits(1 + 2**-12),) * 2 + (bits(-1),), bits(2**-11 + 2**-24)),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0].split('/')[0]} {row[1]}")
def test_an_instruction(row):
    instruction, operands, wanted = row
    assert executed(instruction, *operands) == wanted


def test_what_is_not_known_is_refused():
    for instruction in ("add.sat.s32/32/32/32/32 %d, %a, %b", "vadd.s32/32/32/32/32 %d, %a, %b"):
        with pytest.raises(ptx.Unknown, match=instruction.split("/")[0]):
            executed(instruction, 1, 2)


SHIFTS = (lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic)


def shifted(shift, target):
    """Shift by amounts whose low word is another amount; return our results and JAX's."""
    x, n = np.array([5, 5, 5, 5, -5]), np.array([1, 2**32 + 1, 64, 2**40, 2**33])
    with jax.enable_x64(True):
        return hlo_disc.compile(shift, "i64[n]", "i64[n]", target=target)(x, n), np.asarray(shift(x, n))


@pytest.mark.parametrize("shift", SHIFTS)
def test_shifts_of_i64(shift, emulated_targets):
    np.testing.assert_array_equal(*shifted(shift, "emulated-ptx"))


def test_llvm_ignores_the_upper_word_of_amounts(emulated_targets):
    """LLVM's PTX ignores the upper word of an amount, LLVM's IR does not. So the compiler limits amounts before."""
    machine = dataclasses.replace(nvptx.MACHINE, shifts_by_words=False)
    vendor = dataclasses.replace(NVIDIA, machine=machine)
    for name, generator in (("ir", emulated.EmulatedGenerator), ("ptx", emulated.PtxGenerator)):
        registry.register(f"planted-{name}", lambda generator=generator: emulated.Emulated(vendor, 0, generator))
    np.testing.assert_array_equal(*shifted(lax.shift_left, "planted-ir"))
    ours, right = shifted(lax.shift_left, "planted-ptx")
    assert (ours != right).any()
