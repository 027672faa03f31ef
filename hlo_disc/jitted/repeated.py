"""Repeated calls of many small arrays with the same types: an XLA program creates the resulting arrays.

If XLA runs the program that computes an array, jaxlib creates the `jax.Array` in a tenth of the time that others need.
So after a hundred calls of the same types, an XLA program is compiled that only calls ours, as inside of `jax.jit`,
with our threads. Its compilation takes as long as a few hundred calls save.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hlo_disc import ral
from hlo_disc.compiled.program import dtype_named
from hlo_disc.dynamic_hlo.ir.graph import Guard, raw_dim
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.executable import Executable
from hlo_disc.targets import registry
from hlo_disc.tracing.trace import broken

if TYPE_CHECKING:
    import jax


logger = logging.getLogger("hlo_disc")

# With fewer results little is gained, and with so many arguments for each of them more is lost: what has not changed
# since the last call is read faster here.
_RESULTS = 4
_ARGUMENTS = 4
# Calls before there is an XLA program, and results of such calls: to compile it takes as long as they would have saved.
# They are counted when deferred kernels are there, and inputs are packed.
_OFTEN = 100
_MADE = 5000
# Bytes of all results, of intermediates, and of arguments' packed forms, which are not used then: for more, the time
# goes elsewhere. That there is no memory XLA would say later, and in other words. Without 80 KB of packed weights a
# training step took 20 % less time, without 430 KB a convolutional net 10 to 40 % more.
_SMALL = 1 << 20
_TEMPORARY = 1 << 26
_PACKED = 1 << 17


def repeated(executable: Executable, weak: Sequence[bool]) -> Callable[..., tuple[jax.Array, ...]]:
    """Return how calls from Python run a program. weak: which results have a weak type."""
    from hlo_disc.ral.contexts.jax import array_type, is_narrow

    program, native = executable.linked, executable.native
    types = {x.dtype for x in program.inputs} | {x.dtype for x in program.outputs}
    many = max(_RESULTS, len(program.inputs) / _ARGUMENTS) <= len(program.outputs)
    # What a library call or a GPU says of a mistake would come later, and as another exception.
    surely = not program.calls and not registry.find(program.target).driver
    if not many or not surely or any(is_narrow(dtype_named(name)) for name in types):
        return native
    often = _OFTEN + _MADE // len(program.outputs)
    return ral.repeated(native, array_type(), often, functools.partial(_compiled, executable, tuple(weak)))


def _compiled(
    executable: Executable, weak: Sequence[bool], arrays: Sequence[jax.Array]
) -> Callable[..., tuple[jax.Array, ...]] | None:
    """Return an XLA program that calls ours with arrays like these; None if that is impossible or does not pay."""
    from hlo_disc.ral.contexts.jax import compiled_with, lie_on_first_cpu

    if not lie_on_first_cpu(arrays) or not _is_small_and_sure(executable, arrays):
        return None
    try:
        return compiled_with(executable.native, executable.content, arrays, weak)
    except Exception:  # the program itself serves the call as before
        logger.info("no XLA program calls %r", executable, exc_info=True)
        return None


def _is_small_and_sure(executable: Executable, arrays: Sequence[jax.Array]) -> bool:
    """Whether a call with these sizes needs little memory, and cannot fail."""
    program, native = executable.linked, executable.native
    inferred = native.infer([(row.dtype, x.shape) for row, x in zip(program.inputs, arrays, strict=True)])
    size = sum(dtype_named(name).itemsize * math.prod(shape) for name, shape in inferred.types)
    packed = native.packed_bytes() - sum(pack.size for pack in program.packs if pack.kind == "constant")
    if size > _SMALL or inferred.temporary > _TEMPORARY or packed > _PACKED:
        return False
    words = native.plan([n for x in arrays for n in x.shape])[program.env.symbols :]
    sizes = {str(raw_dim(i, axis)): n for i, x in enumerate(arrays) for axis, n in enumerate(x.shape)}
    sizes |= dict(zip(program.symbols, words, strict=False))
    guards = [Guard(Dim.parse(g.lhs), g.relation, Dim.parse(g.rhs), g.message) for g in program.guards]
    try:  # also what is checked where a call may not come
        return not broken(guards, sizes)
    except KeyError:  # a size that only the data says
        return False
