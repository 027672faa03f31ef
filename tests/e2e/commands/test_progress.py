"""The bar of a long compilation: at a terminal, not before it is long, and nowhere else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading

import pytest

from hlo_disc.display import progress

COMPILE = """
import threading
from hlo_disc import pipeline
from hlo_disc.display import progress
from hlo_disc.options import Options
from tests.oracle.graphs.dhlo import make_graph

progress.AFTER = {after}
graph = make_graph([("float32", "n")], lambda b, x: b.op("add", [x, x]))
drawn = threading.Event()
start = progress._Bar._start

def started(self):
    start(self)
    drawn.set()

progress._Bar._start = started
pipeline.compile(lambda: ({wait}, graph)[1], Options(cache=""))
print("compiled")
"""


def outputs(after: float, wait: str, terminal: bool) -> tuple[str, str]:
    """Return what a process that compiles writes to stdout and stderr."""
    ours, theirs = pty.openpty()
    script = COMPILE.format(after=after, wait=wait)
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=pipe, stderr=theirs if terminal else pipe, text=True, env=environment
    ) as process:
        os.close(theirs)
        if not terminal:
            return process.communicate()
        chunks: list[bytes] = []

        def read() -> None:
            try:
                while chunk := os.read(ours, 4096):
                    chunks.append(chunk)
            except OSError:  # the other end is closed
                pass

        reader = threading.Thread(target=read)
        reader.start()
        out, _ = process.communicate()
        reader.join()
    os.close(ours)
    return out, b"".join(chunks).decode()


def test_a_long_compilation_has_a_bar_at_a_terminal():
    out, err = outputs(0.0, "drawn.wait(60)", terminal=True)
    assert out == "compiled\n"
    assert "compiling" in err and "0/13" in err and "read" in err


@pytest.mark.parametrize(("after", "terminal"), [(1e6, True), (0.0, False)])
def test_others_have_none(after, terminal):
    assert outputs(after, "None", terminal) == ("compiled\n", "")


def test_a_bar_tells_where_it_is(monkeypatch):
    """A bar knows which stage it is at. Without a terminal there is no bar; a second bar does nothing."""
    with progress.bar(["a", "b"]) as begin:
        begin("b")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "AFTER", 1e6)
    with progress.bar(["a", "b"]) as begin, progress.bar(["a", "b"]) as inner:
        begin("b")
        inner("a")
        assert begin.__self__._at == 1 and not hasattr(inner, "__self__")
    with progress.bar(["a", "b"]) as begin:
        begin("a")
        assert begin.__self__._at == 0
