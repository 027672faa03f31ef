"""The instructions of PTX as LLVM IR: "Instruction Set" in NVIDIA's "Parallel Thread Execution ISA".

Each is a function of what is being written, of the parts of the opcode behind its name, and of the operands as they are
spelled. Values are integers, which become floating point where an instruction says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ptx_function import WIDTHS, number

if TYPE_CHECKING:
    from ptx_function import Function

Parts = Sequence[str]
Op = Callable[["Function", Parts, Parts], None]

FLOATS = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}

# Functions of LLVM's that are called.
INTRINSICS = [
    f"declare {t} @llvm.{name}.{suffix}({', '.join([t] * count)})"
    for name, count in (("fma", 3), ("sqrt", 1), ("minimum", 2), ("maximum", 2), ("rint", 1), ("floor", 1), ("ceil", 1),
                        ("trunc", 1), ("exp2", 1), ("log2", 1), ("sin", 1), ("cos", 1))
    for t, suffix in (("float", "f32"), ("double", "f64"))
]  # fmt: skip
INTRINSICS += [
    f"declare i{n} @llvm.{name}.i{n}({', '.join([f'i{n}'] * count + ['i1'] * flag)})"
    for name, count, flag in (("ctlz", 1, 1), ("ctpop", 1, 0), ("bitreverse", 1, 0), ("smin", 2, 0), ("smax", 2, 0),
                              ("umin", 2, 0), ("umax", 2, 0))
    for n in (16, 32, 64)
]  # fmt: skip
INTRINSICS += [
    f"declare i{n} @llvm.fpto{sign}i.sat.i{n}.{suffix}({t})"
    for n in (8, 16, 32, 64)
    for sign in "su"
    for t, suffix in (("float", "f32"), ("double", "f64"))
]


def read(f: Function, operand: str, type_: str, flush: bool = False) -> str:
    """Return an operand of a floating point type. One of 16 bits is read as f32, which has all its values."""
    value = f.get(operand, WIDTHS[type_])
    return _of_bits(f, value, type_, flush)


def _of_bits(f: Function, value: str, type_: str, flush: bool = False) -> str:
    if type_ == "bf16":
        wide = f.new(f"shl i32 {f.new(f'zext i16 {value} to i32')}, 16")
        return f.new(f"bitcast i32 {wide} to float")
    made = f.new(f"bitcast i{WIDTHS[type_]} {value} to {FLOATS[type_]}")
    if type_ == "f16":
        return f.new(f"fpext half {made} to float")
    return _flushed(f, made) if flush else made


def _flushed(f: Function, x: str) -> str:
    word = f.new(f"bitcast float {x} to i32")
    exponent = f.new(f"and i32 {word}, 2139095040")
    small = f.new(f"icmp eq i32 {exponent}, 0")
    kept = f.new(f"select i1 {small}, i32 -2147483648, i32 -1")
    return f.new(f"bitcast i32 {f.new(f'and i32 {word}, {kept}')} to float")


def written(f: Function, name: str, value: str, type_: str, flush: bool = False) -> None:
    """Write a result of a floating point type. value: of the type, or of f32 for 16 bits, rounded once to nearest."""
    if type_ == "bf16":
        return f.set(name, _bf16(f, value), 16)
    if type_ == "f16":
        value = f.new(f"fptrunc float {value} to half")
    elif flush:
        value = _flushed(f, value)
    f.set(name, f.new(f"bitcast {FLOATS[type_]} {value} to i{WIDTHS[type_]}"), WIDTHS[type_])


def _bf16(f: Function, x: str) -> str:
    pair = f.new(f"call ptr @llvm_nvvm_ff2bf16x2_rn(float {x}, float {x})")
    return f.new(f"load i16, ptr {pair}")


def _wide(type_: str) -> str:
    """Return the type that a floating point type is computed in."""
    return "double" if type_ == "f64" else "float"


def _suffix(type_: str) -> str:
    return "f64" if type_ == "f64" else "f32"


# ------------------------------------------------------------------------------------------------------- arithmetic


def _arithmetic(integer: str, real: str) -> Op:
    def op(f: Function, parts: Parts, operands: Parts) -> None:
        type_, flush = parts[-1], "ftz" in parts
        if type_ in FLOATS:
            a, b = (read(f, x, type_, flush) for x in operands[1:])
            written(f, operands[0], f.new(f"{real} {_wide(type_)} {a}, {b}"), type_, flush)
        else:
            n = WIDTHS[type_]
            a, b = (f.get(x, n) for x in operands[1:])
            f.set(operands[0], f.new(f"{integer} i{n} {a}, {b}"), n, type_[0] == "s")

    return op


def _mul(f: Function, parts: Parts, operands: Parts) -> None:
    if parts[-1] in FLOATS:
        return _arithmetic("mul", "fmul")(f, parts, operands)
    f.set(operands[0], *_product(f, parts, operands))


def _product(f: Function, parts: Parts, operands: Parts) -> tuple[str, int]:
    """Return the value and width of a product."""
    type_ = parts[-1]
    n = WIDTHS[type_]
    a, b = (f.get(x, n) for x in operands[1:3])
    if "lo" in parts:
        return f.new(f"mul i{n} {a}, {b}"), n
    extend = "sext" if type_[0] == "s" else "zext"
    a, b = (f.new(f"{extend} i{n} {x} to i{2 * n}") for x in (a, b))
    whole = f.new(f"mul i{2 * n} {a}, {b}")
    if "wide" in parts:
        return whole, 2 * n
    return f.new(f"trunc i{2 * n} {f.new(f'lshr i{2 * n} {whole}, {n}')} to i{n}"), n


def _mad(f: Function, parts: Parts, operands: Parts) -> None:
    value, n = _product(f, parts, operands)
    f.set(operands[0], f.new(f"add i{n} {value}, {f.get(operands[3], n)}"), n)


def _fma(f: Function, parts: Parts, operands: Parts) -> None:
    type_, flush = parts[-1], "ftz" in parts
    if type_ in ("f16", "bf16"):  # a product of two is exact in f64, whose sum is rounded once more than the GPU's
        raise AssertionError(f"fma of {type_}")
    t = _wide(type_)
    a, b, c = (read(f, x, type_, flush) for x in operands[1:])
    made = f.new(f"call {t} @llvm.fma.{_suffix(type_)}({t} {a}, {t} {b}, {t} {c})")
    if "sat" in parts:
        made = _saturated(f, made)
    written(f, operands[0], made, type_, flush)


def _saturated(f: Function, x: str) -> str:
    """Clamp a value to the range from 0 to 1. NaN becomes 0."""
    low = f.new(f"select i1 {f.new(f'fcmp ogt float {x}, 0.0')}, float {x}, float 0.0")
    return f.new(f"select i1 {f.new(f'fcmp olt float {low}, 1.0')}, float {low}, float 1.0")


def _divided(kind: str) -> Op:
    """Return a division or a remainder. An integer divided by zero gives an unspecified value, and no trap."""

    def op(f: Function, parts: Parts, operands: Parts) -> None:
        type_ = parts[-1]
        if type_ in FLOATS:
            return _arithmetic("", "fdiv")(f, parts, operands)
        n, sign = WIDTHS[type_], type_[0]
        a, b = (f.get(x, n) for x in operands[1:])
        zero = f.new(f"icmp eq i{n} {b}, 0")
        one = zero
        if sign == "s":
            one = f.new(f"or i1 {zero}, {f.new(f'icmp eq i{n} {b}, -1')}")
        safe = f.new(f"select i1 {one}, i{n} 1, i{n} {b}")
        made = f.new(f"{sign}{kind} i{n} {a}, {safe}")
        if kind == "div":
            if sign == "s":
                made = f.new(f"select i1 {one}, i{n} {f.new(f'sub i{n} 0, {a}')}, i{n} {made}")
            made = f.new(f"select i1 {zero}, i{n} -1, i{n} {made}")
        f.set(operands[0], made, n, sign == "s")

    return op


def _least(which: str) -> Op:
    def op(f: Function, parts: Parts, operands: Parts) -> None:
        type_, flush = parts[-1], "ftz" in parts
        if type_ not in FLOATS:
            n = WIDTHS[type_]
            a, b = (f.get(x, n) for x in operands[1:])
            made = f.new(f"call i{n} @llvm.{type_[0]}{which}.i{n}(i{n} {a}, i{n} {b})")
            return f.set(operands[0], made, n, type_[0] == "s")
        t = _wide(type_)
        made, *rest = (read(f, x, type_, flush) for x in operands[1:])
        for b in rest:
            both = f.new(f"call {t} @llvm.{which}imum.{_suffix(type_)}({t} {made}, {t} {b})")
            if "NaN" not in parts:
                no_b, no_a = (f.new(f"fcmp uno {t} {x}, {x}") for x in (b, made))
                both = f.new(f"select i1 {no_b}, {t} {made}, {t} {both}")
                both = f.new(f"select i1 {no_a}, {t} {b}, {t} {both}")
            made = both
        written(f, operands[0], made, type_, flush)

    return op


def _sign(change: Callable[[str, int], str], integer: Callable[[Function, str, int], str]) -> Op:
    def op(f: Function, parts: Parts, operands: Parts) -> None:
        n = WIDTHS[parts[-1]]
        value = f.get(operands[1], n)
        if parts[-1] in FLOATS:
            if "ftz" in parts:
                value = f.new(f"bitcast float {_of_bits(f, value, 'f32', True)} to i32")
            return f.set(operands[0], f.new(change(value, n)), n)
        f.set(operands[0], integer(f, value, n), n, True)

    return op


def _absolute(f: Function, x: str, n: int) -> str:
    negative = f.new(f"icmp slt i{n} {x}, 0")
    return f.new(f"select i1 {negative}, i{n} {f.new(f'sub i{n} 0, {x}')}, i{n} {x}")


_neg = _sign(lambda x, n: f"xor i{n} {x}, {-(1 << (n - 1))}", lambda f, x, n: f.new(f"sub i{n} 0, {x}"))
_abs = _sign(lambda x, n: f"and i{n} {x}, {(1 << (n - 1)) - 1}", _absolute)


def _copysign(f: Function, parts: Parts, operands: Parts) -> None:
    """Write the sign of the first operand with the second one's value."""
    n = WIDTHS[parts[-1]]
    sign = f.new(f"and i{n} {f.get(operands[1], n)}, {-(1 << (n - 1))}")
    rest = f.new(f"and i{n} {f.get(operands[2], n)}, {(1 << (n - 1)) - 1}")
    f.set(operands[0], f.new(f"or i{n} {sign}, {rest}"), n)


