"""Derive the coefficients in hlo_disc/targets/math: minimax polynomials and rationals, rounded to f32.

Run `python tools/fit_polynomials.py [name ...]`; each line printed is a table to paste. A minimax fit on a grid is a
linear program. Coefficients are rounded to f32 one after another, the ones still free being fitted again to make up for
it. Needs scipy, which comes with jax.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable, Sequence
from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog

Function = Callable[[np.ndarray], np.ndarray]


def minimax(rows: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the x that minimises max |rows @ x - target|, by a linear program that least squares starts and scales."""
    sizes = np.abs(rows).max(0)
    rows = rows / sizes
    start = np.linalg.lstsq(rows, target, rcond=None)[0]
    left = target - rows @ start
    scale = np.abs(left).max()
    if scale == 0:
        return start / sizes
    ones = np.ones((len(target), 1))
    constraints = np.block([[rows, -ones], [-rows, -ones]])
    bounds = np.concatenate([left, -left]) / scale
    cost = np.zeros(rows.shape[1] + 1)
    cost[-1] = 1
    found = linprog(cost, constraints, bounds, bounds=[(None, None)] * len(cost), method="highs")
    return (start + found.x[:-1] * scale if found.success else start) / sizes


def _chebyshev(low: float, high: float, count: int) -> np.ndarray:
    t = np.cos(np.pi * np.arange(count)[::-1] / (count - 1))
    return (low + high) / 2 + (high - low) / 2 * t


def polynomial(
    f: Function,
    low: float,
    high: float,
    powers: Sequence[int],
    weight: Function,
    known: dict[int, float] | None = None,
    dtype: type = np.float32,
) -> tuple[dict[int, float], float]:
    """Return the coefficients by power, rounded to `dtype`, and the largest weighted error that they leave."""
    fixed = dict(known or {})
    free = list(powers)
    grid = _chebyshev(low, high, 1000)
    while free:
        known_part = sum((c * grid**p for p, c in fixed.items()), np.zeros_like(grid))
        w = weight(grid)
        fitted = minimax(np.stack([grid**p for p in free], 1) * w[:, None], (f(grid) - known_part) * w)
        fixed[free[0]] = float(dtype(fitted[0]))
        free = free[1:]
    grid = _chebyshev(low, high, 50000)
    left = weight(grid) * (f(grid) - sum(c * grid**p for p, c in fixed.items()))
    return fixed, float(np.abs(left).max())


def rational(
    f: Function, high: float, top: int, bottom: int, weight: Function, start: float = 1.0, even: bool = True
) -> tuple[list[float], list[float], float]:
    """Fit f(x) ~ P(u)/Q(u) on (0, high], u = x^2 (x unless `even`). Return P and Q, rounded to f32, and the error left.

    Each step is linear: minimise |P - f Q| weight / (Q of the step before). Q is rounded first, then P fitted again.
    Q(0) is `start` and P(0) = f(0) start: a value that makes both nearly f32 saves half an ulp.
    """
    x = _chebyshev(0.0, high, 1500)[1:]
    u, y = x * x if even else x, f(x)
    w = weight(x)
    columns = np.stack([u**k for k in range(max(top, bottom) + 1)], 1)
    q_values = np.ones_like(x)
    q = np.ones(1)
    for _ in range(12):
        r = w / q_values
        rows = np.concatenate([columns[:, : top + 1], -y[:, None] * columns[:, 1 : bottom + 1]], 1) * r[:, None]
        q = np.concatenate([[1.0], minimax(rows, y * r)[top + 1 :]])
        q_values = columns[:, : bottom + 1] @ q
    q = (q * start).astype(np.float32).astype(np.float64)
    q_values = columns[:, : bottom + 1] @ q
    p = [float(np.float32(f(np.zeros(1))[0] * start))]
    for k in range(1, top + 1):
        r = w / q_values
        known = columns[:, :k] @ np.array(p)
        p.append(float(np.float32(minimax(columns[:, k : top + 1] * r[:, None], (y * q_values - known) * r)[0])))
    error = np.abs(w * (y - columns[:, : top + 1] @ np.array(p) / q_values)).max()
    return p, list(q), float(error)


