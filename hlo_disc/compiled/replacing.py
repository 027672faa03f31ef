"""Files that appear as a whole: a reader finds the old content or the new one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO


@contextmanager
def replacing(path: str | os.PathLike[str], mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a new file that takes this path when it is complete, in place of an existing file if there is one."""
    whole = os.path.realpath(path)
    made = os.path.join(os.path.dirname(whole), f".{os.path.basename(whole)}.{os.urandom(8).hex()}")
    try:
        with open(made, "w+b", opener=lambda name, _: os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)) as file:
            yield file
        os.replace(made, whole)
    except OSError as error:
        error.filename, error.filename2 = os.fspath(path), None
        raise
    finally:
        with suppress(OSError):
            os.unlink(made)
