"""The machine of AMD's GPUs for computing (CDNA, whose waves have 64 threads), as the translator sees it: AMDGPU."""

from __future__ import annotations

from hlo_disc.device import EXCHANGE_BYTES, Device, Held, Mma, Team, Tile
from hlo_disc.mlir import MlirValue
from hlo_disc.targets.machine import Machine, Threads
from hlo_disc.targets.translate.emit import FunctionBody

TRIPLE = "amdgcn-amd-amdhsa"
LAYOUT = (
    "e-m:e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128:128:48-"
    "p9:192:256:256:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-"
    "n32:64-S32-A5-G1-ni:7:8:9"
)
WAVE = 64

# What else a driver would hand to kernels: each costs registers, or bytes behind the arguments.
_UNUSED = (
    "completion-action", "default-queue", "dispatch-id", "dispatch-ptr", "heap-ptr", "hostcall-ptr", "implicitarg-ptr",
    "lds-kernel-id", "multigrid-sync-arg", "queue-ptr", "workgroup-id-y", "workgroup-id-z", "workitem-id-y",
    "workitem-id-z",
)  # fmt: skip

# Exchanges within 16 threads that need no memory ("data parallel primitives"): for each distance, in which direction
# threads read, and which quarters of the 16 do so; the others keep what they have.
_QUAD_1, _QUAD_2, _ROTATED_8, _BEHIND_4, _BEFORE_4 = 0xB1, 0x4E, 0x128, 0x104, 0x114
_DPP = {
    1: ((_QUAD_1, 0b1111),),
    2: ((_QUAD_2, 0b1111),),
    4: ((_BEHIND_4, 0b0101), (_BEFORE_4, 0b1010)),
    8: ((_ROTATED_8, 0b1111),),
}


def _attributes(threads: int, registers: int) -> str:
    """Return a kernel's attributes. None is for registers: LLVM gives a thread all that it needs."""
    words = [f'"amdgpu-flat-work-group-size"="{threads},{threads}" "uniform-work-group-size"="true"']
    return " ".join([*words, *(f'"amdgpu-no-{name}"' for name in _UNUSED)])


def _barrier(body: FunctionBody) -> None:
    body.do('fence syncscope("workgroup") release')
    body.call("void", "llvm.amdgcn.s.barrier", [])
    body.do('fence syncscope("workgroup") acquire')


def _shuffled(body: FunctionBody, x: str, mode: str, distance: int, width: int) -> str:
    """Shuffle between the threads of a wave; those of other teams may be elsewhere, and none reads their values."""
    if mode == "xor" and distance in _DPP:
        moved = "poison"
        for control, quarters in _DPP[distance]:
            passed = [("i32", moved), ("i32", x), ("i32", str(control)), ("i32", "15"), ("i32", str(quarters))]
            # All have somebody to read from; said, the move becomes one with the op behind it.
            moved = body.call("i32", "llvm.amdgcn.update.dpp.i32", [*passed, ("i1", "true")])
        return moved
    if mode == "xor" and distance == 16:  # among 32 threads: what a thread's number is xor'ed with, and all its bits
        return body.call("i32", "llvm.amdgcn.ds.swizzle", [("i32", x), ("i32", str(distance << 10 | 0x1F))])
    if mode == "idx" and width == WAVE:
        return body.call("i32", "llvm.amdgcn.readlane.i32", [("i32", x), ("i32", str(distance))])
    low = body.call("i32", "llvm.amdgcn.mbcnt.lo", [("i32", "-1"), ("i32", "0")])
    lane = body.call("i32", "llvm.amdgcn.mbcnt.hi", [("i32", "-1"), ("i32", low)])
    if mode == "idx":
        lane, mode = body.op(f"and i32 {lane}, {-width}"), "add"
    source = body.op(f"{ {'up': 'sub', 'down': 'add'}.get(mode, mode) } i32 {lane}, {distance}")
    # In bytes, of which the lowest 8 bits count.
    return body.call("i32", "llvm.amdgcn.ds.bpermute", [("i32", body.op(f"shl i32 {source}, 2")), ("i32", x)])


