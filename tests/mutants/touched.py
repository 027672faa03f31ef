"""Prints a few mutants of the files that a change touches, a line each: those that `.ci/run` plants.

The change is what is not in `origin/main`, and the last commit where everything is. Which mutants of its areas they are
depends on the commit, so that in time all are planted; none rebuilds the native module.
"""

from __future__ import annotations

import subprocess
from itertools import groupby

from run import ROOT, Mutant, mutants

MOST = 4


def git(*arguments: str) -> str:
    """Return what git prints; "" where it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def changed() -> set[str]:
    """The files of the package that are not as before the change."""
    head, base = git("rev-parse", "HEAD"), git("merge-base", "HEAD", "origin/main")
    if base in ("", head):
        base = git("rev-parse", "HEAD^")
    return set(git("diff", "--name-only", "--relative=hlo_disc", base, head).splitlines()) if base else set()


def chosen(files: set[str], commit: int) -> list[Mutant]:
    """One mutant of these files from each area, of MOST areas."""
    fitting = [m for m in mutants([]) if m.file in files and m.file.endswith(".py") and not m.equivalent]
    areas = [list(of) for _, of in groupby(fitting, lambda m: m.area)]
    first = commit % max(len(areas), 1)
    return [of[commit % len(of)] for of in (areas[first:] + areas[:first])[:MOST]]


if __name__ == "__main__":
    for mutant in chosen(changed(), int(git("rev-parse", "HEAD")[:8] or "0", 16)):
        print(mutant.name)