def nearly_f32(value: float) -> float:
    """Return an f32 c in [1, 2) whose product with `value` differs from an f32 by far less than an ulp."""
    c = np.arange(1, 2, 2.0**-16)
    product = c * value
    return float(c[np.argmin(np.abs(product.astype(np.float32) / product - 1))])


erf = np.vectorize(math.erf)
erfc = np.vectorize(math.erfc)


def _ratio(f: Function, limit: float) -> Function:
    """Return the function x -> f(x) / x, with its limit at 0."""
    return lambda x: np.where(x == 0, limit, f(np.where(x == 0, 1.0, x)) / np.where(x == 0, 1.0, x))


def show(name: str, coefficients: Sequence[float], error: float) -> None:
    body = ", ".join(f"{c:.9g}" for c in coefficients)
    print(f"{name} = ({body})  # error {error:.2e} = 2^{math.log2(error):.1f}")


def fit_exp() -> None:
    half = math.log(2) / 2 * 1.0005
    table, error = polynomial(np.exp, -half, half, range(2, 7), lambda x: np.exp(-x), {0: 1.0, 1: 1.0})
    show("EXP", [table[k] for k in range(2, 7)], error)


def fit_expm1() -> None:
    half = math.log(2) / 2 * 1.0005
    table, error = polynomial(np.expm1, -half, half, range(2, 7), lambda x: 1 / np.expm1(x), {1: 1.0})
    show("EXPM1", [table[k] for k in range(2, 7)], error)


def fit_log() -> None:
    # log(1 + f) = f - f^2/2 + f^3 P(f)
    low, high = math.sqrt(0.5) - 1, math.sqrt(2) - 1
    table, error = polynomial(np.log1p, low, high, range(3, 11), lambda x: 1 / np.log1p(x), {1: 1.0, 2: -0.5})
    show("LOG", [table[k] for k in range(3, 11)], error)


def fit_tanh() -> None:
    p, q, error = rational(_ratio(np.tanh, 1.0), 9.05, 5, 4, lambda x: x / np.tanh(x))
    show("TANH_P", p, error)
    show("TANH_Q", q, error)


def fit_erf() -> None:
    limit = 2 / math.sqrt(math.pi)
    p, q, error = rational(_ratio(erf, limit), 3.95, 6, 5, lambda x: x / erf(x), nearly_f32(limit))
    show("ERF_P", p, error)
    show("ERF_Q", q, error)


def fit_erfc() -> None:
    def erfcx(x: np.ndarray) -> np.ndarray:
        return np.float64(np.exp(np.longdouble(x) ** 2) * erfc(x))

    p, q, error = rational(erfcx, 10.1, 4, 5, lambda x: 1 / erfcx(x), even=False)
    show("ERFC_P", p, error)
    show("ERFC_Q", q, error)


def fit_sin() -> None:
    quarter = math.pi / 4 * 1.001
    table, error = polynomial(np.sin, 1e-6, quarter, range(3, 10, 2), lambda x: 1 / np.sin(x), {1: 1.0})
    show("SIN", [table[k] for k in range(3, 10, 2)], error)
    table, error = polynomial(np.cos, 1e-6, quarter, range(4, 9, 2), np.ones_like, {0: 1.0, 2: -0.5})
    show("COS", [table[k] for k in range(4, 9, 2)], error)


def fit_atan() -> None:
    table, error = polynomial(np.arctan, 1e-6, 1.0, range(3, 20, 2), lambda x: 1 / np.arctan(x), {1: 1.0})
    show("ATAN", [table[k] for k in range(3, 20, 2)], error)


