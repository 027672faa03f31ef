"""The calling convention of compiled code, in Python; `ral/core/ral.h` is the same for the runtime.

A test compares the numbers and names here with that header.
"""

from __future__ import annotations

from typing import NamedTuple

# Alignment, in bytes, of every block of memory that the runtime hands out.
ALIGNMENT = 64
# The same of all that kernels of a GPU get, inputs and constants too.
GPU_ALIGNMENT = 16
# What `ral_allocate` is asked for, besides outputs by their number.
TEMPORARY, SCRATCH = -1, -2
# What `main` returns when a library call or an allocation failed; and what it and `plan` return for guard 0, one more
# for each guard behind it. 0: all went well.
FAILED = 1
PLAN_BROKEN, MAIN_BROKEN = 1, 2
# Bytes that no machine has: what is asked for where 64 bits do not hold how many there would be.
BEYOND_MEMORY = 1 << 62
ASKED_BITS = 62  # conditions with a bit of their own in the word `asked`
# The functions of the runtime that compiled code calls.
PARALLEL_FOR, LIBRARY_CALL, ALLOCATE = "ral_parallel_for", "ral_library_call", "ral_allocate"
LAUNCH_DEFERRED = "ral_launch_deferred"
# What the name of a kernel's function ends with, in the name of its `ral_deferred`.
SLOT = ".deferred"
# Of programs whose kernels a driver launches.
LAUNCH, READ, WRITE, PRODUCT = "ral_launch", "ral_read", "ral_write", "ral_product"

# The modules of kernels that a driver loads, see `ral_module`: host code names them, and the target defines them.
MODULES = "hlo_disc.modules"


class EnvLayout(NamedTuple):
    """The layout of `env`, the 64-bit words that `plan` fills for `main`. `of` makes it once for each program.

    arena, scratch: the words with the bytes of the arena, and of a worker's scratch.
    symbols, outputs: the first of the words with the symbols' values, and with the sizes of all outputs.
    wide: the word that says whether kernels need indices of 64 bits; -1 for a program that never needs them.
    asked: the word that says which asked conditions do not hold, bit k for number k and the last bit for all that have
        none of their own; -1 for a program without any. It is set when a guard is broken, too.
    words: their number. When a guard is broken, the first words hold the values of its message instead.
    """

    arena: int
    scratch: int
    symbols: int
    outputs: int
    wide: int
    asked: int
    words: int

    @staticmethod
    def of(symbols: int, sizes: int, message: int, asked: bool = False, wide: bool = False) -> EnvLayout:
        """Lay out this many symbols and sizes of outputs, with space for the values of a guard's longest message."""
        first_symbol = 2
        first_output = first_symbol + symbols
        end = max(first_output + sizes + wide, message)
        at = first_output + sizes if wide else -1
        return EnvLayout(0, 1, first_symbol, first_output, at, end if asked else -1, end + asked)
