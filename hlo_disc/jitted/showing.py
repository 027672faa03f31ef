"""What a jitted function shows of its programs: `JitFunction.explain` and `JitFunction.profile`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hlo_disc.errors import UnsupportedOpError
from hlo_disc.executable import Executable

if TYPE_CHECKING:
    from hlo_disc.jitted.flat import FlatFunction
    from hlo_disc.jitted.programs import Programs
    from hlo_disc.profile import Profile


def executables(functions: Sequence[Programs]) -> Iterator[Executable]:
    """The programs in use."""
    for programs in functions:
        for flat in list(programs.functions.values()):
            yield from flat.executables()


def explained(stats: str, functions: Sequence[Programs], full: bool) -> str:
    """`JitFunction.explain`."""
    from hlo_disc.explain import text

    found = list(executables(functions))
    if full:
        return "\n\n".join([stats, *(executable.explain(full=True) for executable in found)])
    return text.several(stats, [executable.program for executable in found])


def profiled(flat: FlatFunction, leaves: Sequence[Any]) -> Profile:
    """The program that serves a call with these arrays, profiled with them; it is compiled where there is none."""
    from hlo_disc.ral.contexts.jax import is_spread, platform_of
    from hlo_disc.values import as_array, describe_all, taken

    infos = describe_all(leaves, flat.names, flat.name)
    if any(map(is_spread, leaves)):
        raise UnsupportedOpError(f"{flat.name}: arrays that are spread over devices are left to jax.jit")
    there = flat.on(platform_of(leaves)) if flat.follows else flat
    program = there.program(there.entry(infos), infos)
    conversions = [taken(x, info) for x, info in zip(leaves, infos, strict=True)]
    arrays = [c(x) if c else as_array(x, i) for x, i, c in zip(leaves, infos, conversions, strict=True)]
    return program.executable.profile(*arrays)