def _function(name: str) -> Op:
    """Return a function of f32 or f64, as exact as it can be."""

    def op(f: Function, parts: Parts, operands: Parts) -> None:
        type_, flush = parts[-1], "ftz" in parts
        t = _wide(type_)
        made = f.new(f"call {t} @llvm.{name}.{_suffix(type_)}({t} {read(f, operands[1], type_, flush)})")
        written(f, operands[0], made, type_, flush)

    return op


def _approximated(name: str, exact: Op) -> Op:
    """Return an approximation that is as wrong as it may be, where the emulator has one; else the exact function."""

    def op(f: Function, parts: Parts, operands: Parts) -> None:
        if parts != ["approx", "ftz", "f32"]:
            return exact(f, parts, operands)
        made = f.new(f"call float @llvm_nvvm_{name}_approx_ftz_f(float {read(f, operands[1], 'f32')})")
        written(f, operands[0], made, "f32")

    return op


def _reciprocal(of: Op | None) -> Op:
    """Return the reciprocal of an operand, or of a function of it."""

    def op(f: Function, parts: Parts, operands: Parts) -> None:
        if of:
            of(f, parts, operands)
        type_ = parts[-1]
        x = read(f, operands[0] if of else operands[1], type_, "ftz" in parts)
        written(f, operands[0], f.new(f"fdiv {_wide(type_)} 1.0, {x}"), type_, "ftz" in parts)

    return op


