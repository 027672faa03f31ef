"""The functions in which programs are written have the same names for every framework."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks import frameworks

FOLDER = Path(frameworks.__file__).parent


def functions(name: str) -> set[str]:
    """Return the functions of a module, by its text: no framework needs to be there.

    Functions that it only imports count as its own.
    """
    tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(name)]
    imported = {alias.asname or alias.name for node in imports for alias in node.names}
    return {found for found in defined | imported if found.islower() and not found.startswith("_")}


@pytest.mark.parametrize("name", ["torch", "tensorflow"])
def test_has_what_jax_has(name):
    assert functions("jax") - {"lax"} <= functions(name)
