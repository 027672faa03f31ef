"""Vector math: every transcendental function, for any float type and number of lanes, as LLVM IR.

They are polynomials and rationals over the whole range (infinities, NaN, denormals, signed zeros), in f32 and in f64;
f16 and bf16 go through f32. ULP_BOUNDS holds what the tests measure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hlo_disc.targets.machine import Machine
from hlo_disc.targets.math import divide, double, double_erf, double_power, double_trig, exp, log, remainder, trig
from hlo_disc.targets.math.vecexpr import Code, X
from hlo_disc.targets.translate.floats import is_small, narrow, widen
from hlo_disc.targets.translate.types import F64, Type, Untranslatable

FUNCTIONS: Mapping[str, Callable[..., X]] = {
    "exp": exp.exp,
    "expm1": exp.expm1,
    "tanh": exp.tanh,
    "erf": exp.erf,
    "erfc": exp.erfc,
    "log": log.log,
    "log1p": log.log1p,
    "cbrt": log.cbrt,
    "pow": log.pow,
    "sin": trig.sin,
    "cos": trig.cos,
    "tan": trig.tan,
    "atan2": trig.atan2,
    "fmod": remainder.fmod,
}
# Quotients in f32 alone, where the machine approximates 1/x.
_IN_F32: Mapping[str, Callable[..., X]] = {**FUNCTIONS, "divide": divide.divide}
DOUBLE: Mapping[str, Callable[..., X]] = {
    "exp": double.exp,
    "expm1": double.expm1,
    "tanh": double.tanh,
    "erf": double_erf.erf,
    "erfc": double_erf.erfc,
    "log": double.log,
    "log1p": double.log1p,
    "cbrt": double_power.cbrt,
    "pow": double_power.pow,
    "sin": double_trig.sin,
    "cos": double_trig.cos,
    "tan": double_trig.tan,
    "atan2": double_trig.atan2,
    "fmod": remainder.fmod,
}
_BINARY = ("pow", "atan2", "fmod", "divide")
# a call would make a loop spill its vectors, which these are too quick for; the others are long and seldom
_INLINED = ("exp", "expm1", "tanh", "erf", "erfc", "log", "log1p", "divide")
_LONG_IN_F64 = ("erf", "erfc")

# The largest error in ulp of the result type, denormal results included: (function, dtype) -> bound. Just below 1 an
# ulp is half of what it is above: tanh and erf are within 3e-7 of their value.
ULP_BOUNDS: Mapping[tuple[str, str], float] = {
    ("exp", "f32"): 1.0,
    ("expm1", "f32"): 2.0,
    ("tanh", "f32"): 5.0,
    ("erf", "f32"): 6.0,
    ("erfc", "f32"): 6.0,
    ("log", "f32"): 1.0,
    ("log1p", "f32"): 2.0,
    ("cbrt", "f32"): 0.51,
    ("pow", "f32"): 0.51,
    ("sin", "f32"): 2.0,
    ("cos", "f32"): 2.0,
    ("tan", "f32"): 4.0,
    ("atan2", "f32"): 2.0,
    ("fmod", "f32"): 0.0,
    **{(function, dtype): 0.51 for function in FUNCTIONS for dtype in ("f16", "bf16")},
    **{(function, "f64"): 1.0 for function in FUNCTIONS},
    ("expm1", "f64"): 2.0,
    ("tanh", "f64"): 3.0,
    ("log1p", "f64"): 2.0,
    ("erf", "f64"): 1.2,
    ("erfc", "f64"): 1.2,
    ("cbrt", "f64"): 0.51,
    ("atan2", "f64"): 1.5,
    ("fmod", "f64"): 0.0,
}
# The same for f32 where a machine's own 2^x and 1/x, wrong by 2^-22 and 2^-23 of their value, take part.
APPROXIMATE_ULP_BOUNDS: Mapping[str, float] = {"exp": 5.0, "tanh": 6.0, "erf": 6.0, "erfc": 7.0, "divide": 1.5}


@dataclass
class Definitions:
    """LLVM IR of the functions asked for, and of what they call (by name)."""

    functions: list[str] = field(default_factory=list)
    declarations: dict[str, str] = field(default_factory=dict)


def define(
    wanted: Mapping[str, tuple[str, Type]], machine: Machine, section: Callable[[str], str] | None = None
) -> Definitions:
    """Define each of `wanted`: LLVM function name -> (math function, type of its arguments and result).

    section: of a function, by its name; None where all code is in one.
    """
    out = Definitions()
    for name, (function, type_) in wanted.items():
        if function not in _IN_F32:
            raise Untranslatable(f"no vector math function {function}")
        place = f' section "{section(name)}"' if section else ""
        out.functions.append(_define(name, function, type_, machine, place, out.declarations))
    return out


def _define(name: str, function: str, type_: Type, machine: Machine, section: str, declarations: dict[str, str]) -> str:
    code = Code(type_.lanes, machine)
    names = "xy" if function in _BINARY else "x"
    scalar = type_.element or type_
    if scalar is F64:
        result = DOUBLE[function](*[code.argument(n, "f64") for n in names])
    else:
        arguments = [_widen(code, code.argument(n, "f32"), type_) for n in names]
        result = _narrow(code, _IN_F32[function](*arguments), type_)
    declarations.update(code.declarations)
    inlined = function in _INLINED and not (scalar is F64 and function in _LONG_IN_F64)
    placement = "alwaysinline" if inlined else machine.outlined
    parameters = ", ".join(f"{type_.text} %{n}" for n in names)
    head = f"define internal {type_.text} @{name}({parameters}) {machine.attributes} {placement}{section} {{"
    return "\n".join([head, *code.lines, f"  ret {type_.text} {result.text}", "}"])


def _widen(code: Code, x: X, type_: Type) -> X:
    if not is_small(type_):
        return x
    return X(code, "f32", widen(lambda text: code.op("f32", text).text, x.text, type_))


def _narrow(code: Code, x: X, type_: Type) -> X:
    if not is_small(type_):
        return x
    return X(code, "f32", narrow(lambda text: code.op("f32", text).text, x.text, x.type, type_))
