"""Instructions of PTX that move values, touch memory, or that threads do together, as LLVM IR: see `ptx_ops.py`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ptx_function import WIDTHS, number
from ptx_ops import FLOATS, Op, Parts, read, written

if TYPE_CHECKING:
    from ptx_function import Function

SPACES = ("param", "global", "shared", "local", "const")
_CONVERGENT = "convergent nomerge nounwind"

CALLED = {
    "llvm_nvvm_read_ptx_sreg_tid_x": "i32 ()", "llvm_nvvm_read_ptx_sreg_ctaid_x": "i32 ()",
    "llvm_nvvm_read_ptx_sreg_laneid": "i32 ()", "llvm_nvvm_barrier_cta_sync_aligned_all": "void (i32)",
    "llvm_nvvm_f2tf32_rna": "i32 (float)", "llvm_nvvm_ff2bf16x2_rn": "ptr (float, float)",
    "llvm_nvvm_ex2_approx_ftz_f": "float (float)", "llvm_nvvm_rcp_approx_ftz_f": "float (float)",
    "llvm_nvvm_ldmatrix_sync_aligned_m8n8_x4_b16_p3": "ptr (ptr)",
    "llvm_nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16_p3": "ptr (ptr)",
    **{f"llvm_nvvm_shfl_sync_{mode}_i32": "i32 (i32, i32, i32, i32)" for mode in ("bfly", "up", "down", "idx")},
    "llvm_nvvm_mma_m8n8k4_row_col_f64": "ptr (double, double, double, double)",
}  # fmt: skip
# mma.sync by its shape and the type of its operands: the emulator's function, and the type of the sums.
_MMA = {
    ("m16n8k16", "bf16"): ("m16n8k16_row_col_bf16", "float"),
    ("m16n8k16", "f16"): ("m16n8k16_row_col_f32_f32", "float"),
    ("m16n8k8", "tf32"): ("m16n8k8_row_col_tf32", "float"),
    ("m16n8k32", "s8"): ("m16n8k32_row_col_s8", "i32"),
    ("m16n8k32", "u8"): ("m16n8k32_row_col_u8", "i32"),
}
CALLED |= {f"llvm_nvvm_mma_{name}": f"ptr ({', '.join(['i32'] * 6 + [sums] * 4)})" for name, sums in _MMA.values()}


def declared(name: str) -> str:
    """Return the declaration of a function of the emulator's."""
    result, _, arguments = CALLED[name].partition(" ")
    return f"declare {result} @{name}{arguments} {_CONVERGENT}"


def _mov(f: Function, parts: Parts, operands: Parts) -> None:
    n = WIDTHS[parts[-1]]
    into, of = operands[0], operands[1]
    if of.startswith("{"):
        pieces = _pieces(of)
        width, made = n // len(pieces), "0"
        for k, piece in enumerate(pieces):
            part = f.new(f"zext i{width} {f.get(piece, width)} to i{n}")
            made = f.new(f"or i{n} {made}, {f.new(f'shl i{n} {part}, {k * width}')}")
        return f.set(into, made, n)
    value = f.get(of, n)
    if not into.startswith("{"):
        return f.set(into, value, n)
    pieces = _pieces(into)
    width = n // len(pieces)
    for k, piece in enumerate(pieces):
        f.set(piece, f.new(f"trunc i{n} {f.new(f'lshr i{n} {value}, {k * width}')} to i{width}"), width)


def _pieces(operand: str) -> list[str]:
    return [x.strip() for x in operand.strip("{}").split(",")] if operand.startswith("{") else [operand]


