"""Each file imports the modules that it uses, so that it works alone, whatever others have loaded.

After `import a` there is `a.b` only where `a` itself, or somebody else, has loaded it.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import pkgutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import child

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "examples", "hlo_disc", "tests", "tools")


def used(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each package that a file imports by `import`, with an attribute that it uses and no import of it loads."""
    packages, loaded = {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                loaded.add(alias.name)
                top = alias.name.partition(".")[0]
                packages[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            loaded |= {f"{node.module}.{alias.name}" for alias in node.names}
    within = {".".join(name.split(".")[:k]) for name in loaded for k in range(1, name.count(".") + 2)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in packages:
            package = packages[node.value.id]
            if f"{package}.{node.attr}" not in within:
                yield package, node.attr


def modules_in(package: str) -> set[str]:
    """The modules that lie in a package, of those that are installed here."""
    try:
        spec = importlib.util.find_spec(package)
    except ImportError:
        return set()
    return {found.name for found in pkgutil.iter_modules(spec and spec.submodule_search_locations or ())}


def not_loaded_by(package: str, names: set[str]) -> set[str]:
    """Return the names that a package does not have when it alone was imported."""
    code = f"import {package} as p; print(*(name for name in {sorted(names)} if not hasattr(p, name)))"
    return set(child.python("-c", code, cwd=ROOT).split())


def test_files_import_what_they_use():
    users: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for package, name in used(ast.parse(path.read_text())):
            users[package][name].add(str(path.relative_to(ROOT)))
    found = {}
    for package, names in users.items():
        if modules := names.keys() & modules_in(package):
            found |= {f"{package}.{name}": sorted(names[name]) for name in not_loaded_by(package, modules)}
    assert found == {}, "they are there only when something else has imported them"


# What makes code, or is slow to import, and what a program that is on disk has no use for.
NOT_FOR_KNOWN_PROGRAMS = ("llvmlite", "hlo_disc.stitch", "hlo_disc.targets.translate", "jax._src.pallas")
NOT_FOR_KNOWN_PROGRAMS += tuple(f"jaxlib.mlir.dialects.{name}" for name in ("llvm", "gpu", "memref", "vector"))


def test_a_program_that_is_on_disk_is_found_without_what_makes_code(tmp_path):
    code = f"""
import sys, jax, jax.numpy as jnp, hlo_disc
before = set(sys.modules)
f = hlo_disc.jit(jax.nn.softmax)
assert f(jnp.ones((2, 3))).shape == (2, 3)
print(f.stats().compilations, *(m for m in sys.modules if m not in before and m.startswith({NOT_FOR_KNOWN_PROGRAMS})))
"""
    found = []
    for _ in range(2):
        env = os.environ | {"HLO_DISC_CACHE": str(tmp_path)}
        found.append(child.python("-c", code, cwd=ROOT, env=env).split())
    assert len(found[0]) > 50
    assert found[1] == ["1"]


def test_what_compiles_does_without_the_classes_of_llvms_ops():
    """Code that asks later for the classes of LLVM's ops has them."""
    code = """
import sys, jax, jax.numpy as jnp, hlo_disc
f = hlo_disc.jit(jax.nn.softmax, cache="")
assert f(jnp.ones((2, 3))).shape == (2, 3)
assert not [name for name in sys.modules if name.startswith("jaxlib.mlir.dialects.") and "llvm" in name]
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import llvm
from hlo_disc import mlir
with mlir.context():
    assert isinstance(ir.Type.parse("!llvm.ptr"), llvm.PointerType)
assert f(jnp.ones((3,))).shape == (3,)
"""
    child.python("-c", code, cwd=ROOT)
