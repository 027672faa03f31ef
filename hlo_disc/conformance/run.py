"""Runs one case, from its file to its `Result`. It may crash or hang: pool.py runs it in a process of its own."""

from __future__ import annotations

import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hlo_disc import sources
from hlo_disc.conformance import oracle
from hlo_disc.conformance.cases import Case, classify, make_case, without_meaning
from hlo_disc.conformance.checks import mismatch
from hlo_disc.conformance.reopen import open_dims
from hlo_disc.errors import HloDiscError, UnsupportedOpError
from hlo_disc.executable import Executable
from hlo_disc.frozen import frozen
from hlo_disc.import_.stablehlo.source import load_module
from hlo_disc.options import Options

# An unsupported program, an unexpected error and a dead worker are no passes either; "skipped" is no failure.
STATUSES = ("passed", "failed", "unsupported", "error", "crashed", "timeout", "skipped")
SHAPES = 4


@frozen
class Settings:
    """The options of a run. threads: those of a run. reopen: make the inputs' dims symbols. dump: as Options.dump, with
    a directory for each case. target: as Options.target."""

    threads: int = 1
    reopen: bool = False
    dump: str = ""
    target: str = "cpu"


@dataclass
class Result:
    """The outcome of a case.

    reason: of anything but "passed". seconds: by stage (read, compile, run, XLA, check), compile without reading.
    shapes: how many it ran at. opened: for `reopen`, "3 of 4" dims, or "" when none can be re-opened.
    """

    name: str
    kind: str = ""
    op: str = ""
    status: str = "passed"
    reason: str = ""
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    shapes: int = 0
    opened: str = ""

    def ends(self, status: str, reason: str) -> None:
        self.status, self.reason = status, reason


Stage = Callable[[str, str, str], None]


def run_case(path: Path, name: str, settings: Settings, stage: Stage) -> Result:
    """Run the case in a file. stage(name, kind, op) is called before each stage, so that a crash can be located. Raises
    nothing."""
    run = _Run(Result(name), settings, stage)
    try:
        run.case(path)
    except UnsupportedOpError as error:
        run.result.ends("skipped" if "quantized types are not" in str(error) else "unsupported", _line(error))
    except HloDiscError as error:
        run.result.ends("error", f"{type(error).__name__}: {_line(error)}")
    except oracle.Refused as error:
        run.result.ends("skipped", f"XLA takes it at no size: {error}")
    except Exception as error:  # a bug, ours or the reference's: it is the case's result, the run goes on
        run.result.ends("error", f"{type(error).__name__}: {_line(error)}{_where(error)}")
    return run.result


class _Run:
    def __init__(self, result: Result, settings: Settings, stage: Stage):
        self.result, self.settings, self.stage = result, settings, stage

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        self.stage(stage, self.result.kind, self.result.op)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.result.seconds[stage] += time.perf_counter() - start

    def case(self, path: Path) -> None:
        with self.timed("load"):
            module = load_module(path)
            if reason := without_meaning(module):
                return self.result.ends("skipped", reason)
            self.result.kind, self.result.op = classify(module)
            case = make_case(module, self.result.kind)
        if self.result.kind == "differential":
            self.differential(case)
        else:
            self.checked(case)

    def compile(self, module: object, dims: Any = None) -> Executable:
        dump = str(Path(self.settings.dump) / self.result.name.replace("/", "_")) if self.settings.dump else ""
        options = Options(target=self.settings.target, threads=self.settings.threads, dump=dump)
        start = time.perf_counter()
        with self.timed("compile"):
            executable = sources.compile(module, dims=dims, options=options)
        whole = time.perf_counter() - start
        stages = executable.program.compile_ms
        for stage, spent in stages.items():
            self.result.seconds[f"compile: {stage}"] += spent / 1e3
        self.result.seconds["compile: link"] += whole - sum(stages.values()) / 1e3
        return executable

    def run(self, executable: Executable, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        with self.timed("run"):
            self.result.shapes += 1
            return list(executable.native(*arrays))

    def checked(self, case: Case) -> None:
        """Run at the given inputs and check."""
        dims = None
        if self.settings.reopen:
            with self.timed("re-open"):
                opened = open_dims(case)
            self.result.opened = opened.share
            if not opened.dims:
                return self.result.ends("skipped", f"not re-opened: {opened.reason}")
            dims = opened.dims
        got = self.run(self.compile(case.module, dims), case.inputs)
        with self.timed("check"):
            for i, (result, check) in enumerate(zip(got, case.checks, strict=True)):
                if wrong := mismatch(check.kind, result, check.expected):
                    return self.result.ends("failed", f"result {i}: {wrong}")

    def differential(self, case: Case) -> None:
        """Run at several sizes from one compilation, against XLA at each."""
        signature = oracle.MainSignature(case.module)
        with self.timed("XLA"):
            names = oracle.find_names(case.module, signature)
        dims = None
        if not signature.marked and signature.is_dynamic:
            dims = {i: f"({', '.join(n or '_' for n in shape)})" for i, shape in enumerate(names) if any(shape)}
        reason = ""
        executable = self.compile(oracle.mark_sizes(case.module, signature, names), dims)
        for number, sizes in enumerate(oracle.candidates(names)):
            if self.result.shapes == SHAPES:
                return
            special = signature.size_count > 0 and number == 3 and not oracle.ignores_zeros(case.module)
            arrays = oracle.random_arrays(oracle.concrete(signature, names, sizes), number, special)
            try:
                with self.timed("XLA"):
                    want = oracle.XlaProgram(oracle.at_sizes(case.module, signature, names, sizes))(arrays)
            except oracle.Refused as error:
                reason = str(error)
                continue
            got = self.run(executable, arrays)
            with self.timed("check"):
                for i, (ours, theirs) in enumerate(zip(got, want, strict=True)):
                    if wrong := mismatch("like XLA", ours, theirs):
                        return self.result.ends("failed", f"{_shown(sizes)}: result {i}: {wrong}")
        if not self.result.shapes:
            raise oracle.Refused(reason)


def _shown(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "as written"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


def _where(error: Exception) -> str:
    """Return the innermost line that raised."""
    innermost = traceback.extract_tb(error.__traceback__)[-1]
    return f" ({Path(innermost.filename).name}:{innermost.lineno})"
