"""What control flow computes, in numpy; a region arrives as a function `(*arrays) -> list of arrays`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import RELATIONS
from hlo_disc.errors import ShapeError

Function = Callable[..., list[np.ndarray]]


def while_(*arrays: np.ndarray, cond: Function, body: Function, carried: int) -> tuple[np.ndarray, ...]:
    state, invariant = list(arrays[:carried]), arrays[carried:]
    while cond(*state, *invariant)[0]:
        state = body(*state, *invariant)
    return tuple(state)


def case(index: np.ndarray, *arrays: np.ndarray, branches: Sequence[Function]) -> tuple[np.ndarray, ...]:
    number = int(index)
    branch = branches[number] if 0 <= number < len(branches) else branches[-1]
    return tuple(branch(*arrays))


def check(lhs: int, relation: str, rhs: int, message: str, args: Sequence[int]) -> tuple[()]:
    if not RELATIONS[relation](lhs, rhs):
        raise ShapeError(message.format(*args))
    return ()
