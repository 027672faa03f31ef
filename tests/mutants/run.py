"""Do the tests see faults? `make mutants`: one-line faults, planted one at a time in a copy of the package.

Each file beside this one is an area: the tests that bear on it, in order, and its mutants. A mutant is a file of the
package, a fragment that occurs in it exactly once, and what stands there instead. It is found when a test runs and
fails (`noticing.py`); one that changes no result says why, `equivalent = "…"`, and must survive. A process that dies is
no test that fails, but is an answer. Time that runs out, and what cannot be collected, set up or imported, is none.
A mutant of code that runs only on CPUs with a feature says so, `needs = "…"`, and is left out on others.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import noticing

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGE = ROOT / "hlo_disc"
NATIVE = ROOT / "build" / "mutants"
WANTED = 0.95
# Tests that run in an environment over that of the others; `make .venv-torch/installed` makes one.
ENVIRONMENTS = {"frameworks/pytorch": ROOT / ".venv-torch", "frameworks/tf": ROOT / ".venv-tensorflow"}
# In a copy the installed package must not be found first: its finder goes before the path.
SITE = "import sys\nsys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith('_editable')]\n"


@dataclass(frozen=True)
class Mutant:
    """A fault to plant.

    number: within its area, from 1. tests: what pytest runs within `tests`, the likeliest to notice first.
    """

    area: str
    number: int
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str
    needs: str = ""  # a feature of the CPU

    @property
    def name(self) -> str:
        return f"{self.area}:{self.number}"

    def applied(self) -> str:
        """The text of the file with the fault. Raises ValueError when the fragment does not occur exactly once."""
        text = (PACKAGE / self.file).read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} occurs {text.count(self.old)} times in hlo_disc/{self.file}")
        return text.replace(self.old, self.new)


class Outcome(NamedTuple):
    """The outcome of a mutant.

    how: a phase of `noticing.py`, DIED, TIME or SURVIVED. where: the first test of which that is true, or "".
    """

    how: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.how}: {self.where}" if self.where else self.how


DIED, TIME, SURVIVED = "the process died", "time ran out", "survived"


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    outcome: Outcome
    seconds: float

    @property
    def fault(self) -> str:
        """The fault of the tests or the data, "" when there is none."""
        if self.mutant.equivalent:
            return f"is said to be equivalent; {self.outcome}" if self.outcome.how != SURVIVED else ""
        return "" if self.outcome.how in (noticing.TEST, DIED) else str(self.outcome)


def mutants(names: list[str]) -> list[Mutant]:
    """The mutants of all areas, or those of the areas and of the form "area:number" that are named."""
    found = []
    for path in sorted(HERE.glob("*.toml")):
        area = tomllib.loads(path.read_text())
        for number, row in enumerate(area["mutant"], 1):
            tests = tuple(row.get("tests", area["tests"]))
            equivalent = row.get("equivalent", "")
            needs = row.get("needs", "")
            found.append(Mutant(path.stem, number, row["file"], row["old"], row["new"], tests, equivalent, needs))
    return [m for m in found if not names or m.area in names or m.name in names]


def check(found: list[Mutant]) -> list[str]:
    """Return complaints about mutants that no longer fit the package or the tests."""
    complaints = []
    for mutant in found:
        try:
            mutant.applied()
        except (ValueError, OSError) as error:
            complaints.append(str(error))
        complaints += [
            f"{mutant.name}: no tests/{t}" for t in mutant.tests if not (ROOT / "tests" / t.partition("::")[0]).exists()
        ]
    return complaints


def environment_of(test: str) -> Path:
    """The directory of the environment in which a test runs."""
    return next((where for under, where in ENVIRONMENTS.items() if test.startswith(under)), Path(sys.prefix))


def pytest(tests: Sequence[str], timeout: float, package: Path, options: Sequence[str] = ()) -> Outcome:
    """Run tests, in their order and environments, until one notices something.

    package: the directory of the package, in a copy or not. timeout: seconds for all tests of an environment.
    """
    outcomes = [Outcome(SURVIVED)]
    for where, group in itertools.groupby(tests, environment_of):
        outcomes.append(outcome_of(*noted(where, list(group), timeout, package, options)))
        if outcomes[-1].how == noticing.TEST:
            return outcomes[-1]
    return next((x for x in outcomes if x.how != SURVIVED), outcomes[0])


def noted(
    where: Path, tests: Sequence[str], timeout: float, package: Path, options: Sequence[str]
) -> tuple[int | None, list[Outcome]]:
    """Run tests. Return the status of pytest, None when time ran out, and what `noticing.py` wrote."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report")
        report.touch()
        environment = {
            **os.environ,
            "HYPOTHESIS_STORAGE_DIRECTORY": scratch,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(HERE),
            noticing.REPORT: str(report),
            noticing.PACKAGE: str(package),
        }
        command = [where / "bin" / "python", "-m", "pytest", "-q", "-n0", "--continue-on-collection-errors"]
        command += ["-p", "no:cacheprovider", "-p", noticing.__name__, *options]
        if package != PACKAGE:  # tests and children must not find the package where they are started instead
            environment |= {"PYTHONPATH": f"{package.parent}{os.pathsep}{HERE}", "PYTHONSAFEPATH": "1"}
            settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
            command += ["-o", f"pythonpath={' '.join(path for path in settings['pythonpath'] if path != '.')}"]
        command += [ROOT / "tests" / test for test in tests]
        status: int | None = None
        with suppress(subprocess.TimeoutExpired):
            status = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=timeout).returncode
        return status, [Outcome(*line.split(" ", 1)) for line in report.read_text().splitlines()]