# ------------------------------------------------------------------------------------------------------------- bits


def _logic(instruction: str) -> Op:
    def op(f: Function, parts: Parts, operands: Parts) -> None:
        n = WIDTHS[parts[-1]]
        a, b = (f.get(x, n) for x in operands[1:])
        f.set(operands[0], f.new(f"{instruction} i{n} {a}, {b}"), n)

    return op


def _not(f: Function, parts: Parts, operands: Parts) -> None:
    n = WIDTHS[parts[-1]]
    f.set(operands[0], f.new(f"xor i{n} {f.get(operands[1], n)}, -1"), n)


def _shift(left: bool) -> Op:
    """Return a shift. All 32 bits of its amount count: a value that is shifted by too much is gone."""

    def op(f: Function, parts: Parts, operands: Parts) -> None:
        n, arithmetic = WIDTHS[parts[-1]], parts[-1][0] == "s"
        value, by = f.get(operands[1], n), f.get(operands[2], 32)
        most = n - 1 if arithmetic else n
        by = f.new(f"call i32 @llvm.umin.i32(i32 {by}, i32 {most})")
        wide = 2 * n
        by = f.new(f"{'zext' if wide > 32 else 'trunc'} i32 {by} to i{wide}") if wide != 32 else by
        value = f.new(f"{'sext' if arithmetic else 'zext'} i{n} {value} to i{wide}")
        instruction = "shl" if left else "ashr" if arithmetic else "lshr"
        made = f.new(f"{instruction} i{wide} {value}, {by}")
        f.set(operands[0], f.new(f"trunc i{wide} {made} to i{n}"), n, arithmetic)

    return op


