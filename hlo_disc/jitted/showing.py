"""The display of a jitted function: itself at a prompt, and its programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hlo_disc.display.notebook import counted, html_table
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.jitted.fallback import SPREAD
from hlo_disc.tracing.values import as_array, describe_all, taken

if TYPE_CHECKING:
    from jax.typing import ArrayLike

    from hlo_disc.display.stats import Stats
    from hlo_disc.jitted.flat import FlatFunction
    from hlo_disc.jitted.programs import Programs
    from hlo_disc.profile import Profile
    from hlo_disc.tracing.signature import Signature
    from hlo_disc.tracing.values import Leaf


class Shown:
    """The part of a JitFunction that displays it."""

    if TYPE_CHECKING:
        signature: Signature
        stats: Callable[[], Stats]
        _by_settings: dict[Any, Programs]
        _flat_for: Callable[[tuple[object, ...], dict[str, object]], tuple[FlatFunction, list[ArrayLike], str]]

    def __repr__(self) -> str:
        return f"<hlo_disc.jit of {self.signature.name}: {self.stats().summary()}>"

    def _repr_html_(self) -> str:
        stats = self.stats()
        rows = [
            *((f"{r.seconds:.2f} s", r.reason, ", ".join(r.arguments)) for r in stats.records),
            *(
                (counted(f.calls, "call"), f"through jax.jit: {f.reason}", ", ".join(f.arguments))
                for f in stats.fallbacks
            ),
        ]
        return html_table(f"hlo_disc.jit of {self.signature.name}: {stats.summary()}", rows)

    def explain(
        self, full: bool = False, html: str | os.PathLike[str] | None = None, profile: Profile | None = None
    ) -> str:
        """The text of `stats()` and, for each program in use, that of `Executable.explain`, which says what these are.

        Args:
            full: everything. Otherwise it is less than 60 lines, and says how many programs are left out.
            html: a file for the page, in which one chooses a program.
            profile: what `profile` returned.

        Raises:
            OSError: the file cannot be written.
        """
        from hlo_disc.explain.explanation import explain_function

        functions = [
            flat for programs in list(self._by_settings.values()) for flat in list(programs.functions.values())
        ]
        found = [executable.program for flat in functions for executable in flat.executables()]
        times = profile.as_dict() if profile else None
        return explain_function(f"{self.signature.name}: {self.stats()}", found, full, html, times)

    def profile(self, *args: object, **kwargs: object) -> Profile:
        """`Executable.profile` of the program that serves a call, which is compiled where there is none.

        Args:
            args: as of a call; none of them is donated.
            kwargs: the same by name.

        Raises:
            UnsupportedOpError: a call that runs through `jax.jit`.
            HloDiscError: what a call and `Executable.profile` raise.
        """
        from hlo_disc.ral.contexts.jax import is_spread

        flat, leaves, for_jax = self._flat_for(args, kwargs)
        if for_jax or any(map(is_spread, leaves)):
            raise UnsupportedOpError(f"{flat.name} is not compiled for this call: {for_jax or SPREAD}")
        infos = describe_all(leaves, flat.names, flat.name)
        there = flat.on_machine_of(leaves)
        program = there.program(there.entry(infos), infos)
        return program.executable.profile(*_as_taken(leaves, infos))


def _as_taken(leaves: Sequence[ArrayLike], infos: Sequence[Leaf]) -> list[ArrayLike]:
    """Convert arguments to the form that a program takes."""
    conversions = [taken(x, info) for x, info in zip(leaves, infos, strict=True)]
    return [c(x) if c else as_array(x, i) for x, i, c in zip(leaves, infos, conversions, strict=True)]
