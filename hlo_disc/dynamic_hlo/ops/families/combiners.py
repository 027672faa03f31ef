"""The properties of a region that combines elements: whether it is a named monoid, whether order matters, its identity.

Named regions are matched. All others are tested with the numpy reference, on the values where such functions differ
(zeros, infinities, NaN, ties, the ends of integers, small numbers), because regions express the same function in many
ways: JAX's argmax is nine ops. The answers decide only the order in which elements are combined. StableHLO says nothing
about that order, except that the body should not depend on it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from hlo_disc.dynamic_hlo.ir.dependence import live_ops
from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, dtype_class, int_limits, limits, part_dtype
from hlo_disc.dynamic_hlo.ir.graph import Op, Region, Value, copied, make_op
from hlo_disc.dynamic_hlo.ops.reference import Function
from hlo_disc.dynamic_hlo.ops.table import OPS, REDUCERS

# The reductions that these ops are.
KINDS = {name: kind for kind, name in REDUCERS.items()}
# The number that combining does not notice, for each element type.
_IDENTITIES: dict[str, Callable[[np.dtype], float]] = {
    "add": lambda _: 0, "mul": lambda _: 1, "or": lambda _: 0, "xor": lambda _: 0,
    "max": lambda dtype: limits(dtype)[0],
    "min": lambda dtype: limits(dtype)[1],
    "and": lambda dtype: -1 if dtype_class(dtype) == "int" else limits(dtype)[1],
}  # fmt: skip
assert _IDENTITIES.keys() == REDUCERS.keys(), _IDENTITIES.keys() ^ REDUCERS.keys()
# Of truth values some mean the same.
BOOLEAN = {"add": "or", "max": "or", "mul": "and", "min": "and"}
_SAMPLES = 4096


def scalar_region(region: Region) -> Region | None:
    """Return the region without views of scalars; None if it has other ops than elementwise ones on scalars."""
    new: dict[Value, Value] = {value: value for value in region.inputs}
    ops: list[Op] = []
    for op in region.ops:
        if any(v.rank for v in (*op.operands, *op.results)):
            return None
        if OPS[op.name].kind == "view":
            new[op.result] = new[op.operands[0]]
            continue
        if OPS[op.name].kind not in ("elementwise", "source"):
            return None
        ops.append(copied(op, new))
    if any(v.rank for v in region.inputs):
        return None
    outputs = tuple(new[v] for v in region.outputs)
    return Region(region.inputs, tuple(live_ops(ops, outputs)), outputs)


def monoid_kind(region: Region) -> str | None:
    """Return the `kind` of a `reduce` that does the same as a region over two scalars of one type; None if there is
    none."""
    if len(region.inputs) != 2 or len(region.outputs) != 1:
        return None
    dtype = region.outputs[0].dtype
    op = region.outputs[0].op
    if op is not None and op.name == "convert" and dtype_class(dtype) == "float" and dtype.itemsize < 4:
        op = op.operands[0].op  # computed wider and rounded, as a reduction of halves is anyway
    if op is None or {_unwidened(x, dtype) for x in op.operands} != set(region.inputs):
        return _chosen(op, region)
    kind = KINDS.get(op.name)
    return BOOLEAN.get(kind, kind) if dtype == BOOL and kind else kind


def _unwidened(x: Value, dtype: np.dtype) -> Value:
    op = x.op
    if op is not None and op.name == "convert" and op.operands[0].dtype == dtype and dtype.itemsize < x.dtype.itemsize:
        return op.operands[0]
    return x


def _chosen(op: Op | None, region: Region) -> str | None:
    """Recognise `select(a > b, a, b)`, the maximum of integers. For floats it differs from `maximum` at NaN."""
    if op is None or op.name != "select" or dtype_class(region.outputs[0].dtype) not in ("int", "uint"):
        return None
    test, *branches = op.operands
    if test.op is None or test.op.name != "compare" or set(branches) != set(region.inputs):
        return None
    if set(test.op.operands) != set(branches):
        return None
    greater = test.op.attrs["direction"] in ("GT", "GE")
    if not greater and test.op.attrs["direction"] not in ("LT", "LE"):
        return None
    return "max" if greater == (test.op.operands[0] is branches[0]) else "min"


def monoid_region(kind: str, dtype: np.dtype) -> Region:
    """Make the region of a monoid."""
    inputs = tuple(Value(dtype, (), None, i) for i in range(2))
    op = make_op(REDUCERS[kind], inputs, {}, [(dtype, ())], "")
    return Region(inputs, (op,), op.results)


def identity_number(kind: str, dtype: np.dtype) -> float:
    """Return the identity of a monoid, as registers hold it: combining with it changes no element of the type."""
    return _IDENTITIES[kind](dtype)


def identity(kind: str, dtype: np.dtype) -> np.ndarray:
    """Return the identity as an element. The sum of f8E8M0FNU, a type without 0, has none: it is NaN there."""
    return np.array(identity_number(kind, dtype)).astype(dtype)


# ----------------------------------------------------------------------------------------------------- asked of numpy


def commutes(region: Region) -> bool:
    """Whether the two operands may be exchanged."""
    return _probe(region).commutes


def selects(region: Region) -> bool:
    """Whether the result always is one of the two operands as a whole.

    An associative function that does this takes the first or the last of those that are largest in some order.
    """
    return _probe(region).selects


def absorbs(region: Region, inits: Sequence[Value]) -> bool:
    """Whether combining with the initial values, which must be constants, changes nothing."""
    constants = [v.op.attrs["value"] for v in inits if v.op is not None and v.op.name == "constant"]
    if len(constants) != len(inits):
        return False
    n = len(region.outputs)
    xs, _, captured = _samples(region)
    start = [np.broadcast_to(c, x.shape) for c, x in zip(constants, xs, strict=True)]
    body = Function(region, {})
    if _has_sizes(region):
        return False
    made = body(*start, *xs, *captured), body(*xs, *start, *captured)
    return all(bool(_same(x, y).all()) for side in made for x, y in zip(side, xs[:n], strict=True))


class _Probe:
    def __init__(self, region: Region):
        self.commutes = self.selects = False
        if _has_sizes(region):
            return
        a, b, captured = _samples(region)
        body = Function(region, {})
        forth, back = body(*a, *b, *captured), body(*b, *a, *captured)
        self.commutes = bool(_all_same(forth, back).all())
        self.selects = bool((_all_same(forth, a) | _all_same(forth, b)).all())


_probes: dict[tuple[Hashable, ...], _Probe] = {}


def _probe(region: Region) -> _Probe:
    key = region.key
    if key not in _probes:
        _probes[key] = _Probe(region)
    return _probes[key]


def _has_sizes(region: Region) -> bool:
    return any(op.name == "dim" for op in region.ops)


def _same(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.asarray((x == y) | ((x != x) & (y != y)))


def _all_same(xs: Sequence[np.ndarray], ys: Sequence[np.ndarray]) -> np.ndarray:
    return functools.reduce(np.logical_and, itertools.starmap(_same, zip(xs, ys, strict=True)))


def _samples(region: Region) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Make arguments for the region: two operands, half of whose elements are ties, and the captured values."""
    n = len(region.outputs)
    rng = np.random.default_rng(0)
    left, right = [], []
    for value in region.inputs[:n]:
        line = _values(value.dtype, region)
        a, b = (line[rng.integers(0, len(line), _SAMPLES)] for _ in range(2))
        left.append(a)
        right.append(np.where(rng.integers(0, 2, _SAMPLES) == 0, a, b).astype(value.dtype))
    captured = []
    for value in region.inputs[2 * n :]:
        line = _values(value.dtype, region)
        captured.append(line[rng.integers(0, len(line), _SAMPLES)])
    return left, right, captured


def _values(dtype: np.dtype, region: Region) -> np.ndarray:
    """List values at which functions of this type differ, with the region's own constants."""
    own = [op.attrs["value"].reshape(1) for op in region.ops if op.name == "constant" and op.result.dtype == dtype]
    return np.concatenate([_usual_values(dtype), *own])


def _usual_values(dtype: np.dtype) -> np.ndarray:
    kind = dtype_class(dtype)
    if kind == "bool":
        return np.array([False, True])
    if kind in ("int", "uint"):
        low, high = int_limits(dtype)
        numbers = [0, 1, 2, 3, 5, low, high, *((-1, -2, -7) if kind == "int" else ())]
        return np.array([min(x, high) for x in numbers], object).astype(dtype)
    least, most = limits(part_dtype(dtype))
    line = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.25, -7.5, most, least, np.nan]
    if kind == "complex":
        return np.array([complex(x, y) for x in line for y in line], dtype)
    return np.array(line).astype(dtype)
