"""The threads of one compilation, in which LLVM compiles while Python builds the next kernels."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

_Result = TypeVar("_Result")
# Seconds that a thread runs Python while another one waits for its turn.
_TURN = 2e-4
_turns_lock = threading.Lock()
_turns: list[float] = []


class Workers(Generic[_Result]):
    """Functions that threads call as they come, and at last the caller, too.

    So with one processor there is no other thread than the caller's, and a process that gets none compiles as well.
    """

    def __init__(self, threads: int):
        self._most = threads - 1
        self._threads: list[threading.Thread] = []
        self._waiting: queue.SimpleQueue[tuple[Future[_Result], Callable[[], _Result]] | None] = queue.SimpleQueue()
        self._futures: list[Future[_Result]] = []

    def add(self, function: Callable[[], _Result]) -> None:
        """Add a function, for a new thread if one more is allowed."""
        future: Future[_Result] = Future()
        self._futures.append(future)
        self._waiting.put((future, function))
        if len(self._threads) < self._most:
            thread = threading.Thread(target=self._serve, name="hlo_disc-llvm", daemon=True)
            with suppress(RuntimeError):  # the process may have no more
                thread.start()
                self._threads.append(thread)

    def results(self) -> list[_Result]:
        """Call the functions that no thread has begun, and return all results in order. Raises the error of the first
        that failed."""
        with suppress(queue.Empty):
            while task := self._waiting.get_nowait():
                _call(*task)
        return [future.result() for future in self._futures]

    def close(self) -> None:
        """Wait for the threads, which begin with nothing more."""
        with suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while task := self._waiting.get():
            _call(*task)


def _call(future: Future[_Result], function: Callable[[], _Result]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)
        if not isinstance(error, Exception):  # who interrupts the caller need not wait for all that is left
            raise


@contextmanager
def workers(threads: int) -> Iterator[Workers[Any]]:
    """Yield so many threads, the caller's among them, or 0 for one for each processor that this process may use."""
    made: Workers[Any] = Workers(threads or len(os.sched_getaffinity(0)))
    try:
        with short_turns():
            yield made
    finally:
        made.close()


@contextmanager
def short_turns() -> Iterator[None]:
    """Threads take turns often: one that has LLVM work and little else waits for its turn some twenty times a module.

    Of a compilation such a thread saves a fifth, by Python's own setting, of 5 ms, less than a tenth.
    """
    with _turns_lock:
        _turns.append(sys.getswitchinterval())
        sys.setswitchinterval(min(_TURN, _turns[-1]))
    try:
        yield
    finally:
        with _turns_lock:
            sys.setswitchinterval(_turns.pop())
