"""Facts that record the questions they are asked, so that one knows which answers a result depends on."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth

# A question: the name of a method of `ShapeFacts`, and its arguments.
Question = tuple[str, tuple[object, ...]]
# Questions with their answers, in the order in which they were asked first.
Answers = dict[Question, object]


class _Noted(threading.local):
    """The questions that this thread records now."""

    def __init__(self) -> None:
        self.answers: Answers = {}


class AskedFacts(ShapeFacts):
    """The facts of a graph, for code that only asks. Facts cannot be added. Each thread records its own questions."""

    def __init__(self, facts: ShapeFacts) -> None:
        self._facts, self.told = facts, facts.told
        self._noted = _Noted()

    @property
    def _answers(self) -> Answers:
        return self._noted.answers

    @contextmanager
    def noting(self) -> Iterator[Answers]:
        """Record the questions asked inside, except those inside a nested context of this kind."""
        outer = self._noted.answers
        inner = self._noted.answers = {}
        try:
            yield inner
        finally:
            self._noted.answers = outer

    def note(self, answers: Answers) -> None:
        """Record questions that were asked elsewhere."""
        self._answers.update(answers)

    def equal(self, a: int | Dim, b: int | Dim) -> Truth:
        answer = self._answers["equal", (a, b)] = self._facts.equal(a, b)
        return answer

    def same_size(self, a: Iterable[int | Dim], b: Iterable[int | Dim]) -> Truth:
        a, b = tuple(a), tuple(b)
        answer = self._answers["same_size", (a, b)] = self._facts.same_size(a, b)
        return answer

    def at_most(self, a: int | Dim, b: int | Dim) -> Truth:
        answer = self._answers["at_most", (a, b)] = self._facts.at_most(a, b)
        return answer

    def less(self, a: int | Dim, b: int | Dim) -> Truth:
        answer = self._answers["less", (a, b)] = self._facts.less(a, b)
        return answer

    def holds(self, a: int | Dim, relation: str, b: int | Dim) -> Truth:
        answer = self._answers["holds", (a, relation, b)] = self._facts.holds(a, relation, b)
        return answer

    def divisible(self, d: int | Dim, k: int) -> Truth:
        answer = self._answers["divisible", (d, k)] = self._facts.divisible(d, k)
        return answer

    def bounds(self, d: int | Dim) -> tuple[int | None, int | None]:
        answer = self._answers["bounds", (d,)] = self._facts.bounds(d)
        return answer

    def canonical(self, d: int | Dim) -> Dim:
        answer = self._answers["canonical", (d,)] = self._facts.canonical(d)
        return answer

    def likely(self, d: int | Dim) -> int:
        answer = self._answers["likely", (d,)] = self._facts.likely(d)
        return answer