def fit_double() -> None:
    # log2(m) = s P(s^2) with s = (m - 1)/(m + 1), and 2^f, both in f64 and good to about 1e-12
    end = (math.sqrt(2) - 1) / (math.sqrt(2) + 1) * 1.0001

    def log2(s: np.ndarray) -> np.ndarray:
        return 2 * np.arctanh(s) / math.log(2)

    table, error = polynomial(log2, 1e-6, end, range(1, 10, 2), lambda s: 1 / log2(s), dtype=np.float64)
    print(f"LOG2_F64 = {[table[k] for k in range(1, 10, 2)]}  # error {error:.2e}")
    table, error = polynomial(np.exp2, -0.5, 0.5, range(1, 9), lambda x: 2.0**-x, {0: 1.0}, np.float64)
    print(f"EXP2_F64 = {[table[k] for k in range(1, 9)]}  # error {error:.2e}")


def fit_two_over_pi() -> None:
    # 2/pi in pieces of 29 bits, whose products with f32 numbers are exact in f64, and in one
    bits = 1300
    one = 1 << bits

    def arctan_inverse(n: int) -> int:
        total, term, k = 0, one // n, 0
        while term:
            total += (-1) ** k * term // (2 * k + 1)
            term //= n * n
            k += 1
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    two_over_pi = (2 * one * one) // pi
    pieces = [two_over_pi >> (bits - 29 * k) & ((1 << 29) - 1) for k in range(1, 8)]
    print(f"TWO_OVER_PI = {tuple(pieces)}  # piece k times 2^-29(k + 1)")
    print(f"TWO_OVER_PI_DIGITS = {two_over_pi >> (bits - 1184):x}")
    for dtype in (np.float32, np.float64):
        left, parts = Fraction(pi, 2 * one), []
        for _ in range(3):
            parts.append(float(dtype(float(left))))
            left -= Fraction(parts[-1])
        print(f"HALF_PI = {tuple(parts)}")


def fit_erfc_double() -> None:
    # h(t) = (1 + 2x) exp(x^2) erfc(x) with t = (x - 7/2)/(x + 7/2), interpolated at Chebyshev's points, in decimals: of
    # erfc as much is left as 1 - erf leaves
    getcontext().prec = 400
    low, high = ((x - Decimal("3.5")) / (x + Decimal("3.5")) for x in (Decimal("0.46"), Decimal("27.5")))
    count = 23
    points = [
        (low + high) / 2 + (high - low) / 2 * Decimal(math.cos(math.pi * (k + 0.5) / count)) for k in range(count)
    ]
    table = [_h(Decimal("3.5") * (1 + t) / (1 - t)) for t in points]
    for order in range(1, count):  # Newton's divided differences, then powers of t
        for k in range(count - 1, order - 1, -1):
            table[k] = (table[k] - table[k - 1]) / (points[k] - points[k - order])
    powers = [table[-1]]
    for value, point in zip(table[-2::-1], points[-2::-1], strict=True):
        powers = [a - b * point for a, b in zip([value, *powers], [*powers, Decimal(0)], strict=True)]
    first = float(powers[0])
    print(f"H = ({first!r}, {float(powers[0] - Decimal(first))!r})")
    print(f"H_REST = {tuple(map(float, powers[1:]))}")


def _h(x: Decimal) -> Decimal:
    """Return (1 + 2x) exp(x^2) erfc(x), by the series of exp(x^2) erf(x), whose terms are all positive."""
    term = total = x
    k = 0
    while term > total * Decimal(10) ** -400:
        k += 1
        term = term * 2 * x * x / (2 * k + 1)
        total += term
    return (1 + 2 * x) * ((x * x).exp() - total * 2 / _pi().sqrt())


@functools.cache
def _pi() -> Decimal:
    def arctan_inverse(n: int) -> Decimal:
        return sum(((-1) ** k * Decimal(n) ** -(2 * k + 1) / (2 * k + 1) for k in range(300)), Decimal(0))

    return 4 * (4 * arctan_inverse(5) - arctan_inverse(239))


if __name__ == "__main__":
    tables = {name.removeprefix("fit_"): fit for name, fit in list(globals().items()) if name.startswith("fit_")}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*tables, []], help="the tables to fit (all)")
    for chosen in parser.parse_args().names or tables:
        tables[chosen]()
