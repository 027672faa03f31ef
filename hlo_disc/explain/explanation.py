"""The result of `explain`: a text that a notebook shows as a page."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Mapping, Sequence

from hlo_disc.compiled.program import Program
from hlo_disc.explain import text
from hlo_disc.explain.page import page, write
from hlo_disc.targets import registry


class Explanation(str):
    """A text that a notebook shows as a page."""

    _page: Callable[[], str]

    @staticmethod
    def of(text: str, page: Callable[[], str]) -> Explanation:
        """Make an explanation. page: called for the page when it is needed."""
        made = Explanation(text)
        made._page = page
        return made

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    def _repr_html_(self) -> str:
        style = "width: 100%; height: 44rem; border: 1px solid #8886; border-radius: 8px"
        return f'<iframe title="explain" srcdoc="{html.escape(self._page())}" style="{style}"></iframe>'


def explain_program(
    program: Program,
    full: bool = False,
    file: str | os.PathLike[str] | None = None,
    profile: Mapping[str, object] | None = None,
) -> Explanation:
    """Return the explanation of a program for any machine, and write its page to a file if one is given.

    profile: as `page` takes it.
    """
    if file is not None:
        write(file, [program], profile)
    notes = registry.find(program.target).kernels(program.object) if full else []
    said = text.full(program, notes) if full else text.summary(program)
    return Explanation.of(said, lambda: page([program], profile))


def explain_function(
    stats: str,
    programs: Sequence[Program],
    full: bool,
    file: str | os.PathLike[str] | None,
    profile: Mapping[str, object] | None,
) -> Explanation:
    """Return a jitted function's statistics and the explanations of its programs; write the page to a file if given."""
    if file is not None:
        write(file, programs, profile)
    each = [explain_program(program, full=True) for program in programs] if full else []
    said = "\n\n".join([stats, *each]) if full else text.several(stats, programs)
    return Explanation.of(said, lambda: page(programs, profile))
