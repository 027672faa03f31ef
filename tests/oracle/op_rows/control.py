"""Rows of control flow; what happens in a body is drawn from the other rows."""

from __future__ import annotations

from hlo_disc.dynamic_hlo.ir.graph import Region, Value
from op_rows.gen import ALL, I32, INTS, Gen

_DEEPEST = 2


def _steps(g: Gen, count: int) -> None:
    """A few ops of any kind in the region."""
    from op_rows import ROWS

    names = [name for name in ROWS if name not in ("while", "case") or g.depth < _DEEPEST]
    for _ in range(count):
        made = ROWS[g.choose(names)](g)
        g.pool += [made] if isinstance(made, Value) else made


def _like(g: Gen, x: Value) -> Value:
    """A value of this type, one that was made in the region if there is one."""
    fit = [v for v in reversed(g.pool) if (v.dtype, v.shape) == (x.dtype, x.shape)]
    return fit[0] if fit else g.spread(g.number(x.dtype, 1), x.shape)


def _while(g: Gen) -> tuple[Value, ...]:
    """A loop that counts to a small number, with up to two values carried and up to two that it only reads."""
    dtype = g.dtype(INTS)
    start, limit = g.number(dtype, g.integer(0, 2)), g.number(dtype, g.integer(0, 4))
    carried = [g.value(ALL) for _ in range(g.integer(0, 2))]
    invariant = [limit, *(g.value(ALL) for _ in range(g.integer(0, 2)))]
    operands = [start, *carried, *invariant]
    types = [(v.dtype, v.shape) for v in operands]

    def condition(inner: Gen, values: tuple[Value, ...]) -> Value:
        return inner.b.op("compare", [values[0], values[1 + len(carried)]], direction="LT")

    def body(inner: Gen, values: tuple[Value, ...]) -> list[Value]:
        count = inner.b.op("add", [values[0], inner.number(dtype, 1)])
        if carried or g.flag():
            _steps(inner, g.integer(1, 3))
        # Carried values may change places when they have one type.
        results = [_like(inner, v) for v in values[1 : 1 + len(carried)]]
        return [count, *results]

    attrs = dict(cond=g.region(types, condition), body=g.region(types, body), carried=1 + len(carried))
    return g.b.multi("while", operands, **attrs)


def _case(g: Gen) -> tuple[Value, ...]:
    operands = [g.value(ALL) for _ in range(g.integer(1, 3))]
    results = operands[: g.integer(1, len(operands))]
    types = [(v.dtype, v.shape) for v in operands]

    def branch(inner: Gen, values: tuple[Value, ...]) -> list[Value]:
        _steps(inner, g.integer(0, 3))
        return [_like(inner, v) for v in values[: len(results)]]

    branches: tuple[Region, ...] = tuple(g.region(types, branch) for _ in range(g.integer(1, 3)))
    return g.b.multi("case", [g.of(I32, ()), *operands], branches=branches)


ROWS = {"while": _while, "case": _case}
