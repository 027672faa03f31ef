"""Shape arithmetic of TensorFlow, by numpy's functions on arrays of elements that are sizes.

Elements that depend on data are followed too, as symbols (`Evaluator.opaque`), so that `x[i : i + 3]` has three rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.elements import Element
from hlo_disc.import_.sizes.shapes import LIMIT, Operand, Symbolic

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node

# Those whose result may be another number than integers of any length give.
_MAY_WRAP = frozenset(f"tf.{name}" for name in ("AddV2", "Add", "Sub", "Mul", "Neg", "Square", "Prod", "Sum", "Cast"))

# Makes of arrays of elements the result's; None where it has no meaning for sizes.
Fold = Callable[..., "np.ndarray | None"]


def elements_of(x: Symbolic) -> np.ndarray:
    """Return the elements as an array of objects."""
    made = np.empty(len(x.elements), object)
    made[:] = x.elements
    return made.reshape(x.sizes)


def symbolic(r: Reader, elements: np.ndarray, dtype: np.dtype, exact: bool = True) -> Symbolic | None:
    """Return elements as an operand; None if there are too many, or if they are not sizes of a type for sizes."""
    flat = tuple(elements.reshape(-1).tolist())
    if dtype.kind not in "iub" or len(flat) > LIMIT or any(e is None for e in flat):
        return None
    if dtype.kind != "b":
        found = r.evaluator.in_range(dtype, flat)
        if found is None:
            return None
        flat = found
    return Symbolic(dtype, elements.shape, flat, exact)


def sizes_operand(r: Reader, sizes: Sequence[Dim], dtype: DTypeLike = np.int32, scalar: bool = False) -> Symbolic:
    """Return sizes as an operand, whose type must be able to hold them."""
    for size in sizes if np.dtype(dtype).itemsize < 8 else ():
        r.fits(size, np.dtype(dtype))
    return Symbolic(np.dtype(dtype), () if scalar else (len(sizes),), tuple(sizes))


def taken(x: Symbolic, made: Symbolic, op: Node, computed: Callable[[], Value]) -> Symbolic:
    """Return `made`, which consists of elements of `x`; it is computed as data if these may have wrapped."""
    made.may_wrap(op, [x], lambda *_: computed(), None)
    return made


def folding(fold: Fold, handler: Handler) -> Handler:
    """Make a handler that computes sizes from sizes with `fold(reader, op, *arrays)`, and ops from other operands."""

    def both(r: Reader, op: Node, operands: list[Operand]) -> Result:
        found = _folded(r, op, operands, fold)
        if found is not None and not found.exact:
            made = handler(r, op, operands)
            if not isinstance(made, Value):
                return made
            found.value = made
        elif found is not None:
            found.may_wrap(op, operands, handler, r.facts if op.operation.name in _MAY_WRAP else None)
        return handler(r, op, operands) if found is None else found

    return both


def _folded(r: Reader, op: Node, operands: list[Operand], fold: Fold) -> Symbolic | None:
    dtype = op.results[0].type.dtype
    if dtype is None or dtype.kind not in "iub" or not any(type(x) is Symbolic for x in operands):
        return None
    known = [r.evaluator.opaque(x) if isinstance(x, Value) else x for x in operands]
    if not all(type(x) is Symbolic for x in known):
        return None
    exact = all(x.exact for x in known)  # type: ignore[union-attr]
    if not exact and (dtype.kind == "b" or dtype.itemsize < 4):
        return None
    elements = fold(r, op, *(elements_of(x) for x in known))  # type: ignore[arg-type]
    return None if elements is None else symbolic(r, elements, dtype, exact)


def by_element(function: Callable[..., Element | None]) -> Fold:
    """Make a fold from `function(Elements, *elements)`, with its operands broadcast."""

    def fold(r: Reader, op: Node, *arrays: np.ndarray) -> np.ndarray | None:
        scalar = r.evaluator.scalar
        return objects(np.frompyfunc(lambda *args: function(scalar, *args), len(arrays), 1)(*arrays))

    return fold


def objects(made: object) -> np.ndarray:
    """Make an array of elements: numpy returns an array without axes as its element."""
    if isinstance(made, np.ndarray):
        return made
    scalar = np.empty((), object)
    scalar[()] = made
    return scalar
