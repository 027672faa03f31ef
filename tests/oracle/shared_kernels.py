"""One store of kernels for all tests of a run: equal kernels of different tests are compiled once."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hlo_disc.cache import kernels
from hlo_disc.options import Options


class _Run(kernels.KernelStore):
    """The store of a run. It is not shrunk."""

    def close(self) -> None:
        pass


@contextmanager
def used(place: Path) -> Iterator[None]:
    """Compile with the store, unless the options name a cache or ask for dumps."""
    found = kernels.found

    @functools.cache
    def store() -> kernels.Stores:
        return kernels.Stores(None, _Run(place, 1 << 40))

    def shared(options: Options) -> kernels.Stores | None:
        return found(options) if options.dump or options.cache_directory else store()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "found", shared)
        yield
