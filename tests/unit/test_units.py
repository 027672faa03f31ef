"""Sizes, passes and fusion are tested by themselves: without JAX, MLIR, LLVM or the runtime."""

from __future__ import annotations

from pathlib import Path

import child
import depth

UNIT = Path(__file__).parent
DIRECTORIES = ("sizes", "passes", "fusion")
BLOCKED = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("jax", "jaxlib", "llvmlite") or name == "hlo_disc.ral._ral":
            raise ImportError(f"{{name}} is not there")

class Sample:
    def pytest_collection_modifyitems(self, items):
        import depth
        items[:] = [item for number, item in enumerate(items) if depth.is_kept(number, {1 if depth.full else 5})]

sys.meta_path.insert(0, Blocked())
import pytest
sys.exit(pytest.main(["-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[1:]], [Sample()]))
"""


def test_they_need_no_compiler():
    """They run without a compiler or anything that is built, each fifth of them without `--full`."""
    child.python("-c", BLOCKED, *(UNIT / name for name in DIRECTORIES))
