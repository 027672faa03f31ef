"""A progress bar on stderr for a long compilation, if stderr is a terminal."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

AFTER = 2.0  # seconds
_busy = threading.Lock()  # there is one bar at a time


@functools.cache
def console() -> Console:
    """Return the only console for stderr, so that no drawing covers another one."""
    from rich.console import Console

    return Console(stderr=True)


@contextmanager
def bar(steps: Sequence[str]) -> Iterator[Callable[[str], None]]:
    """Yield a function that is called with the name of each step. The bar appears after AFTER seconds, until the
    context ends."""
    if not sys.stderr.isatty() or not _busy.acquire(blocking=False):
        yield lambda step: None
        return
    shown = _Bar(steps)
    try:
        yield shown.begin
    finally:
        shown.end()
        _busy.release()


class _Bar:
    """The bar. A timer's thread draws it; the compiler only reports its steps."""

    def __init__(self, steps: Sequence[str]):
        self._steps, self._at = steps, 0
        self._lock = threading.Lock()
        self._ended = False
        self._progress: Progress | None = None
        self._timer = threading.Timer(AFTER, self._start)
        self._timer.daemon = True
        self._timer.start()

    def begin(self, step: str) -> None:
        with self._lock:
            self._at = self._steps.index(step)
            if self._progress:
                (task,) = self._progress.task_ids
                self._progress.update(task, completed=self._at, description=step)

    def end(self) -> None:
        self._timer.cancel()
        with self._lock, suppress(OSError):  # the terminal may have gone
            self._ended = True
            if self._progress:
                self._progress.stop()

    def _start(self) -> None:
        from rich.errors import LiveError
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = TextColumn("compiling"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}")
        with self._lock, suppress(OSError, LiveError):  # an older rich draws nothing below something else
            if self._ended:
                return
            progress = Progress(*columns, TimeElapsedColumn(), console=console(), transient=True)
            progress.add_task(self._steps[self._at], total=len(self._steps), completed=self._at)
            progress.start()
            self._progress = progress
