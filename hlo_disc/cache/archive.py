"""The archive: kernels of common programs, which come with this package in one file. It is read and never written.

It is built after the rest of the package (`tools/kernels.py`), for each level of a kind of CPUs. Names of entries
contain a digest of the package, so nothing is found in the archive of another one. The installed compiler does not
matter: a kernel's code is right whichever compiler made it.

After a header comes an index, sorted by names, and then the contents of the entries.
"""

from __future__ import annotations

import functools
import hashlib
import mmap
import struct
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path

from hlo_disc.cache.directory import package, tell
from hlo_disc.compiled.replacing import replacing

PLACE = Path(__file__).with_name("common.kernels")
_MAGIC = b"kernels1"
# The number of entries, and the bytes of the file.
_HEADER = struct.Struct("<8sQQ")
# Name, place and size of what was kept, and a digest of it and of the name.
_ENTRY = struct.Struct("<32sQQ32s")


class Archive:
    """An archive in memory, mostly mapped. Threads may use it. Raises ValueError for a truncated one."""

    def __init__(self, content: bytes | mmap.mmap):
        self._content = content
        start = bytes(content[: _HEADER.size]).ljust(_HEADER.size)
        magic, self._count, size = _HEADER.unpack(start)
        if magic != _MAGIC or size != len(content) or self._place(self._count) > size:
            raise ValueError("it is not the whole of an archive")

    def find(self, key: bytes) -> bytes | None:
        """Return the entry with an equal key, or None."""
        name = _name(key)
        number = bisect_left(range(self._count), name, key=lambda k: self._entry(k)[0])
        if number == self._count or self._entry(number)[0] != name:
            return None
        _, start, size, digest = self._entry(number)
        code = self._content[start : start + size]
        if digest == _check(name, code):
            return code
        _tell("an entry is damaged, and is compiled anew", f"{name.hex()} does not have the digest of its content")
        return None

    def _entry(self, number: int) -> tuple[bytes, int, int, bytes]:
        return _ENTRY.unpack_from(self._content, self._place(number))

    @staticmethod
    def _place(number: int) -> int:
        return _HEADER.size + number * _ENTRY.size


@functools.cache
def opened(place: Path) -> Archive | None:
    """Open the archive in a file. Returns None if there is no file, or if it is no archive."""
    try:
        with place.open("rb") as file:
            return Archive(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError:  # in a source tree
        return None
    except (OSError, ValueError) as error:
        _tell("they are not used", f"{place}: {error}")
        return None


def write(place: Path, kept: Mapping[bytes, bytes]) -> None:
    """Write an archive of these entries, by their keys. Neighbours compress together, so the order is kept."""
    start, entries = _HEADER.size + len(kept) * _ENTRY.size, []
    for key, code in kept.items():
        name = _name(key)
        entries.append(_ENTRY.pack(name, start, len(code), _check(name, code)))
        start += len(code)
    with replacing(place) as file:
        file.write(b"".join([_HEADER.pack(_MAGIC, len(kept), start), *sorted(entries), *kept.values()]))


def _name(key: bytes) -> bytes:
    return hashlib.sha256(package().encode() + key).digest()


def _check(name: bytes, code: bytes) -> bytes:
    return hashlib.sha256(name + code).digest()


def _tell(what: str, why: object) -> None:
    tell(what, why, "the kernels that come with hlo_disc", "to install it again mends it")
