"""Do the tests see faults? `make mutants`: one-line faults, planted one at a time in a copy of the package.

Each file beside this one is an area: the tests that bear on it, in order, and its mutants. A mutant is a file of the
package, a fragment that occurs in it exactly once, and what stands there instead. It is found when a test fails, the
process dies or time runs out; one that changes no result says why, `equivalent = "…"`, and must survive.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGE = ROOT / "hlo_disc"
NATIVE = ROOT / "build" / "mutants"
WANTED = 0.95
# In a copy the installed package must not be found first: its finder goes before the path.
SITE = "import sys\nsys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith('_editable')]\n"


@dataclass(frozen=True)
class Mutant:
    """number: within its area, from 1. tests: paths within `tests`, the likeliest to notice first."""

    area: str
    number: int
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str

    @property
    def name(self) -> str:
        return f"{self.area}:{self.number}"

    def applied(self) -> str:
        """The text of the file with the fault. Raises ValueError when the fragment does not occur exactly once."""
        text = (PACKAGE / self.file).read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} occurs {text.count(self.old)} times in hlo_disc/{self.file}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    by: str  # what noticed it, "" when nothing did
    seconds: float

    @property
    def fault(self) -> str:
        """What is wrong with the tests or the data, "" when nothing is."""
        if self.mutant.equivalent:
            return "is said to be equivalent, and was found" if self.by else ""
        return "" if self.by else "survived"


def mutants(names: list[str]) -> list[Mutant]:
    """The mutants of all areas, or those of the areas and of the form "area:number" that are named."""
    found = []
    for path in sorted(HERE.glob("*.toml")):
        area = tomllib.loads(path.read_text())
        for number, row in enumerate(area["mutant"], 1):
            tests = tuple(row.get("tests", area["tests"]))
            equivalent = row.get("equivalent", "")
            found.append(Mutant(path.stem, number, row["file"], row["old"], row["new"], tests, equivalent))
    return [m for m in found if not names or m.area in names or m.name in names]


def check(found: list[Mutant]) -> list[str]:
    """What no longer fits the package or the tests."""
    complaints = []
    for mutant in found:
        try:
            mutant.applied()
        except (ValueError, OSError) as error:
            complaints.append(str(error))
        complaints += [f"{mutant.name}: no tests/{t}" for t in mutant.tests if not (ROOT / "tests" / t).exists()]
    return complaints


def pytest(tests: tuple[str, ...], timeout: float, options: list[str], path: Path | None) -> str:
    """Run tests until one fails. Returns what failed, "" when all passed."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": scratch, "PYTHONDONTWRITEBYTECODE": "1"}
        if path:  # children must not find the package where they are started instead
            environment |= {"PYTHONPATH": str(path), "PYTHONSAFEPATH": "1"}
            options = [
                *options,
                "-o",
                "pythonpath=tests/oracle tests/emulator tests/aarch64",
            ]  # not where the package is without it
        command = [str(Path(sys.executable).with_name("pytest")), "-x", "-q", "-n0", "-p", "no:cacheprovider", *options]
        files = [str(ROOT / "tests" / test) for test in tests]
        try:
            run = subprocess.run(
                [*command, *files], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            return "time ran out"
    if run.returncode == 0:
        return ""
    if run.returncode < 0 or run.returncode > 128:
        return f"the process died ({run.returncode})"
    lines = [line for line in run.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if not lines:
        raise RuntimeError(f"pytest failed without running a test:\n{run.stdout}\n{run.stderr}")
    return lines[0].split(" - ")[0].split(" ", 1)[1].removeprefix("tests/")


@contextmanager
def copied(mutant: Mutant | None) -> Iterator[Path]:
    """A directory with the package, and the fault in it, if any."""
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
        yield Path(scratch)


def build(mutant: Mutant | None) -> Path:
    """The native module with the fault, if any, built beside the others: the directory of the module."""
    source, out = NATIVE / "source", NATIVE / "out"
    sources = [path for path in (PACKAGE / "ral").rglob("*") if path.suffix in (".cc", ".h")]
    files = ["CMakeLists.txt", *(str(path.relative_to(ROOT)) for path in sources)]
    for file in files:
        text = mutant.applied() if mutant and file == f"hlo_disc/{mutant.file}" else (ROOT / file).read_text()
        _write_if_changed(source / file, text)
    name = mutant.name if mutant else "the module without a fault"
    bin_ = Path(sys.executable).parent
    configure = ["-S", source, "-B", NATIVE / "build", "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={bin_ / 'ninja'}"]
    configure += [f"-DPython_EXECUTABLE={sys.executable}", f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={out}"]
    for arguments in (configure, ["--build", NATIVE / "build"]):
        run = subprocess.run([bin_ / "cmake", *arguments], capture_output=True, text=True)
        if run.returncode:
            raise RuntimeError(f"{name} does not build:\n{run.stdout[-3000:]}\n{run.stderr[-3000:]}")
    return out


def _write_if_changed(path: Path, text: str) -> None:
    """What is built anew is what changed since the last build, the fault before taken out included."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def baseline(chosen: list[Mutant], timeout: float) -> str:
    """What fails without any fault, run like the tests of a mutant are: "" when nothing does."""

    def tests(native: bool) -> tuple[str, ...]:
        of = [m for m in chosen if m.file.endswith(".py") != native]
        return tuple(dict.fromkeys(test for mutant in of for test in mutant.tests))

    failed = ""
    if files := tests(native=False):
        with copied(None) as path:
            failed = pytest(files, timeout, [], path)
    if not failed and (files := tests(native=True)):
        failed = pytest(files, timeout, ["--native", str(build(None))], None)
    return failed


def judge(mutant: Mutant, timeout: float) -> Verdict:
    start = time.monotonic()
    if mutant.file.endswith(".py"):
        with copied(mutant) as path:
            by = pytest(mutant.tests, timeout, [], path)
    else:
        by = pytest(mutant.tests, timeout, ["--native", str(build(mutant))], None)
    verdict = Verdict(mutant, by, time.monotonic() - start)
    what = verdict.by or (f"equivalent: {mutant.equivalent}" if mutant.equivalent else "SURVIVED")
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
    given = parser.parse_args()
    chosen = mutants(given.names)
    if complaints := check(chosen):
        print(*complaints, sep="\n", file=sys.stderr)
        return 2
    print(f"{len(chosen)} mutants", flush=True)
    if given.check:
        return 0
    if not given.trust and (failed := baseline(chosen, 4 * given.timeout)):
        print(f"without any fault {failed} fails already", file=sys.stderr)
        return 2
    python = [m for m in chosen if m.file.endswith(".py")]
    with ThreadPoolExecutor(given.jobs) as pool:
        verdicts = list(pool.map(lambda m: judge(m, given.timeout), python))
    verdicts += [judge(m, given.timeout) for m in chosen if m not in python]  # they share one build directory
    share = sum(bool(v.by) for v in verdicts) / max(len(verdicts), 1)
    faults = [f"{v.mutant.name} {v.fault}: {v.mutant.file}: {line(v.mutant)}" for v in verdicts if v.fault]
    print(*faults, sep="\n")
    print(f"{share:.1%} of {len(verdicts)} mutants found; {len(faults)} unexplained")
    return int(share < WANTED or bool(faults))


if __name__ == "__main__":
    sys.exit(main())