def _two_words(f: Function, low: str, high: str) -> str:
    upper = f.new(f"shl i64 {f.new(f'zext i32 {high} to i64')}, 32")
    return f.new(f"or i64 {upper}, {f.new(f'zext i32 {low} to i64')}")


def _funnel(f: Function, parts: Parts, operands: Parts) -> None:
    """Write the upper word of b:a shifted to the left, or the lower one of it shifted to the right."""
    low, high, by = (f.get(x, 32) for x in operands[1:])
    if "wrap" in parts:
        by = f.new(f"and i32 {by}, 31")
    else:
        by = f.new(f"call i32 @llvm.umin.i32(i32 {by}, i32 32)")
    whole = _two_words(f, low, high)
    by = f.new(f"zext i32 {by} to i64")
    if parts[0] == "l":
        made = f.new(f"lshr i64 {f.new(f'shl i64 {whole}, {by}')}, 32")
    else:
        made = f.new(f"lshr i64 {whole}, {by}")
    f.set(operands[0], f.new(f"trunc i64 {made} to i32"), 32)


def _counted(intrinsic: str, flag: str = "") -> Op:
    def op(f: Function, parts: Parts, operands: Parts) -> None:
        n = WIDTHS[parts[-1]]
        made = f.new(f"call i{n} @llvm.{intrinsic}.i{n}(i{n} {f.get(operands[1], n)}{flag})")
        if intrinsic != "bitreverse" and n == 64:
            made, n = f.new(f"trunc i64 {made} to i32"), 32
        f.set(operands[0], made, n)

    return op


def _extracted(f: Function, parts: Parts, operands: Parts) -> None:
    """Write bfe: so many bits from an index on. The bits above them are zero, or their sign."""
    n, signed = WIDTHS[parts[-1]], parts[-1][0] == "s"
    value = f.get(operands[1], n)
    at, count = (f.new(f"and i32 {f.get(x, 32)}, 255") for x in operands[2:])
    extend, right = ("sext", "ashr") if signed else ("zext", "lshr")
    wide = f.new(f"{extend} i{n} {value} to i512")
    moved = f.new(f"{right} i512 {wide}, {f.new(f'zext i32 {at} to i512')}")
    up = f.new(f"sub i512 511, {f.new(f'zext i32 {count} to i512')}")
    cut = f.new(f"shl i512 {f.new(f'shl i512 {moved}, {up}')}, 1")
    back = f.new(f"{right} i512 {cut}, {up}")
    made = f.new(f"{right} i512 {back}, 1")
    f.set(operands[0], f.new(f"trunc i512 {made} to i{n}"), n, signed)


def _inserted(f: Function, parts: Parts, operands: Parts) -> None:
    """Write bfi: the low bits of the first operand replace so many bits of the second."""
    n = WIDTHS[parts[-1]]
    a, b = (f.new(f"zext i{n} {f.get(x, n)} to i512") for x in operands[1:3])
    at, count = (f.new(f"zext i32 {f.new(f'and i32 {f.get(x, 32)}, 255')} to i512") for x in operands[3:])
    ones = f.new(f"sub i512 {f.new(f'shl i512 1, {count}')}, 1")
    mask = f.new(f"shl i512 {ones}, {at}")
    kept = f.new(f"and i512 {b}, {f.new(f'xor i512 {mask}, -1')}")
    put = f.new(f"and i512 {f.new(f'shl i512 {a}, {at}')}, {mask}")
    f.set(operands[0], f.new(f"trunc i512 {f.new(f'or i512 {kept}, {put}')} to i{n}"), n)


