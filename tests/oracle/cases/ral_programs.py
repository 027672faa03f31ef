"""Hand-written programs for the runtime's tests: LLVM IR that follows the calling convention of ral.h."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from hlo_disc.abi import EnvLayout
from hlo_disc.compiled.program import (
    Attribute,
    BufferType,
    GuardRow,
    InputRow,
    LibraryCall,
    LinkedCall,
    OutputRow,
    PackRow,
)
from hlo_disc.dynamic_hlo.ops.families.library import FFT_CALL
from hlo_disc.ral import Executable, symbols
from hlo_disc.ral._ral import own_handlers
from hlo_disc.ral.entries import Handlers

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

# x + 1 on f32[n]: env = [0, scratch, n, n]; guard 0: n != 13.
ADD_ONE = """
declare void @ral_parallel_for(ptr, ptr, ptr, i64)

define i32 @plan(ptr %dims, ptr %env) {
  %n = load i64, ptr %dims
  %broken = icmp eq i64 %n, 13
  br i1 %broken, label %fail, label %fits
fail:
  store i64 %n, ptr %env
  %second = getelementptr i64, ptr %env, i64 1
  store i64 13, ptr %second
  ret i32 1
fits:
  store i64 ARENA, ptr %env
  %p1 = getelementptr i64, ptr %env, i64 1
  store i64 SCRATCH, ptr %p1
  %p2 = getelementptr i64, ptr %env, i64 2
  store i64 %n, ptr %p2
  %p3 = getelementptr i64, ptr %env, i64 3
  store i64 %n, ptr %p3
  ret i32 0
}

; args = {x, y}; a block is one element; the scratch carries the value, so that workers that share it would show.
define internal void @blocks(ptr %args, i64 %begin, i64 %end, ptr %fast) {
  %x = load ptr, ptr %args
  %yp = getelementptr ptr, ptr %args, i64 1
  %y = load ptr, ptr %yp
  br label %loop
loop:
  %i = phi i64 [%begin, %0], [%next, %loop]
  %xi = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %xi
  store volatile float %v, ptr %fast
  %w = load volatile float, ptr %fast
  %r = fadd float %w, 1.0
  %yi = getelementptr float, ptr %y, i64 %i
  store float %r, ptr %yi
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}

define i32 @main(ptr %call, ptr %env, ptr %arena, ptr %bufs) {
  %args = alloca [2 x ptr]
  %x = load ptr, ptr %bufs
  %bp = getelementptr ptr, ptr %bufs, i64 1
  %y = load ptr, ptr %bp
  store ptr %x, ptr %args
  %ap = getelementptr ptr, ptr %args, i64 1
  store ptr %y, ptr %ap
  %p2 = getelementptr i64, ptr %env, i64 2
  %n = load i64, ptr %p2
  REPEAT
  ret i32 0
}
"""
_LAUNCH = "call void @ral_parallel_for(ptr %call, ptr @blocks, ptr %args, i64 %n)\n"

# y = x + (packed w or, where it is null, 2 * w) on f32[4], f32[4] -> f32[4]; pack0 writes w.
PACKED = """
define i32 @plan(ptr %dims, ptr %env) {
  store i64 0, ptr %env
  %p1 = getelementptr i64, ptr %env, i64 1
  store i64 0, ptr %p1
  %p2 = getelementptr i64, ptr %env, i64 2
  store i64 4, ptr %p2
  ret i32 0
}
define i32 @pack0(ptr %call, ptr %env, ptr %arena, ptr %bufs) {
  %from = load ptr, ptr %bufs
  %bp = getelementptr ptr, ptr %bufs, i64 1
  %to = load ptr, ptr %bp
  %v = load <4 x float>, ptr %from, align 4
  store <4 x float> %v, ptr %to
  ret i32 0
}
define i32 @main(ptr %call, ptr %env, ptr %arena, ptr %bufs) {
  %x = load ptr, ptr %bufs
  %wp = getelementptr ptr, ptr %bufs, i64 1
  %w = load ptr, ptr %wp
  %pp = getelementptr ptr, ptr %bufs, i64 2
  %packed = load ptr, ptr %pp
  %yp = getelementptr ptr, ptr %bufs, i64 3
  %y = load ptr, ptr %yp
  %xv = load <4 x float>, ptr %x, align 4
  %wv = load <4 x float>, ptr %w, align 4
  %twice = fadd <4 x float> %wv, %wv
  %null = icmp eq ptr %packed, null
  br i1 %null, label %store, label %has
has:
  %pv = load <4 x float>, ptr %packed
  br label %store
store:
  %add = phi <4 x float> [%twice, %0], [%pv, %has]
  %r = fadd <4 x float> %xv, %add
  store <4 x float> %r, ptr %y, align 4
  ret i32 0
}
"""

# Copies an input of any type and shape: env = [0, 0, sizes of the output].
COPY = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define i32 @plan(ptr %dims, ptr %env) {
  store i64 0, ptr %env
  %p1 = getelementptr i64, ptr %env, i64 1
  store i64 0, ptr %p1
  %p2 = getelementptr i64, ptr %env, i64 2
  call void @llvm.memcpy.p0.p0.i64(ptr %p2, ptr %dims, i64 DIMS, i1 false)
  ret i32 0
}
define i32 @main(ptr %call, ptr %env, ptr %arena, ptr %bufs) {
  %x = load ptr, ptr %bufs
  %yp = getelementptr ptr, ptr %bufs, i64 1
  %y = load ptr, ptr %yp
  BYTES
  call void @llvm.memcpy.p0.p0.i64(ptr %y, ptr %x, i64 %bytesRANK, i1 false)
  ret i32 0
}
"""