# What LLVM takes operands of a product of small matrices for, and whether they change places.
_PRODUCTS = {
    "f32.16x16x16bf16.1k": ("<4 x i16>", True),
    "f32.16x16x16f16": ("<4 x half>", True),
    "f32.16x16x4f32": ("float", True),
    "f64.16x16x4f64": ("double", False),
}


def _mma(body: FunctionBody, name: str, sums: MlirValue, x: MlirValue, y: MlirValue) -> str:
    """Use v_mfma. Of 32 bits a thread's sums are of one column; of a transposed product, neighbours in a row."""
    type_, turned = _PRODUCTS[name]
    operands = [(type_, body.op(f"bitcast {body.type(value.type).text} {body[value]} to {type_}")) for value in (x, y)]
    sum_type = body.type(sums.type).text
    passed = [*(operands[::-1] if turned else operands), (sum_type, body[sums]), *[("i32", "0")] * 3]
    return body.call(sum_type, f"llvm.amdgcn.mfma.{name}", passed)


MACHINE = Machine(
    triple=TRIPLE,
    layout=LAYOUT,
    attributes='nounwind convergent "amdgpu-ieee"="false"',
    outlined="alwaysinline",
    # Code objects of version 5, which drivers since ROCm 6 load.
    metadata='!llvm.module.flags = !{!0}\n!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}',
    threads=Threads(
        convention="amdgpu_kernel",
        attributes=_attributes,
        thread="llvm.amdgcn.workitem.id.x",
        block="llvm.amdgcn.workgroup.id.x",
        barrier=_barrier,
        shuffled=_shuffled,
        mma=_mma,
    ),
    exp2="llvm.amdgcn.exp2.f32",
)

# The layouts are those of AMD's Matrix Instruction Calculator, of CDNA2 and CDNA3. On CDNA2 (gfx90a) denormal operands
# of 16 bits count as zero.
MATRIX = (
    *(
        Mma(
            f"f32.16x16x{name}", operands, "float32", 16, 16, 4 * run,
            row_parts=((0, 0),), col_parts=((0, 0),), sum_parts=((0, 0),),
            held=Held(16, run, below=True), sums_held=Held(16, 4, below=True), warp=WAVE,
        )
        for name, operands, run in (("16bf16.1k", "bfloat16", 4), ("16f16", "float16", 4), ("4f32", "float32", 1))
    ),
    Mma(
        "f64.16x16x4f64", "float64", "float64", 16, 16, 4,
        row_parts=((0, 0),), col_parts=((0, 0),), sum_parts=((0, 0), (4, 0), (8, 0), (12, 0)),
        held=Held(16, 1, below=True), sums_held=Held(4, 1), warp=WAVE,
    ),
)  # fmt: skip

DEVICE = Device(
    simd_bytes=16,
    registers=64,
    unroll=1,
    grain=16,  # four registers
    slices=(((1 << 12, 128),), ((1 << 16, 64),)),
    parts=64,
    at_once=1 << 18,  # threads of a hundred multiprocessors or more
    teams=(Team(8, 1, 16, WAVE, most=128), Team(WAVE, 1, 4, WAVE, most=1024), Team(256, 1, 1, WAVE)),
    tiles=(
        Tile(16, 32, 128, 256, parts=8),
        Tile(16, 32, 64, 256, parts=8),
        Tile(128, 64, 16, 256, least=1 << 21),
        Tile(64, 64, 16, 256),
    ),
    matrix=MATRIX,
    matrix_tiles=(
        Tile(16, 32, 256, 256, parts=4),
        Tile(128, 64, 64, 256, least=1 << 21),
        Tile(64, 64, 64, 256),
    ),
    fast_limit=(64 << 10) - EXCHANGE_BYTES,
    atomics=True,
    narrow=1 << 30,  # the sum of two is an index still
    library_products=1 << 30,  # a guess
    host_memory=False,
)