def _permuted(f: Function, parts: Parts, operands: Parts) -> None:
    """Write prmt: each byte is one of the eight of b:a, or its sign."""
    assert parts == ["b32"], parts
    low, high, chosen = (f.get(x, 32) for x in operands[1:])
    whole = _two_words(f, low, high)
    made = "0"
    for k in range(4):
        which = f.new(f"lshr i32 {chosen}, {4 * k}")
        at = f.new(f"shl i32 {f.new(f'and i32 {which}, 7')}, 3")
        at = f.new(f"zext i32 {at} to i64")
        byte = f.new(f"trunc i64 {f.new(f'lshr i64 {whole}, {at}')} to i8")
        sign = f.new(f"icmp ne i32 {f.new(f'and i32 {which}, 8')}, 0")
        byte = f.new(f"select i1 {sign}, i8 {f.new(f'ashr i8 {byte}, 7')}, i8 {byte}")
        part = f.new(f"shl i32 {f.new(f'zext i8 {byte} to i32')}, {8 * k}")
        made = f.new(f"or i32 {made}, {part}")
    f.set(operands[0], made, 32)


def _lop3(f: Function, parts: Parts, operands: Parts) -> None:
    """Write lop3: at each position, the bits of three words choose one of the eight bits of a table."""
    a, b, c = (f.get(x, 32) for x in operands[1:4])
    table, made = number(operands[4], 32), "0"
    for k in (k for k in range(8) if table >> k & 1):
        term = "-1"
        for word, one in ((a, k & 4), (b, k & 2), (c, k & 1)):
            term = f.new(f"and i32 {term}, {word if one else f.new(f'xor i32 {word}, -1')}")
        made = f.new(f"or i32 {made}, {term}")
    f.set(operands[0], made, 32)


# ------------------------------------------------------------------------------------------ comparisons, conversions

ORDERED = {"eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "equ": "ueq", "neu": "une",
            "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge", "num": "ord", "nan": "uno"}  # fmt: skip
UNSIGNED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}


def _setp(f: Function, parts: Parts, operands: Parts) -> None:
    how, type_ = parts[0], parts[-1]
    if type_ in FLOATS:
        a, b = (read(f, x, type_, "ftz" in parts) for x in operands[1:3])
        made = f.new(f"fcmp {ORDERED[how]} {_wide(type_)} {a}, {b}")
    else:
        n = WIDTHS[type_]
        a, b = (f.get(x, n) for x in operands[1:3])
        sign = "" if how in ("eq", "ne") else "s" if type_[0] == "s" else "u"
        made = f.new(f"icmp {UNSIGNED.get(how, sign + how)} i{n} {a}, {b}")
    for combine in ("and", "or", "xor"):
        if combine in parts:
            made = f.new(f"{combine} i1 {made}, {f.get(operands[3], 1)}")
    first, _, second = operands[0].partition("|")
    f.set(first, made, 1)
    if second:
        f.set(second, f.new(f"xor i1 {made}, true"), 1)


def _selp(f: Function, parts: Parts, operands: Parts) -> None:
    n = WIDTHS[parts[-1]]
    a, b = (f.get(x, n) for x in operands[1:3])
    f.set(operands[0], f.new(f"select i1 {f.get(operands[3], 1)}, i{n} {a}, i{n} {b}"), n)


_WHOLE = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def _cvt(f: Function, parts: Parts, operands: Parts) -> None:
    rounding = next((p for p in parts if p in ("rn", "rz", "rm", "rp", "rna", *_WHOLE)), "")
    flush, to, of = "ftz" in parts, parts[-2], parts[-1]
    if to in ("bf16x2", "f16x2"):
        high, low = (read(f, x, "f32") for x in operands[1:3])
        assert rounding == "rn", parts
        if to == "bf16x2":
            pair = f.new(f"call ptr @llvm_nvvm_ff2bf16x2_rn(float {high}, float {low})")
            return f.set(operands[0], f.new(f"load i32, ptr {pair}, align 2"), 32)
        words = [f.new(f"bitcast half {f.new(f'fptrunc float {x} to half')} to i16") for x in (high, low)]
        high, low = (f.new(f"zext i16 {x} to i32") for x in words)
        return f.set(operands[0], f.new(f"or i32 {f.new(f'shl i32 {high}, 16')}, {low}"), 32)
    if to == "tf32":
        return f.set(operands[0], f.new(f"call i32 @llvm_nvvm_f2tf32_rna(float {read(f, operands[1], of)})"), 32)
    if of not in FLOATS and to not in FLOATS:
        assert "sat" not in parts, parts
        return _resized(f, operands, to, of)
    if of not in FLOATS:
        assert rounding == "rn", parts
        t = _wide(to)
        value = f.get(operands[1], WIDTHS[of])
        return written(f, operands[0], f.new(f"{of[0]}itofp i{WIDTHS[of]} {value} to {t}"), to)
    x, t = read(f, operands[1], of, flush), _wide(of)
    if rounding in _WHOLE:
        x = f.new(f"call {t} @llvm.{_WHOLE[rounding]}.{_suffix(of)}({t} {x})")
    if to not in FLOATS:
        return _whole(f, operands[0], x, to, of)
    assert rounding in ("", "rn", *_WHOLE), parts
    if t != _wide(to):
        x = f.new(f"{'fpext' if t == 'float' else 'fptrunc'} {t} {x} to {_wide(to)}")
    assert not (of == "f64" and WIDTHS[to] == 16), parts
    x = _saturated(f, x) if "sat" in parts else x
    written(f, operands[0], x, to, flush)


