"""The machine of NVIDIA's GPUs, as the translator sees it: NVPTX, which LLVM turns into PTX."""

from __future__ import annotations

from collections.abc import Callable

from hlo_disc.device import EXCHANGE_BYTES, Device, Held, Mma, Team, Tile
from hlo_disc.mlir import MlirValue
from hlo_disc.targets.machine import Machine, Threads
from hlo_disc.targets.translate.emit import FunctionBody, Pending
from hlo_disc.targets.translate.types import I16, Type

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
    """Use shfl.sync of the team: teams of one warp may be at different instructions."""
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
    """Use ldmatrix."""
    name = "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4" + ".trans" * turned + ".b16.p3"
    struct = body.call("{ i32, i32, i32, i32 }", name, [("ptr addrspace(3)", address)])
    return _fields(body, struct, "i32", 4)


def _mma(body: FunctionBody, name: str, sums: MlirValue, x: MlirValue, y: MlirValue) -> str | Pending:
    """Use mma.sync, which takes operands in words."""
    type_ = body.type(sums.type)
    element = type_.element
    assert element is not None
    words = [word for operand in (x, y) for word in _words(body, operand, name)]
    struct = "{ " + ", ".join([element.text] * type_.lanes) + " }"
    added = [(element.text, number) for number in body.elements(sums)]
    made = body.call(struct, f"llvm.nvvm.mma.{name}", [*words, *added])
    return body.vector(type_, _fields(body, made, element.text, type_.lanes))


def _words(body: FunctionBody, operand: MlirValue, name: str) -> list[tuple[str, str]]:
    words, element = body.elements(operand), body.type(operand.type).element
    assert element is not None
    if name.endswith(".f32.f32"):  # of f16
        return [("<2 x half>", body.op(f"bitcast i32 {word} to <2 x half>")) for word in words]
    return [(element.text, word) for word in words]


def _tf32(body: FunctionBody, x: str) -> str:
    """Use cvt.rna: ties away from zero; a number beyond the largest becomes infinite."""
    return body.op(f"bitcast i32 {body.call('i32', 'llvm.nvvm.f2tf32.rna', [('float', x)])} to float")


def _to_bf16(body: FunctionBody, x: str, type_: Type, otherwise: Callable[[], str]) -> str | None:
    """Use cvt.rn.bf16x2.f32: two at a time; all NaN become one."""
    if type_.lanes % 2:
        return None
    words = "poison"
    count = type_.lanes // 2
    for k in range(count):
        low, high = (body.op(f"extractelement {type_.text} {x}, i32 {2 * k + i}") for i in range(2))
        pair = body.call("<2 x bfloat>", "llvm.nvvm.ff2bf16x2.rn", [("float", high), ("float", low)])
        word = body.op(f"bitcast <2 x bfloat> {pair} to i32")
        words = body.op(f"insertelement <{count} x i32> {words}, i32 {word}, i32 {k}")
    return body.op(f"bitcast <{count} x i32> {words} to {I16.vector(type_.lanes).text}")


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
        tf32=_tf32,
    ),
    exp2="llvm.nvvm.ex2.approx.ftz.f",
    reciprocal="llvm.nvvm.rcp.approx.ftz.f",
    minimum=True,
    shifts_by_words=True,
    to_bf16=_to_bf16,
    to_bf16_always=True,
)

# "Matrix Fragments for mma" in the PTX ISA: those of 16 x 8 have their sums in the same places, and four registers of
# neighbours along K, of which each operand fills a half, then the other.


def _of_16_by_8(name: str, operands: str, sums: str, run: int, by_parts: bool = False, exact: bool = True) -> Mma:
    half = 4 * run
    return Mma(
        f"m16n8k{2 * half}.row.col.{name}", operands, sums, 16, 8, 2 * half,
        row_parts=((0, 0), (8, 0), (0, half), (8, half)), col_parts=((0, 0), (0, half)), sum_parts=((0, 0), (8, 0)),
        held=Held(8, run), sums_held=Held(8, 2), by_parts=by_parts, exact=exact,
    )  # fmt: skip


MATRIX = (
    _of_16_by_8("bf16", "bfloat16", "float32", 2, by_parts=True),
    _of_16_by_8("f32.f32", "float16", "float32", 2, by_parts=True),
    _of_16_by_8("tf32", "float32", "float32", 1, exact=False),
    _of_16_by_8("s8", "int8", "int32", 4),
    _of_16_by_8("u8", "uint8", "uint32", 4),
    _of_16_by_8("u8", "uint8", "int32", 4),
    Mma(
        "m8n8k4.row.col.f64", "float64", "float64", 8, 8, 4,
        row_parts=((0, 0),), col_parts=((0, 0),), sum_parts=((0, 0),), held=Held(8, 1), sums_held=Held(8, 2),
    ),
)  # fmt: skip

DEVICE = Device(
    simd_bytes=16,
    registers=64,
    unroll=1,
    grain=16,  # four registers
    # Measured on an H200, at sizes far beyond its caches, as `library_products`: from where on cuBLASLt is faster.
    slices=(((8, 1024), (1024, 64)), ((512, 1024), (1 << 16, 128))),
    parts=256,
    at_once=1 << 18,  # threads of a hundred multiprocessors or more
    teams=(Team(8, 1, 16, most=128), Team(32, 2, 4, most=1024), Team(256, 1)),
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
    library_products=1 << 24,
    host_memory=False,
)