def _access(f: Function, at: str, space: str, n: int, lanes: int, kind: int) -> None:
    """Write the emulator's check of an access: a thread's own memory for alignment, other memory for everything."""
    if space in ("param", "const"):
        return
    text = re.sub(r'[\\"]', "", f"{f.name}: {f.statement}".replace("\n", " "))
    name = f'@"simt.{f.name}.{len(f.sites)}"'
    kept = f"[{len(text) + 1} x i8]"
    f.sites.append(
        f'{name} = private global {{ ptr, ptr, i64, {kept} }} {{ ptr null, ptr null, i64 0, {kept} c"{text}\\00" }}'
    )
    size = n // 8
    mask = str((1 << lanes) - 1)
    if space == "local":
        mask = "0"
    for start, own in f.stack if not space else ():
        inside = f.new(f"ptrtoint ptr {at} to i64")
        inside = f.new(f"sub i64 {inside}, {f.new(f'ptrtoint ptr {start} to i64')}")
        mask = f.new(f"select i1 {f.new(f'icmp ule i64 {inside}, {own - size * lanes}')}, i64 0, i64 {mask}")
    given = (
        f"ptr {at}",
        f"ptr {at}",
        f"i64 {mask}",
        f"i64 {size}",
        f"i64 {size * lanes}",
        f"i32 {kind}",
        f"ptr {name}",
    )
    f.do(f"call void @simt_access({', '.join(given)})")


def _space(parts: Parts) -> str:
    return next((p for p in parts if p in SPACES), "")


def _ld(f: Function, parts: Parts, operands: Parts) -> None:
    names, type_, space = _pieces(operands[0]), parts[-1], _space(parts)
    n, at = WIDTHS[type_], f.address(operands[1], space)
    _access(f, at, space, n, len(names), 0)
    values = []
    for k in range(len(names)):
        place = f.new(f"getelementptr i{n}, ptr {at}, i64 {k}") if k else at
        values.append(f.new(f"load i{n}, ptr {place}, align {n // 8}"))
    for name, value in zip(names, values, strict=True):
        f.set(name, value, n, type_[0] == "s")


def _st(f: Function, parts: Parts, operands: Parts) -> None:
    values, space = _pieces(operands[1]), _space(parts)
    n, at = WIDTHS[parts[-1]], f.address(operands[0], space)
    _access(f, at, space, n, len(values), f.store)
    for k, value in enumerate(values):
        place = f.new(f"getelementptr i{n}, ptr {at}, i64 {k}") if k else at
        f.do(f"store i{n} {f.get(value, n)}, ptr {place}, align {n // 8}")


_UPDATES = {"add": "add", "and": "and", "or": "or", "xor": "xor", "exch": "xchg", "min": "min", "max": "max"}


def _atom(f: Function, parts: Parts, operands: Parts) -> None:
    how = next(p for p in parts if p in (*_UPDATES, "cas"))
    type_, space = parts[-1], _space(parts)
    n, at = WIDTHS[type_], f.address(operands[1], space)
    _access(f, at, space, n, 1, 2)
    if how == "cas":
        old, new = (f.get(x, n) for x in operands[2:])
        pair = f.new(f"cmpxchg ptr {at}, i{n} {old}, i{n} {new} monotonic monotonic")
        return f.set(operands[0], f.new(f"extractvalue {{ i{n}, i1 }} {pair}, 0"), n)
    if type_ in FLOATS:
        assert how == "add", parts
        t = FLOATS[type_]
        made = f.new(f"atomicrmw fadd ptr {at}, {t} {read(f, operands[2], type_)} monotonic")
        return written(f, operands[0], made, type_)
    name = _UPDATES[how]
    if name in ("min", "max") and type_[0] == "u":
        name = f"u{name}"
    f.set(operands[0], f.new(f"atomicrmw {name} ptr {at}, i{n} {f.get(operands[2], n)} monotonic"), n)


def _red(f: Function, parts: Parts, operands: Parts) -> None:
    _atom(f, parts, ["_", *operands])


def _same(f: Function, parts: Parts, operands: Parts) -> None:
    """Copy an address: addresses of all spaces are the CPU's."""
    n = WIDTHS[parts[-1]]
    f.set(operands[0], f.get(operands[1], n), n)


def _nothing(f: Function, parts: Parts, operands: Parts) -> None:
    """Write nothing: memory is never late here."""


