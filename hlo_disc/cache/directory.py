"""The directory in which a user's processes keep compiled code: files that appear whole and are bounded in bytes.

A file is written under another name and then renamed, so that it appears at once and whole. Nothing is locked. No
failure here fails a compilation. If the directory cannot be used, a warning is logged once.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

logger = logging.getLogger("hlo_disc")

# Programs and kernels; each has its name in 64 digits.
PROGRAM, KERNEL = ".disc", ".kernel"
# What a build leaves beside this package: a digest of the contents of all that it was made of.
BUILD = "build.digest"
# Permissions of what others than the owner may write.
_OTHERS = 0o022
# A file, and one that is being written.
_NAMES = re.compile(r"[0-9a-f]{64}\.(disc|kernel)|\.[0-9a-f]{64}\.(disc|kernel)\.[0-9a-f]{16}")

_told: set[str] = set()


class Entry(NamedTuple):
    """A file of the cache. used: the time when it was last read or written, in seconds since 1970."""

    path: Path
    size: int
    used: float

    @property
    def is_kernel(self) -> bool:
        """Whether it contains a kernel's code, and not a program."""
        return KERNEL in self.path.name


def versions(*packages: str) -> tuple[str, ...]:
    """Return the installed version of each package."""
    return tuple(f"{name} {metadata.version(name)}" for name in packages)


@functools.cache
def package() -> str:
    """Return the version of this package and a digest of its files, which together determine how it compiles."""
    from hlo_disc import __version__
    from hlo_disc.ral import _ral

    assert _ral.__file__
    return f"{__version__} {_files(Path(__file__).parents[1], Path(_ral.__file__))}"


def _files(place: Path, native: Path) -> str:
    """Return a digest of the contents of a package's files, made when the package is built. In a source tree the names,
    sizes and times of the files take the place of their contents."""
    with suppress(FileNotFoundError):
        return (place / BUILD).read_text()
    found = hashlib.sha256()
    inside = (Path(path, name) for path, _, names in sorted(os.walk(place)) for name in sorted(names))
    for file in [*(x for x in inside if x.suffix == ".py"), native]:
        stat = file.stat()
        found.update(f"{file} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return found.hexdigest()


def made(place: Path) -> bool:
    """Create the directory if there is none. Returns whether it may be used. Raises OSError."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return is_ours(place)


def shrink(place: Path, most: int) -> None:
    """Delete the least recently used files, and those that killed processes left, until the rest fits."""
    found = sorted(entries(place), key=lambda entry: entry.used)
    total = sum(entry.size for entry in found)
    for entry in found[:-1]:
        if total <= most:
            break
        total -= entry.size
        with suppress(FileNotFoundError):
            entry.path.unlink()


def entries(place: Path) -> Iterator[Entry]:
    """List the files of a cache, in no order. Files that are being written are among them; their names begin with a
    dot."""
    with suppress(FileNotFoundError), os.scandir(place) as found:
        for file in found:
            if _NAMES.fullmatch(file.name):
                with suppress(FileNotFoundError):  # another process deletes it
                    stat = file.stat(follow_symlinks=False)
                    yield Entry(Path(file.path), stat.st_size, stat.st_mtime)


def is_ours(place: Path | int) -> bool:
    """Whether nobody else can have written it: it contains machine code, which runs as this user."""
    stat = os.stat(place)
    ours = stat.st_uid == os.geteuid() and not stat.st_mode & _OTHERS
    if not ours:
        tell("it is not used", "others may write to it: it must belong to this user, as chmod go-w makes it")
    return ours


def damaged(path: Path, error: object) -> None:
    """Delete a file whose content does not match its name."""
    tell("an entry was damaged, and is compiled anew", error)
    with suppress(OSError):
        path.unlink()


def tell(
    what: str,
    why: object,
    where: str = "the cache of compiled programs",
    remedy: str = "HLO_DISC_CACHE names another directory, or none",
) -> None:
    """Log a warning, once a process."""
    text = f"{where}: {what}"
    if text in _told:
        return
    _told.add(text)
    logger.warning("%s (%s); %s", text, why, remedy)
