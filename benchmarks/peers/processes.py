"""The processes of the peers, and the environments that they run in."""

from __future__ import annotations

import functools
import json
import os
import pkgutil
import selectors
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers import runners
from benchmarks.program import Program

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "peers"


class PeerError(Exception):
    """A peer cannot do what is asked, its process has ended, or it took too long."""


def environment(module: str, checkout: Path = ROOT) -> Path:
    return checkout / (".venv" if module == "jax" else f".venv-{module}")


def modules() -> list[str]:
    return [name for _, name, _ in pkgutil.iter_modules(runners.__path__)]


def made(module: str) -> str:
    """Make the environment of a module of runners if there is none yet. Return "", or the reason why that failed."""
    stamp = environment(module) / "installed"
    log = FOLDER / f"{module}.make.log"
    with log.open("w") as stream:
        done = subprocess.run(
            ["make", str(stamp.relative_to(ROOT))], cwd=ROOT, stdout=stream, stderr=subprocess.STDOUT, check=False
        )
    if not done.returncode:
        return ""
    last = next((line for line in reversed(log.read_text().splitlines()) if "ERROR" in line), "see the log")
    return f"its environment cannot be made: {last[:160]} ({log.relative_to(ROOT)})"


def described(module: str) -> list[dict[str, Any]]:
    """Return the descriptions of the peers of a module of runners. Raises PeerError."""
    done = subprocess.run(_command(module), cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerError(f"its module does not load: {(done.stderr.strip().splitlines() or [''])[-1][:160]}")
    return json.loads(done.stdout)


def _command(module: str, *arguments: str, checkout: Path = ROOT) -> list[str]:
    python = environment(module, checkout) / "bin" / "python"
    return [str(python), "-W", "ignore", "-m", "benchmarks.peers.worker", module, *arguments]


class Process:
    """The process of one peer, run by the environment of a checkout. Its error output goes to a log."""

    def __init__(self, module: str, name: str, checkout: Path = ROOT):
        self.name = name
        self._log = (FOLDER / f"{name.replace(' ', '-')}.log").open("a")
        self._process = subprocess.Popen(
            _command(module, name, checkout=checkout),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            # Every user's Python keeps what it compiles.
            env={name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        )
        self._selector = selectors.DefaultSelector()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._selector.register(self._stdout, selectors.EVENT_READ)

    def begin(self, what: str, **settings: Any) -> None:
        """Send a request, whose answer comes later. Raises PeerError."""
        try:
            self._stdin.write(json.dumps([what, settings]).encode() + b"\n")
            self._stdin.flush()
        except OSError:
            raise PeerError(f"its process ended{self._ending()}") from None

    def answer(self, seconds: float) -> Any:
        """Return the answer to the last request. Raises PeerError; a process that takes too long is ended."""
        end = time.monotonic() + seconds
        text = b""
        while not text.endswith(b"\n"):
            if not self._selector.select(max(end - time.monotonic(), 0)):
                self.close()
                raise PeerError(f"took more than {seconds:.0f} s")
            more = self._stdout.read1(1 << 16)
            if not more:
                raise PeerError(f"its process ended{self._ending()}")
            text += more
        reply = json.loads(text)
        if "error" in reply:
            raise PeerError(reply["error"])
        return reply["value"]

    def ask(self, what: str, seconds: float, **settings: Any) -> Any:
        self.begin(what, **settings)
        return self.answer(seconds)

    def _ending(self) -> str:
        code = self._process.wait()
        return f" by signal {-code}" if code < 0 else f" with code {code}"

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


def readable(program: Program, dtype: str, peer: Mapping[str, Any]) -> tuple[Path, float] | None:
    """Return the file that a peer reads, and the seconds of its export; None if it reads none.

    Raises PeerError for a program that the peer cannot run.
    """
    if dtype not in peer["dtypes"]:
        raise PeerError(f"has no {dtype}")
    if peer["infers"] and program.trains:
        raise PeerError("has no programs that train")
    found = _exported(program.name, "f32" if peer["reads_f32"] else dtype) if peer["reads_file"] else None
    if isinstance(found, str):
        raise PeerError(f"no ONNX: {found}")
    return found


@functools.cache
def _exported(program: str, dtype: str) -> tuple[Path, float] | str:
    """Return the path of a program's ONNX file, and the seconds of the export; or the reason why there is none."""
    folder = FOLDER / "exports" / f"{program}-{dtype}".replace(" ", "-").replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "program.onnx"
    python = environment("torch") / "bin" / "python"
    if not python.exists():
        return "there is no environment of PyTorch"
    command = [str(python), "-W", "ignore", "-m", "benchmarks.peers.export", program, dtype, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [""])[-1][:160]
    return path, float(json.loads(done.stdout.splitlines()[-1]))
