"""A record of the machine's properties for the translator, which targets fill in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hlo_disc.frozen import frozen

if TYPE_CHECKING:
    from hlo_disc.kernel_ops import TileAction
    from hlo_disc.mlir import MlirValue
    from hlo_disc.targets.math.vecexpr import X
    from hlo_disc.targets.translate.emit import FunctionBody, Pending
    from hlo_disc.targets.translate.types import Type


@frozen
class Threads:
    """The building blocks of kernels on a machine with teams of threads.

    convention: LLVM's calling convention of a kernel. attributes: f(threads, registers), function attributes of one
        for so many threads, of which each may have so many registers, 0 for any number.
    thread, block: the intrinsics for the numbers of the thread and of its block, of type i32.
    barrier: f(body) makes all threads of a block wait for each other.
    shuffled: f(body, x, mode, distance, width) is the i32 `x` of another one of `width` neighbours, see gpu.shuffle.
    parts: f(body, address, turned) are the words of four parts of a matrix in shared memory, see `kernel_ops.Parts`.
    mma: f(body, name, sums, x, y) are the sums with a product of small matrices.
    tf32: f(body, x) is the float `x` rounded to TF32, in the same 32 bits.
    """

    convention: str
    attributes: Callable[[int, int], str]
    thread: str
    block: str
    barrier: Callable[[FunctionBody], None]
    shuffled: Callable[[FunctionBody, str, str, int, int], str]
    parts: Callable[[FunctionBody, str, bool], list[str]] | None = None
    mma: Callable[[FunctionBody, str, MlirValue, MlirValue, MlirValue], str | Pending] | None = None
    tf32: Callable[[FunctionBody, str], str] | None = None


@frozen
class Machine:
    """A machine as the translator sees it.

    triple, layout: LLVM's target triple and data layout.
    attributes: function attributes that every definition gets.
    pair_dot: the LLVM intrinsic f(sums, x, y) that adds products of pairs of bf16 to a vector of f32, "" for none. Code
        generation aborts the process on an intrinsic that the machine lacks.
    tile: f(body, action, operands) does something with the machine's registers of small matrices.
    outlined: what functions are that kernels call because they are long: "alwaysinline" where a call costs a stack.
    metadata: lines of LLVM IR that every module has.
    threads: for kernels; None where a block is one thread's.
    launches: whether host code hands kernels to a driver, which has their code; otherwise they stand beside it.
    scale: f(x, n) makes x * 2^n of f32 by the machine's instruction, or gives None where that has no such lanes.
    exp2, reciprocal: LLVM's intrinsics for the machine's own 2^x and 1/x of an f32, "" for none: wrong by a few ulp,
        and 0 in the place of numbers below 2^-126.
    minimum: whether the smaller of two numbers, NaN if one is NaN, is one instruction.
    passes_nan_on: whether NaN that arithmetic makes has the bits of an operand that is NaN, or none but those that
        every quiet NaN has.
    to_bf16: f(body, x, type, otherwise) is a vector of f32 rounded to bf16 by the machine's instruction; None for lanes
        that it does not have. otherwise() is what rounds without it.
    to_bf16_always: whether that is the fastest also where what is rounded is widened again.
    shifts_by_words: whether code generation takes the lowest 32 bits of what i64 is shifted by, and nothing but what
        it makes of larger numbers in one instruction, although a select beside it says more (LLVM 22, NVPTX).
    mask: f(body, mask, type) is a mask of i1 in the form in which code generation gets loads and stores of a vector
        type right; None where it does with any.
    """

    triple: str
    layout: str
    attributes: str = "nounwind"
    pair_dot: str = ""
    tile: Callable[[FunctionBody, TileAction, Sequence[str]], None] | None = None
    outlined: str = "noinline"
    metadata: str = ""
    threads: Threads | None = None
    launches: bool = False
    scale: Callable[[X, X], X | None] | None = None
    exp2: str = ""
    reciprocal: str = ""
    minimum: bool = False
    passes_nan_on: bool = False
    to_bf16: Callable[[FunctionBody, str, Type, Callable[[], str]], str | None] | None = None
    to_bf16_always: bool = False
    shifts_by_words: bool = False
    mask: Callable[[FunctionBody, str, Type], str] | None = None