def _copied(f: Function, parts: Parts, operands: Parts) -> None:
    """Write cp.async, as early as it may be done. Bytes behind those that are read are zero."""
    if "shared" not in parts:
        return
    size = number(operands[2], 32)
    read = f.get(operands[3], 32) if len(operands) > 3 else str(size)
    into, of = f.address(operands[0], "shared"), f.address(operands[1], "global")
    _access(f, into, "shared", 8 * size, 1, f.store)
    for k in range(size):
        inside = f.new(f"icmp ult i32 {k}, {read}")
        start, then = f.label(), f.label()
        at = f.new(f"getelementptr i8, ptr {into}, i64 {k}")
        f.do(f"store i8 0, ptr {at}")
        f.do(f"br i1 {inside}, label %{start}, label %{then}")
        f.begin(start)
        byte = f.new(f"load i8, ptr {f.new(f'getelementptr i8, ptr {of}, i64 {k}')}")
        f.do(f"store i8 {byte}, ptr {at}")
        f.do(f"br label %{then}")
        f.begin(then)


# ---------------------------------------------------------------------------------------- what threads do together


def _bar(f: Function, parts: Parts, operands: Parts) -> None:
    """Write a barrier of a block. A warp's barrier is one where the block has no other warp."""
    if "warp" in parts and f.threads != 32:
        raise AssertionError(f"{f.statement} of {f.threads} threads")
    f.do(f"call void @llvm_nvvm_barrier_cta_sync_aligned_all(i32 0) {_CONVERGENT}")


def _shfl(f: Function, parts: Parts, operands: Parts) -> None:
    word, by, clamp, members = (f.get(x, 32) for x in operands[1:])
    name, _, inside = operands[0].partition("|")
    assert not inside, operands
    function = f"llvm_nvvm_shfl_sync_{parts[1]}_i32"
    made = f.new(f"call i32 @{function}(i32 {members}, i32 {word}, i32 {by}, i32 {clamp}) {_CONVERGENT}")
    f.set(name, made, 32)


def _mma(f: Function, parts: Parts, operands: Parts) -> None:
    """Write a product of matrices.

    Sums of integers wrap here, where `satfinite` ends at the largest: no kernel of the tests comes so far. Our own
    kernels do not have `satfinite`.
    """
    d, a, b, c = map(_pieces, operands)
    shape, of = parts[2], parts[-2]
    if shape == "m8n8k4":
        numbers = ", ".join(f"double {read(f, x, 'f64')}" for x in (*a, *b, *c))
        made = f.new(f"call ptr @llvm_nvvm_mma_m8n8k4_row_col_f64({numbers}) {_CONVERGENT}")
        width = 64
    else:
        name, sums = _MMA[shape, of]
        words = ", ".join(f"i32 {f.get(x, 32)}" for x in (*a, *b))
        added = [f.get(x, 32) if sums == "i32" else read(f, x, "f32") for x in c]
        numbers = ", ".join(f"{sums} {x}" for x in added)
        made = f.new(f"call ptr @llvm_nvvm_mma_{name}({words}, {numbers}) {_CONVERGENT}")
        width = 32
    _results(f, made, d, width)


def _results(f: Function, made: str, names: Parts, width: int) -> None:
    for k, name in enumerate(names):
        place = f.new(f"getelementptr i{width}, ptr {made}, i64 {k}")
        f.set(name, f.new(f"load i{width}, ptr {place}, align 4"), width)


def _ldmatrix(f: Function, parts: Parts, operands: Parts) -> None:
    assert "x4" in parts, parts
    at = f.address(operands[1], "shared")
    _access(f, at, "shared", 128, 1, 0)
    turned = "trans_" if "trans" in parts else ""
    made = f.new(f"call ptr @llvm_nvvm_ldmatrix_sync_aligned_m8n8_x4_{turned}b16_p3(ptr {at}) {_CONVERGENT}")
    _results(f, made, _pieces(operands[0]), 32)


OPS: dict[str, Op] = {
    "atom": _atom,
    "bar": _bar,
    "barrier": _bar,
    "cp": _copied,
    "cvta": _same,
    "fence": _nothing,
    "ld": _ld,
    "ldmatrix": _ldmatrix,
    "membar": _nothing,
    "mma": _mma,
    "mov": _mov,
    "red": _red,
    "shfl": _shfl,
    "st": _st,
}
