"""Hypothesis strategies for Dims: expression trees, built as Dims and computed on integers."""

from __future__ import annotations

import operator

from hypothesis import strategies as st

from hlo_disc.dynamic_hlo.sizes.dim import Dim

SYMBOLS = "bst"
OPS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
}


def dim_op(name, x, y):
    return getattr(Dim, name)(x, y) if name in ("min", "max") else OPS[name](x, y)


def trees():
    leaf = st.one_of(st.integers(-9, 9), st.sampled_from(SYMBOLS))
    return st.recursive(leaf, lambda sub: st.tuples(st.sampled_from(list(OPS)), sub, sub), max_leaves=8)


def texts():
    """Operands and operators in a row, as a user writes them."""
    operand = st.one_of(st.integers(0, 9).map(str), st.sampled_from([*SYMBOLS, "-s", "-3", "(b - s)", "-(s + 2)"]))
    operator_ = st.sampled_from([f"{space}{op}{space}" for op in "+ - * // %".split() for space in ("", " ")])
    return st.lists(st.tuples(operator_, operand), max_size=5).flatmap(
        lambda rest: operand.map(lambda first: first + "".join(op + x for op, x in rest))
    )


def build(tree) -> Dim:
    if isinstance(tree, tuple):
        return Dim.of(dim_op(tree[0], build(tree[1]), build(tree[2])))
    return Dim.of(tree)


def compute(tree, values) -> int:
    if isinstance(tree, tuple):
        return OPS[tree[0]](compute(tree[1], values), compute(tree[2], values))
    return values[tree] if isinstance(tree, str) else tree


values_of_symbols = st.fixed_dictionaries({name: st.integers(0, 40) for name in SYMBOLS})
