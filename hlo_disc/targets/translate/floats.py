"""f16, bf16 and the mini floats: computed in f32, and rounded without the C library.

Left to itself, LLVM turns arithmetic on these types and some conversions into calls of compiler-rt functions that a
process need not have. Each function takes `op`, which appends an instruction and returns its result's name.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo_disc.kernel_ops import Known
from hlo_disc.targets.translate import minifloats
from hlo_disc.targets.translate.types import BF16, F16, F32, F64, I32, I64, Type, int_constant, splat

Append = Callable[[str], str]


def is_small(type_: Type) -> bool:
    """Whether a scalar or vector type is of floats that are computed in f32."""
    return type_.is_float and type_.size <= 2


def like(type_: Type, scalar: Type) -> Type:
    """Return `scalar` with as many lanes as `type_`."""
    return scalar.vector(type_.lanes) if type_.lanes else scalar


def widen(op: Append, value: str, type_: Type) -> str:
    """Widen a small float to f32, exactly."""
    if type_.size == 1:
        return minifloats.widen(op, value, type_)
    single = like(type_, F32).text
    if (type_.element or type_) is F16:
        return op(f"fpext {type_.text} {value} to {single}")
    whole = like(type_, I32)
    wide = op(f"zext {type_.text} {value} to {whole.text}")
    high = op(f"shl {whole.text} {wide}, {splat(whole, '16')}")
    return op(f"bitcast {whole.text} {high} to {single}")


def narrow(op: Append, value: str, source: Type, target: Type, known: Known = Known.NOTHING) -> str:
    """Round a float to a narrower type, ties to even.

    known: of an f32. A machine's own instruction for bf16 is `Machine.to_bf16`.
    """
    small = target.element or target
    if small is F32:
        return op(f"fptrunc {source.text} {value} to {target.text}")
    if (source.element or source) is F64:
        value, source = _to_odd_f32(op, value, source), like(source, F32)
    if small is F16:
        return op(f"fptrunc {source.text} {value} to {target.text}")
    return _to_bf16(op, value, source, target, known) if small is BF16 else minifloats.narrow(op, value, target)


def _to_bf16(op: Append, value: str, source: Type, target: Type, known: Known) -> str:
    whole = like(source, I32)
    t = whole.text
    bits = op(f"bitcast {source.text} {value} to {t}")
    kept = op(f"lshr {t} {bits}, {splat(whole, '16')}")
    if known is not Known.EXACT:
        odd = op(f"and {t} {kept}, {splat(whole, '1')}")
        nudge = op(f"add {t} {odd}, {splat(whole, int_constant(0x7FFF, I32))}")
        rounded = op(f"add {t} {bits}, {nudge}")
        if known is not Known.CLEAN:  # a carry out of the low bits would make a number of some NaN
            quiet = op(f"or {t} {bits}, {splat(whole, int_constant(0x400000, I32))}")
            is_nan = op(f"fcmp uno {source.text} {value}, {value}")
            mask = "i1" if not source.lanes else f"<{source.lanes} x i1>"
            rounded = op(f"select {mask} {is_nan}, {t} {quiet}, {t} {rounded}")
        kept = op(f"lshr {t} {rounded}, {splat(whole, '16')}")
    return op(f"trunc {t} {kept} to {target.text}")


def _to_odd_f32(op: Append, value: str, source: Type) -> str:
    """Convert f64 to f32, rounded to odd, so that one more rounding gives the result of a single rounding."""
    single, whole, mask = like(source, F32), like(source, I32), "i1" if not source.lanes else f"<{source.lanes} x i1>"
    t = whole.text
    nearest = op(f"fptrunc {source.text} {value} to {single.text}")
    back = op(f"fpext {single.text} {nearest} to {source.text}")
    long = like(source, I64).text
    size, back_size = (op(f"bitcast {source.text} {v} to {long}") for v in (value, back))
    # without their signs, floats are ordered as integers
    one = splat(like(source, I64), "1")
    size, back_size = (op(f"shl {long} {v}, {one}") for v in (size, back_size))
    beyond = op(f"icmp ugt {long} {back_size}, {size}")
    inexact = op(f"fcmp one {source.text} {back}, {value}")
    bits = op(f"bitcast {single.text} {nearest} to {t}")
    step = op(f"sext {mask} {beyond} to {t}")
    towards_zero = op(f"add {t} {bits}, {step}")
    odd = op(f"zext {mask} {inexact} to {t}")
    changed = op(f"or {t} {towards_zero}, {odd}")
    kept = op(f"select {mask} {inexact}, {t} {changed}, {t} {bits}")
    return op(f"bitcast {t} {kept} to {single.text}")
