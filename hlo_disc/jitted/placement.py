"""The parameters of `jax.jit` for memory and devices: donation, shardings. We apply them or leave them to `jax.jit`.

A program reads its arguments where they lie and makes new results, so a donated array is deleted once the call is over,
where `jax.jit` would have put a result into its memory.
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hlo_disc.display.stats import depth_of_user
from hlo_disc.errors import ArgumentError

if TYPE_CHECKING:
    import jax
    from jax.typing import ArrayLike

T = TypeVar("T")

# The parameters of `jax.jit` that `hlo_disc.jit` takes as they are.
PARAMETERS = frozenset(
    "donate_argnums donate_argnames keep_unused inline in_shardings out_shardings device backend".split()
)

# How a result is matched with a donated array: by its type, and what is left by its number of elements.
_MATCHES: tuple[Callable[[Any], Any], ...] = (operator.attrgetter("shape", "dtype"), operator.attrgetter("size"))


class Placement:
    """The parameters of a jitted function.

    reason_for_jax: why its calls run through `jax.jit`; "" if programs serve them.
    """

    def __init__(self, parameters: Mapping[str, object]):
        shardings = [x for name in ("in_shardings", "out_shardings") for x in _leaves(parameters.get(name))]
        wanted = [x for x in (*shardings, parameters.get("device"), parameters.get("backend")) if x is not None]
        elsewhere = [x for x in wanted if not _is_first_cpu(x)]
        self.reason_for_jax = f"{elsewhere[0]} is asked for: programs run on the first CPU device" if elsewhere else ""
        self._commits = bool(wanted)
        self._told: set[str] = set()

    def finish(self, donated: Sequence[int]) -> Callable[[Sequence[ArrayLike], T], T] | None:
        """Return a function that deletes a call's donated arrays and commits and returns its results; None for neither.

        donated: the donated arrays, without those that the program does not read, as in `jax.jit`.
        """
        return functools.partial(self._finish, donated) if donated or self._commits else None

    def _finish(self, donated: Sequence[int], leaves: Sequence[ArrayLike], results: T) -> T:
        import jax

        if self._commits:
            results = jax.tree.map(_committed, results)
        self._release([(i, leaves[i]) for i in donated if isinstance(leaves[i], jax.Array)], leaves, results)
        return results

    def _release(self, donated: list[tuple[int, jax.Array]], leaves: Sequence[ArrayLike], results: object) -> None:
        """Delete the donated arrays whose memory a result could use. Raises ArgumentError for one passed twice."""
        from jax import tree_util

        usable: list[tuple[int, Any]] = []
        made = tree_util.tree_leaves(results)
        for kind in _MATCHES:
            left = []
            for i, array in donated:
                match = next((k for k, x in enumerate(made) if kind(x) == kind(array)), None)
                if match is None:
                    left.append((i, array))
                else:
                    del made[match]
                    usable.append((i, array))
            donated = left
        for i, array in usable:
            if any(x is array for k, x in enumerate(leaves) if k != i):
                raise ArgumentError(f"an array {_type(array)} is donated and also passed a second time: pass a copy")
        for _, array in usable:
            array.delete()
        text = ", ".join(_type(array) for _, array in donated)
        if text and text not in self._told:
            self._told.add(text)
            message = f"Some donated buffers were not usable: {text}: no result is as large"
            warnings.warn(message, stacklevel=depth_of_user())


def _type(array: jax.Array) -> str:
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


def _leaves(shardings: object) -> list[object]:
    from jax import tree_util

    leaves: list[object] = tree_util.tree_leaves(shardings)
    return leaves


def _is_first_cpu(place: object) -> bool:
    """Whether a sharding, a device or the name of a backend means the first CPU."""
    import jax

    first = jax.local_devices(backend="cpu")[0]
    if isinstance(place, jax.sharding.SingleDeviceSharding):
        kinds = (None, first.default_memory().kind)
        return place.device_set == {first} and place.memory_kind in kinds
    return place in (first, "cpu")


def _committed(result: object) -> object:
    import jax

    if not isinstance(result, jax.Array):
        return result
    with jax.transfer_guard("allow"):  # it lies there already
        return jax.device_put(result, jax.local_devices(backend="cpu")[0])