# fft(x) on c64[n], by a library call: env = [0, 0, n].
FFT = """
declare i32 @ral_library_call(ptr, i32, ptr)
define i32 @plan(ptr %dims, ptr %env) {
  store i64 0, ptr %env
  %p1 = getelementptr i64, ptr %env, i64 1
  store i64 0, ptr %p1
  %n = load i64, ptr %dims
  %p2 = getelementptr i64, ptr %env, i64 2
  store i64 %n, ptr %p2
  ret i32 0
}
define i32 @main(ptr %call, ptr %env, ptr %arena, ptr %bufs) {
  %record = alloca [4 x i64]
  %x = load i64, ptr %bufs
  %yp = getelementptr ptr, ptr %bufs, i64 1
  %y = load i64, ptr %yp
  %p2 = getelementptr i64, ptr %env, i64 2
  %n = load i64, ptr %p2
  %r1 = getelementptr i64, ptr %record, i64 1
  %r2 = getelementptr i64, ptr %record, i64 2
  %r3 = getelementptr i64, ptr %record, i64 3
  store i64 %x, ptr %record
  store i64 %y, ptr %r1
  store i64 %n, ptr %r2
  store i64 %n, ptr %r3
  %status = call i32 @ral_library_call(ptr %call, i32 0, ptr %record)
  ret i32 %status
}
"""


class Machine:
    """Machine code in this process; it must outlive every executable that uses it."""

    def __init__(self, text: str) -> None:
        target = llvm.Target.from_default_triple().create_target_machine(jit=True)
        self._jit = llvm.create_lljit_compiler(target, use_jit_link=False)
        builder = llvm.JITLibraryBuilder().add_ir(text)
        for name, address in symbols().items():
            builder.import_symbol(name, address)
        for name in re.findall(r"^define (?:void|i32) @(\w+)\(", text, re.MULTILINE):
            builder.export_symbol(name)
        self._library = builder.link(self._jit, f"program{id(self)}")

    def address(self, name: str) -> int:
        return self._library[name]


def env(sizes: int, symbols: int = 0) -> EnvLayout:
    """Return the env of a program with so many sizes of outputs, whose messages show two values at most."""
    return EnvLayout.of(symbols, sizes, 2)


def make(machine: Machine, **signature: Any) -> Executable:
    """Make an executable of `machine`'s plan and main; `signature` must have inputs, outputs and env."""
    tables = "env", "inputs", "outputs", "constants", "packs", "forms", "guards", "asked", "unread"
    rows = SimpleNamespace(**{name: signature.pop(name, ()) for name in tables})
    defaults: dict[str, Any] = {"calls": [], "threads": 0, "packed_bytes": 1 << 20}
    return Executable(rows, machine.address, keep_alive=machine, **defaults | signature)  # type: ignore[arg-type]


def guard(message: str, values: int) -> GuardRow:
    """Return a guard whose message shows so many values."""
    return GuardRow("", "==", "", message, ("",) * values)


def add_one(*, arena: int = 0, scratch: int = 64, launches: int = 1, **signature: Any) -> Executable:
    """x + 1 on f32[n], one element a block; n == 13 breaks its guard."""
    text = ADD_ONE.replace("ARENA", str(arena)).replace("SCRATCH", str(scratch)).replace("REPEAT", _LAUNCH * launches)
    options: dict[str, Any] = {
        "env": env(1, symbols=1),
        "inputs": [InputRow("x", "float32", ("n",))],
        "outputs": [OutputRow("float32", ("n",))],
        "guards": [guard("size {0} of x must not be {1} {{braces}} {{0}} {2} {4294967296000000000000}", 2)],
    }
    return make(Machine(text), **{**options, **signature})


def add_packed(**signature: Any) -> Executable:
    """Make x + w on f32[4] with w packed; x + 2 w where no packed form is given, so that tests see which one ran."""
    machine = Machine(PACKED)
    options: dict[str, Any] = {
        "env": env(1),
        "inputs": [InputRow("x", "float32", ("4",)), InputRow("params['w']", "float32", ("4",))],
        "outputs": [OutputRow("float32", ("4",))],
        "packs": [PackRow("input", 1, 16, "pack0")],
    }
    return make(machine, **{**options, **signature})


def copy(dtype: str, rank: int) -> Executable:
    """One tensor of any dtype and shape, copied."""
    size = np.dtype(dtype).itemsize
    lines = [f"%bytes0 = add i64 {size}, 0"]
    for i in range(rank):
        lines.append(f"%p{i} = getelementptr i64, ptr %env, i64 {2 + i}")
        lines.append(f"%d{i} = load i64, ptr %p{i}")
        lines.append(f"%bytes{i + 1} = mul i64 %bytes{i}, %d{i}")
    text = COPY.replace("DIMS", str(8 * rank)).replace("BYTES", "\n  ".join(lines)).replace("RANK", str(rank))
    dims = tuple(f"d{i}" for i in range(rank))
    return make(Machine(text), env=env(rank), inputs=[InputRow("x", dtype, dims)], outputs=[OutputRow(dtype, dims)])


def fft(**options: Any) -> Executable:
    """The discrete Fourier transform of one c64[n]."""
    axes = Attribute("axes", "scalar", "int64", (1).to_bytes(8, "little").hex())
    types = (BufferType("complex64", 1),)
    call = LibraryCall(FFT_CALL, "fft", (axes, Attribute("transform", "string", text="FFT")), types, types)
    return make(
        Machine(FFT),
        env=env(1),
        inputs=[InputRow("x", "complex64", ("n",))],
        outputs=[OutputRow("complex64", ("n",))],
        calls=[LinkedCall(call, Handlers(execute=own_handlers()[FFT_CALL]))],
        **options,
    )
