"""The layers: imports point one way, jaxlib's MLIR enters in one file, and `import hlo_disc` loads no framework."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "hlo_disc"
BASE = {"errors", "options"}
# What each package or file may import from hlo_disc. Every file at the top but the layers' own belongs to the surface.
SURFACE = {
    "__init__",
    "__main__",
    "cli",
    "conformance",
    "executable",
    "fallback",
    "generalise",
    "jit",
    "pipeline",
    "programs",
    "settings",
    "signature",
    "stats",
    "trace",
}
ALLOWED = {
    "errors": set(),
    "options": set(),
    "abi": set(),
    "device": set(),
    "program": {"abi", "errors"},
    "mlir": BASE,
    "dynamic_hlo": BASE,
    "import_": BASE | {"mlir", "dynamic_hlo"},
    "stitch": BASE | {"abi", "device", "program", "mlir", "dynamic_hlo"},
    "targets": BASE | {"abi", "device", "mlir"},
    "ral": {"abi", "errors"},
}
ORDER = [
    "generalise",
    "signature",
    "executable",
    "trace",
    "pipeline",
    "stats",
    "programs",
    "fallback",
    "settings",
    "jit",
    "__init__",
    "conformance",
    "cli",
    "__main__",
]


def files():
    return sorted(path for path in ROOT.rglob("*.py"))


def package(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(path: Path) -> set[str]:
    """The full names of all modules that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(
                ".".join(["hlo_disc", *path.relative_to(ROOT).parts[: -node.level], node.module or ""]).rstrip(".")
            )
    return found


def own(path: Path) -> set[str]:
    """The parts of hlo_disc that a file imports."""
    parts = {name.split(".")[1] for name in imports(path) if name.startswith("hlo_disc.")}
    return {part for part in parts if part in ALLOWED or part in SURFACE} - {package(path)}


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    name = package(path)
    if name in ALLOWED:
        assert own(path) <= ALLOWED[name]
    else:
        assert name in SURFACE, f"{path.name} is in no layer: add it to SURFACE, or better to a package"
        later = set(ORDER[ORDER.index(name) :])
        assert not own(path) & later - {"__init__"}


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_one_file_imports_mlir_from_jaxlib(path):
    if path != ROOT / "mlir.py":
        assert not {name for name in imports(path) if name.startswith(("jaxlib.mlir", "jax.interpreters.mlir"))}


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_frameworks_stay_at_the_edges(path):
    """DHLO, schedules, targets and the runtime's core know of no framework."""
    frameworks = {name.split(".")[0] for name in imports(path)} & {"jax", "torch", "tensorflow"}
    if package(path) in ("dynamic_hlo", "stitch", "targets") or path.parent == ROOT / "ral":
        assert not frameworks


def test_no_environment_is_read_outside_of_options():
    for path in files():
        if path != ROOT / "options.py":
            assert not any(text in path.read_text() for text in ("os.environ", "getenv")), path


def test_no_file_is_too_long():
    for path in files():
        assert len(path.read_text().splitlines()) <= 600, path


def test_import_loads_no_framework():
    heavy = ("jax", "jaxlib", "llvmlite", "torch", "tensorflow", "click", "rich")
    code = f"import sys, hlo_disc; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_only_public_names_show():
    import hlo_disc

    assert set(dir(hlo_disc)) == {*hlo_disc.__all__, "__version__"}
    assert all(hasattr(hlo_disc, name) for name in dir(hlo_disc))


def test_only_its_target_names_a_machine():
    """Whoever needs to know something of one asks a `Device`, a `Machine` or the `Target`."""
    for path in files():
        text = path.read_text()
        if not path.name.startswith("x86"):
            assert not [word for word in ("llvm.x86", "x86_64", "get_host_cpu", "zmm") if word in text], path
            assert package(path) not in ALLOWED or path.name == "options.py" or "avx" not in text, path
        if path != ROOT / "targets" / "registry.py" and not path.name.startswith("x86"):
            assert not {name for name in imports(path) if "targets.x86" in name}, path


def test_stages_have_names_and_reasons():
    from hlo_disc.pipeline import STAGES

    names = [stage.name for stage in STAGES]
    assert len(set(names)) == len(names)
    assert all(stage.why for stage in STAGES)