def outcome_of(status: int | None, notes: Sequence[Outcome]) -> Outcome:
    """Return the outcome that shows most of what is noted, or what ended the process."""
    if found := [note for note in notes if note.how == noticing.TEST]:
        return found[0]
    if status is not None and (status < 0 or status > 128):
        return Outcome(DIED, f"status {status}")
    if status is None or (status == 1 and not notes):  # pytest's own limit, that of a test, ends the process so
        return Outcome(TIME)
    return notes[0] if notes else Outcome(SURVIVED if status == 0 else noticing.COLLECTION)


def host_features() -> frozenset[str]:
    from hlo_disc.targets.cpu import x86

    return frozenset(x86.host_features())


@contextmanager
def copied(mutant: Mutant | None) -> Iterator[Path]:
    """Yield the package in another directory, with the fault, if any."""
    from hlo_disc.ral import _ral

    with tempfile.TemporaryDirectory() as scratch:
        ignored = shutil.ignore_patterns("__pycache__", "*.cc", "*.so")
        shutil.copytree(PACKAGE, Path(scratch, "hlo_disc"), ignore=ignored)
        for built in (Path(_ral.__file__), Path(_ral.__file__).with_name("libhlo_disc_runtime.a")):
            shutil.copy(built, Path(scratch, "hlo_disc", "ral"))
        Path(scratch, "benchmarks").symlink_to(ROOT / "benchmarks")
        Path(scratch, "sitecustomize.py").write_text(SITE)
        if mutant:
            Path(scratch, "hlo_disc", mutant.file).write_text(mutant.applied())
        yield Path(scratch, "hlo_disc")


def build(mutant: Mutant | None) -> Path:
    """Build the native module with the fault, if any, beside the others; return the directory of the module."""
    source, out = NATIVE / "source", NATIVE / "out"
    sources = [path for path in (PACKAGE / "ral").rglob("*") if path.suffix in (".cc", ".h")]
    files = ["CMakeLists.txt", *(str(path.relative_to(ROOT)) for path in sources)]
    for file in files:
        text = mutant.applied() if mutant and file == f"hlo_disc/{mutant.file}" else (ROOT / file).read_text()
        _write_if_changed(source / file, text)
    name = mutant.name if mutant else "the module without a fault"
    bin_ = Path(sys.executable).parent
    configure = ["-S", source, "-B", NATIVE / "build", "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={bin_ / 'ninja'}"]
    configure += [f"-DPython_EXECUTABLE={sys.executable}"]
    configure += [f"-DCMAKE_{kind}_OUTPUT_DIRECTORY={out}" for kind in ("LIBRARY", "ARCHIVE")]
    for arguments in (configure, ["--build", NATIVE / "build"]):
        run = subprocess.run([bin_ / "cmake", *arguments], capture_output=True, text=True)
        if run.returncode:
            raise RuntimeError(f"{name} does not build:\n{run.stdout[-3000:]}\n{run.stderr[-3000:]}")
    return out