def _resized(f: Function, operands: Parts, to: str, of: str) -> None:
    n, m = WIDTHS[of], WIDTHS[to]
    value = f.get(operands[1], n)
    if m != n:
        value = f.new(f"{'trunc' if m < n else 'sext' if of[0] == 's' else 'zext'} i{n} {value} to i{m}")
    f.set(operands[0], value, m, to[0] == "s")


def _whole(f: Function, name: str, x: str, to: str, of: str) -> None:
    """Convert to the nearest integer of the type. NaN is zero, or the uppermost bit with 64 bits on one side."""
    n, t, sign = WIDTHS[to], _wide(of), to[0]
    wide = f.new(f"call i{n} @llvm.fpto{sign}i.sat.i{n}.{_suffix(of)}({t} {x})")
    nan = f.new(f"fcmp uno {t} {x}, {x}")
    of_nan = -(1 << (n - 1)) if of == "f64" or n == 64 else 0
    f.set(name, f.new(f"select i1 {nan}, i{n} {of_nan}, i{n} {wide}"), n, sign == "s")


def packed(op: Op) -> Op:
    """Return an instruction that works on both halves of words."""

    def both(f: Function, parts: Parts, operands: Parts) -> None:
        if not parts or not parts[-1].endswith("x2"):
            return op(f, parts, operands)
        own = [*parts[:-1], parts[-1].removesuffix("x2")]
        words = [f.get(x, 32) for x in operands[1:]]
        halves = []
        for k in range(2):
            names = [f"half{k}.{i}" for i in range(len(operands))]
            for name in names:
                f.declare(name, 16)
            for name, word in zip(names[1:], words, strict=True):
                f.set(name, f.new(f"trunc i32 {f.new(f'lshr i32 {word}, {16 * k}')} to i16"), 16)
            op(f, own, names)
            halves.append(f.get(names[0], 32))
        f.set(operands[0], f.new(f"or i32 {halves[0]}, {f.new(f'shl i32 {halves[1]}, 16')}"), 32)

    return both


OPS: dict[str, Op] = {
    "abs": _abs,
    "add": _arithmetic("add", "fadd"),
    "and": _logic("and"),
    "bfe": _extracted,
    "bfi": _inserted,
    "brev": _counted("bitreverse"),
    "clz": _counted("ctlz", ", i1 false"),
    "copysign": _copysign,
    "cos": _function("cos"),
    "cvt": _cvt,
    "div": _divided("div"),
    "ex2": _approximated("ex2", _function("exp2")),
    "fma": _fma,
    "lg2": _function("log2"),
    "lop3": _lop3,
    "mad": _mad,
    "max": _least("max"),
    "min": _least("min"),
    "mul": _mul,
    "neg": _neg,
    "not": _not,
    "or": _logic("or"),
    "popc": _counted("ctpop"),
    "prmt": _permuted,
    "rcp": _approximated("rcp", _reciprocal(None)),
    "rem": _divided("rem"),
    "rsqrt": _reciprocal(_function("sqrt")),
    "selp": _selp,
    "setp": _setp,
    "shf": _funnel,
    "shl": _shift(True),
    "shr": _shift(False),
    "sin": _function("sin"),
    "sqrt": _function("sqrt"),
    "sub": _arithmetic("sub", "fsub"),
    "xor": _logic("xor"),
}
OPS |= {name: packed(OPS[name]) for name in ("abs", "add", "fma", "max", "min", "mul", "neg", "sub")}
