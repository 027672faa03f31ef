"""The store of kernels: their object code on disk, a file each, for every program that has an equal kernel.

A file is named by a digest of the kernel's MLIR and of the compiler. It has a digest of its name and code, then the
code.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hlo_disc.cache.directory import KERNEL, damaged, is_ours, made, package, shrink, tell, versions
from hlo_disc.compiled.saved import replacing
from hlo_disc.options import Options

# What makes code of a kernel's MLIR.
_PACKAGES = ("jaxlib", "llvmlite")
_DIGEST = hashlib.sha256().digest_size


class KernelStore:
    """Implements `hlo_disc.targets.target.Store`. Threads may use it.

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
        """Delete the files that were not used for longest, if there are more than before and too many."""
        if self._kept:
            try:
                shrink(self._place, self._most)
            except OSError as error:
                tell("nothing can be deleted in it", error)

    def _name(self, key: bytes) -> str:
        return hashlib.sha256(self._compiler + key).hexdigest()

    def _path(self, name: str) -> Path:
        return self._place / f"{name}{KERNEL}"


def found(options: Options) -> KernelStore | None:
    """The store of the options' cache; None where there is none that can be used."""
    place = options.cache_directory
    try:
        if place is not None and made(place):
            return KernelStore(place, options.cache_bytes)
    except OSError as error:
        tell("nothing can be kept in it", error)
    return None


@contextmanager
def opened(options: Options) -> Iterator[KernelStore | None]:
    """The store, which is closed behind it."""
    store = found(options)
    yield store
    if store:
        store.close()


def _check(name: str, code: bytes) -> bytes:
    return hashlib.sha256(name.encode() + code).digest()
