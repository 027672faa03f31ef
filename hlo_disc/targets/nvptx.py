"""The machine of NVIDIA's GPUs, as the translator sees it: NVPTX, which LLVM turns into PTX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_disc.device import EXCHANGE_BYTES, Device, Held, Mma, Team, Tile
from hlo_disc.targets.emit import FunctionBody
from hlo_disc.targets.machine import Machine, Threads
from hlo_disc.targets.threads import vector

if TYPE_CHECKING:
    from hlo_disc.targets.machine import Value

TRIPLE = "nvptx64-nvidia-cuda"
LAYOUT = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
WARP = 32

_LANE = "llvm.nvvm.read.ptx.sreg.laneid"


def _attributes(threads: int, registers: int) -> str:
    most = f' "nvvm.maxnreg"="{registers}"' if registers else ""
    return f'"nvvm.reqntid"="{threads}"{most}'


def _barrier(body: FunctionBody) -> None:
    body.call("void", "llvm.nvvm.barrier.cta.sync.aligned.all", [("i32", "0")])


def _shuffled(body: FunctionBody, x: str, mode: str, distance: int, width: int) -> str:
    """shfl.sync of the team: teams of one warp may be at different places."""
    members = "-1"
    if width < WARP:
        first = body.op(f"and i32 {body.call('i32', _LANE, [])}, {WARP - width}")
        members = body.op(f"shl i32 {(1 << width) - 1}, {first}")
    # Which lanes a segment has, and the last one that is read in it.
    clamp = (WARP - width) << 8 | (0 if mode == "up" else WARP - 1)
    passed = [("i32", members), ("i32", x), ("i32", str(distance)), ("i32", str(clamp))]
    return body.call("i32", f"llvm.nvvm.shfl.sync.{mode.replace('xor', 'bfly')}.i32", passed)


def _fields(body: FunctionBody, struct: str, element: str, count: int) -> list[str]:
    type_ = "{ " + ", ".join([element] * count) + " }"
    return [body.op(f"extractvalue {type_} {struct}, {k}") for k in range(count)]


def _parts(body: FunctionBody, address: str, turned: bool) -> list[str]:
    """ldmatrix."""
    name = "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4" + ".trans" * turned + ".b16.p3"
    struct = body.call("{ i32, i32, i32, i32 }", name, [("ptr addrspace(3)", address)])
    return _fields(body, struct, "i32", 4)


def _mma(body: FunctionBody, name: str, sums: Value, x: Value, y: Value) -> str:
    """mma.sync, which takes operands in words."""
    (type_, text), element = sums, sums[0].element
    assert element is not None
    operand = "<2 x half>" if name.endswith(".f32.f32") else "i32"  # of f16
    words = [_word(body, value, k, operand) for value in (x, y) for k in range(value[0].lanes)]
    added = [(element.text, body.op(f"extractelement {type_.text} {text}, i64 {k}")) for k in range(type_.lanes)]
    struct = "{ " + ", ".join([element.text] * type_.lanes) + " }"
    made = body.call(struct, f"llvm.nvvm.mma.{name}", [*words, *added])
    return vector(body, type_, _fields(body, made, element.text, type_.lanes))


def _word(body: FunctionBody, x: Value, k: int, type_: str) -> tuple[str, str]:
    word = body.op(f"extractelement {x[0].text} {x[1]}, i64 {k}")
    return type_, word if type_ == "i32" else body.op(f"bitcast i32 {word} to {type_}")


MACHINE = Machine(
    triple=TRIPLE,
    layout=LAYOUT,
    attributes="nounwind convergent",
    threads=Threads(
        convention="ptx_kernel",
        attributes=_attributes,
        thread="llvm.nvvm.read.ptx.sreg.tid.x",
        block="llvm.nvvm.read.ptx.sreg.ctaid.x",
        barrier=_barrier,
        shuffled=_shuffled,
        parts=_parts,
        mma=_mma,
    ),
    exp2="llvm.nvvm.ex2.approx.ftz.f",
    reciprocal="llvm.nvvm.rcp.approx.ftz.f",
    minimum=True,
)

# "Matrix Fragments for mma.m16n8k16 with floating point type" in the PTX ISA.
MATRIX = tuple(
    Mma(
        f"m16n8k16.row.col.{name}", operands, "float32", 16, 8, 16,
        row_parts=((0, 0), (8, 0), (0, 8), (8, 8)), col_parts=((0, 0), (0, 8)), sum_parts=((0, 0), (8, 0)),
        held=Held(8, 2), sums_held=Held(8, 2), by_parts=True,
    )
    for name, operands in (("bf16", "bfloat16"), ("f32.f32", "float16"))
)  # fmt: skip

DEVICE = Device(
    simd_bytes=16,
    registers=64,
    unroll=1,
    teams=(Team(8, 1, 16), Team(32, 2, 4), Team(256, 1)),
    tiles=(
        Tile(16, 32, 128, 256, parts=8, registers=112),
        Tile(16, 32, 64, 256, parts=8, registers=112),
        Tile(128, 128, 8, 256, least=1 << 21, registers=168),
        Tile(64, 64, 16, 256, registers=80),
    ),
    matrix=MATRIX,
    matrix_tiles=(
        Tile(16, 32, 256, 256, parts=8, registers=128),
        Tile(128, 128, 64, 256, least=1 << 21, registers=255),
        Tile(64, 64, 64, 128, registers=168),
    ),
    fast_limit=(99 << 10) - EXCHANGE_BYTES,  # of the GPUs from sm_80 on that have least (sm_86)
    atomics=True,
    narrow=1 << 30,  # the sum of two is an index still
    host_memory=False,
)