def _write_if_changed(path: Path, text: str) -> None:
    """Write a file if its text changes: a build compiles what changed since the last one, removed faults, too."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def baseline(chosen: list[Mutant], timeout: float) -> Outcome:
    """Return what is noticed without any fault. The tests run like those of a mutant."""

    def tests(native: bool) -> list[str]:
        of = [m for m in chosen if m.file.endswith(".py") != native]
        files = dict.fromkeys(test for mutant in of for test in mutant.tests)
        return sorted(files, key=lambda test: str(environment_of(test)))

    outcome = Outcome(SURVIVED)
    if files := tests(native=False):
        with copied(None) as package:
            outcome = pytest(files, timeout, package)
    if outcome.how == SURVIVED and (files := tests(native=True)):
        outcome = pytest(files, timeout, PACKAGE, ["--native", str(build(None))])
    return outcome


def judge(mutant: Mutant, timeout: float) -> Verdict:
    start = time.monotonic()
    if mutant.file.endswith(".py"):
        with copied(mutant) as package:
            outcome = pytest(mutant.tests, timeout, package)
    else:
        outcome = pytest(mutant.tests, timeout, PACKAGE, ["--native", str(build(mutant))])
    verdict = Verdict(mutant, outcome, time.monotonic() - start)
    what = f"equivalent: {mutant.equivalent}" if mutant.equivalent and not verdict.fault else outcome
    print(f"{mutant.name:<12} {verdict.seconds:4.0f} s  {mutant.file}: {line(mutant)}\n{'':<21}{what}", flush=True)
    return verdict


def line(mutant: Mutant) -> str:
    old, new = (" ".join(x.split()) for x in (mutant.old, mutant.new))
    return f"{old} → {new or '(nothing)'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="areas, or mutants as area:number; all by default")
    parser.add_argument("--check", action="store_true", help="only look whether every fragment is still there")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--timeout", type=float, default=900, help="seconds that the tests of a mutant may take")
    parser.add_argument("--trust", action="store_true", help="do not first see that the tests pass without a fault")
    parser.add_argument("--few", action="store_true", help="of a few of many only one that survives is a failure")
    given = parser.parse_args()
    chosen = mutants(given.names)
    if complaints := check(chosen):
        print(*complaints, sep="\n", file=sys.stderr)
        return 2
    print(f"{len(chosen)} mutants", flush=True)
    if given.check:
        return 0
    needed = {environment_of(test) for mutant in chosen for test in mutant.tests}
    if missing := [where.name for where in needed if not (where / "bin" / "python").exists()]:
        print(*(f"there is no {name}: make {name}/installed" for name in missing), sep="\n", file=sys.stderr)
        return 2
    if not given.trust and (outcome := baseline(chosen, 4 * given.timeout)).how != SURVIVED:
        print(f"without any fault there is one already: {outcome}", file=sys.stderr)
        return 2
    if elsewhere := [m for m in chosen if m.needs and m.needs not in host_features()]:
        print(*(f"{m.name}: left out, for this CPU has no {m.needs}" for m in elsewhere), sep="\n", flush=True)
        chosen = [m for m in chosen if m not in elsewhere]
    python = [m for m in chosen if m.file.endswith(".py")]
    with ThreadPoolExecutor(given.jobs) as pool:
        verdicts = list(pool.map(lambda m: judge(m, given.timeout), python))
    verdicts += [judge(m, given.timeout) for m in chosen if m not in python]  # they share one build directory
    status = report(verdicts)
    return int(any(v.fault == SURVIVED for v in verdicts)) if given.few else status


def report(verdicts: Sequence[Verdict]) -> int:
    """Print what came of all mutants. Returns the status of the process."""
    hows = Counter(v.outcome.how for v in verdicts if not v.mutant.equivalent)
    share = hows[noticing.TEST] / max(len(verdicts), 1)
    faults = [f"{v.mutant.name}: {v.fault}: {v.mutant.file}: {line(v.mutant)}" for v in verdicts if v.fault]
    print(*faults, sep="\n")
    print(*(f"{count:5} {how}" for how, count in hows.most_common()), sep="\n")
    print(f"{share:.1%} of {len(verdicts)} mutants found by a test; {len(faults)} unexplained")
    return int(share < WANTED or bool(faults))


if __name__ == "__main__":
    sys.exit(main())
