"""The store of kernels: their object code on disk, a file each, for every program that has an equal kernel.

A file is named by a digest of its key (`reuse.py`: what a kernel is made of, or a device function contains) and of the
compiler. It has a digest of its name and content, then the content: a kernel's record and code, or a function's code.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hlo_disc.cache import archive
from hlo_disc.cache.directory import KERNEL, damaged, is_ours, made, package, shrink, tell, versions
from hlo_disc.compiled.replacing import replacing
from hlo_disc.frozen import frozen
from hlo_disc.options import Options

# What makes code of a kernel's MLIR.
_PACKAGES = ("jaxlib", "llvmlite")
_DIGEST = hashlib.sha256().digest_size


class KernelStore:
    """A directory of kernels. Threads may use it.

    most: the bytes that all files of the directory may have.
    """

    def __init__(self, place: Path, most: int):
        self._place, self._most = place, most
        self._compiler = repr((versions(*_PACKAGES), package())).encode()
        self._usable = True
        self._kept = False

    def find(self, key: bytes) -> bytes | None:
        """Return the code of a kernel, if the store has it."""
        name = self._name(key)
        path = self._path(name)
        try:
            with path.open("rb") as file:
                if not is_ours(file.fileno()):
                    return None
                content = file.read()
            os.utime(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            tell("it cannot be read", error)
            return None
        code = content[_DIGEST:]
        if content[:_DIGEST] != _check(name, code):
            damaged(path, f"{path} does not have the digest of its content")
            return None
        return code

    def keep(self, key: bytes, code: bytes) -> None:
        """Keep the code of a kernel, if the directory can be used."""
        name = self._name(key)
        try:
            if not self._usable or len(code) > self._most // 2:
                return
            with replacing(self._path(name), 0o600) as file:
                file.write(_check(name, code) + code)
            self._kept = True
        except OSError as error:
            self._usable = False
            tell("nothing can be kept in it", error)

    def close(self) -> None:
        """Delete the least recently used files, if kernels were added and there are too many bytes."""
        if self._kept:
            try:
                shrink(self._place, self._most)
            except OSError as error:
                tell("nothing can be deleted in it", error)

    def _name(self, key: bytes) -> str:
        return hashlib.sha256(self._compiler + key).hexdigest()

    def _path(self, name: str) -> Path:
        return self._place / f"{name}{KERNEL}"


@frozen
class Stores:
    """The archive that comes with the package, then the user's directory: the archive costs no system call.

    Implements `hlo_disc.targets.target.Store`.
    """

    common: archive.Archive | None
    own: KernelStore | None

    def find(self, key: bytes) -> bytes | None:
        """Return the code of a kernel, if one of them has it."""
        found = self.common.find(key) if self.common else None
        return self.own.find(key) if found is None and self.own else found

    def keep(self, key: bytes, code: bytes) -> None:
        """Keep the code of a kernel, if there is a directory."""
        if self.own:
            self.own.keep(key, code)


def found(options: Options) -> Stores | None:
    """Open the stores of a compilation; None if there is none that can be used. With `dump`, everything is compiled."""
    place, own = options.cache_directory, None
    try:
        if place is not None and made(place):
            own = KernelStore(place, options.cache_bytes)
    except OSError as error:
        tell("nothing can be kept in it", error)
    common = None if options.dump else archive.opened(archive.PLACE)
    return Stores(common, own) if common or own else None


@contextmanager
def opened(options: Options) -> Iterator[Stores | None]:
    """Open the stores of a compilation. On leaving the context, the directory is shrunk to its limit."""
    store = found(options)
    yield store
    if store and store.own:
        store.own.close()


def _check(name: str, code: bytes) -> bytes:
    return hashlib.sha256(name.encode() + code).digest()
