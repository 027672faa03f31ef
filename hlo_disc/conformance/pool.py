"""Worker processes that survive a crash, an abort or a hang of a case: one worker ends, and the case is reported."""

from __future__ import annotations

import ctypes
import itertools
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from hlo_disc.conformance.run import Result, Settings, Stage, run_case

Task = tuple[Path, str]  # a file, and what the case is called
Run = Callable[[Path, str, Settings, Stage], Result]
_PARENT_DIED = 1  # prctl's PR_SET_PDEATHSIG


def _serve(run: Run, connection: Connection, settings: Settings, messages: str) -> None:
    """The worker's loop: a task in, messages of stages, a result out."""
    ctypes.CDLL(None).prctl(_PARENT_DIED, signal.SIGKILL)
    # What MLIR, LLVM and XLA write before they abort is the reason of a crash.
    descriptor = os.open(messages, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 2)
    while True:
        try:
            path, name = connection.recv()
        except EOFError:
            return
        os.ftruncate(descriptor, 0)
        connection.send(run(path, name, settings, lambda *where: connection.send(where)))


class _Worker:
    def __init__(self, run: Run, settings: Settings, messages: Path):
        self.messages = messages
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(run, theirs, settings, str(messages)), daemon=True)
        self.process.start()
        theirs.close()
        self.task: Task | None = None
        self.where = ("", "", "")  # stage, kind of case, op
        self.deadline = 0.0
        self.started = 0.0

    def start(self, task: Task, timeout: float) -> None:
        self.task, self.where = task, ("start", "", "")
        self.started = time.monotonic()
        self.deadline = self.started + timeout
        self.connection.send(task)

    def lost(self, status: str, reason: str) -> Result:
        """Make the result of a case whose worker is gone."""
        assert self.task is not None
        stage, kind, op = self.where
        seconds = {stage: time.monotonic() - self.started}
        return Result(self.task[1], kind, op, status, f"{reason} in stage {stage!r}", seconds)

    def how_it_died(self) -> str:
        self.process.join(5)
        code = self.process.exitcode
        name = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
        text = self.messages.read_text(errors="replace") if self.messages.exists() else ""
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith((" #", "Stack dump"))]
        return f"{name}: {lines[0][:300]}" if lines else name

    def stop(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()


def run_cases(
    tasks: Iterable[Task], settings: Settings, jobs: int, timeout: float, run: Run = run_case
) -> Iterator[Result]:
    """Yield the results of all tasks as they arrive, from `jobs` workers; a case may take `timeout` seconds."""
    waiting = iter(tasks)
    with tempfile.TemporaryDirectory(prefix="hlo_disc-") as directory:
        paths = (Path(directory) / f"worker{i}" for i in itertools.count())
        workers = [_Worker(run, settings, next(paths)) for _ in range(jobs)]
        try:
            for worker in workers:
                _next(worker, waiting, timeout)
            while busy := [w for w in workers if w.task is not None]:
                _sleep(busy)
                for worker in busy:
                    result = _poll(worker)
                    if result is None:
                        continue
                    yield result
                    if result.status in ("crashed", "timeout"):
                        worker.stop()
                        workers.remove(worker)
                        worker = _Worker(run, settings, next(paths))
                        workers.append(worker)
                    _next(worker, waiting, timeout)
        finally:
            for worker in workers:
                worker.stop()


def _next(worker: _Worker, waiting: Iterator[Task], timeout: float) -> None:
    task = next(waiting, None)
    worker.task = None
    if task is not None:
        worker.start(task, timeout)


def _sleep(busy: Sequence[_Worker]) -> None:
    """Sleep until a worker sends something, dies, or has run out of time."""
    until = min(w.deadline for w in busy) - time.monotonic()
    things: list[Any] = [w.connection for w in busy]
    wait(things + [w.process.sentinel for w in busy], max(until, 0))


def _poll(worker: _Worker) -> Result | None:
    """Return the worker's result, if there is one."""
    try:
        while worker.connection.poll():
            message = worker.connection.recv()
            if isinstance(message, Result):
                return message
            worker.where = message
    except (EOFError, ConnectionResetError):
        return worker.lost("crashed", worker.how_it_died())
    if not worker.process.is_alive() and not worker.connection.poll():
        return worker.lost("crashed", worker.how_it_died())
    if time.monotonic() > worker.deadline:
        return worker.lost("timeout", f"no result after {worker.deadline - worker.started:.0f} s")
    return None
