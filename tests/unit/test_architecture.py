"""The layers: imports point one way, jaxlib's MLIR enters in one file, and `import hlo_disc` loads no framework."""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections import Counter
from pathlib import Path

import child
import pytest

ROOT = Path(__file__).parents[2] / "hlo_disc"
HOUSE = ("benchmarks", "docs", "examples", "hlo_disc", "tests", "tools")
# Directories of data, whose files follow from what is tested: a plan a program, an area of planted faults a file.
DATA = {"tests/golden", "tests/mutants"}
BASE = {"errors", "frozen", "options"}
# What each package or file may import from hlo_disc. Every file at the top but the layers' own belongs to the surface.
SURFACE = {
    "__init__",
    "__main__",
    "benchmark",
    "cache",
    "cli",
    "conformance",
    "display",
    "executable",
    "explain",
    "jitted",
    "library",
    "nest",
    "pipeline",
    "profile",
    "random_inputs",
    "sources",
    "tensorflow",
    "torch",
    "tracing",
    "unmade",
    "wide",
}
ALLOWED = {
    "errors": set(),
    "frozen": set(),
    "options": {"frozen"},
    "abi": set(),
    "compiled": {"abi", "errors", "ral"},
    "device": {"frozen"},
    "mlir": BASE,
    "kernel_ops": {"frozen", "mlir"},
    "dynamic_hlo": BASE,
    "import_": BASE | {"mlir", "dynamic_hlo"},
    "stitch": BASE | {"abi", "compiled", "device", "mlir", "kernel_ops", "dynamic_hlo"},
    "targets": BASE | {"abi", "device", "mlir", "kernel_ops", "ral"},
    "ral": {"abi", "errors"},
}
ORDER = [
    "nest",
    "display",
    "explain",
    "profile",
    "cache",
    "tracing",
    "wide",
    "executable",
    "unmade",
    "pipeline",
    "tensorflow",
    "sources",
    "jitted",
    "conformance",
    "random_inputs",
    "benchmark",
    "library",
    "__init__",
    "torch",
    "cli",
    "__main__",
]


def files():
    return sorted(path for path in ROOT.rglob("*.py"))


@functools.cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def package(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(path: Path) -> set[str]:
    """The full names of all modules that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(parsed(path.read_text())):
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


def in_house() -> list[Path]:
    """Return all files of Python that are tracked, or about to be."""
    return [ROOT.parent / room / name for room, names in rooms().items() for name in names if name.endswith(".py")]


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_imports_point_one_way():
    wrong = {}
    for path in files():
        name = package(path)
        assert name in ALLOWED or name in SURFACE, f"{path.name} is in no layer: add it to SURFACE, or to a package"
        later = set() if name in ALLOWED else set(ORDER[ORDER.index(name) :]) - {"__init__"}
        wrong[short(path)] = own(path) - ALLOWED[name] if name in ALLOWED else own(path) & later
    assert {path: names for path, names in wrong.items() if names} == {}


def test_only_one_file_imports_mlir_from_jaxlib():
    inside = ("jaxlib.mlir", "jax.interpreters.mlir.ir")
    found = [short(path) for path in files() if any(name.startswith(inside) for name in imports(path))]
    assert found == ["mlir.py"]


def test_frameworks_stay_at_the_edges():
    """DHLO, schedules, targets and the runtime's core know of no framework."""
    inside = [x for x in files() if package(x) in ("dynamic_hlo", "stitch", "targets") or x.parent == ROOT / "ral"]
    found = {short(path): {name.split(".")[0] for name in imports(path)} for path in inside}
    assert {path for path, names in found.items() if names & {"jax", "torch", "tensorflow"}} == set()


def words(text: str) -> list[str]:
    """Return the dotted names, the package's first, that are texts, or stand in texts with values."""
    nodes = list(ast.walk(parsed(text)))
    parts = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    texts = [
        (r"{}" if node in parts else r"\A{}\Z", str(node.value)) for node in nodes if isinstance(node, ast.Constant)
    ]
    return [word for form, text in texts for word in re.findall(form.format(r"hlo_disc(?:\.\w\w+)+"), text)]


def test_a_word_of_ours_is_spelled_once():
    """Names of attributes, ops and calls stand in one file. Code that reads them takes them from there."""
    import hlo_disc

    found: dict[str, list[str]] = {}
    for path in files():
        for word in words(path.read_text()):
            found.setdefault(word, []).append(str(path.relative_to(ROOT)))
    public = {f"hlo_disc.{name}" for name in hlo_disc.__all__}
    names = {word for word in found if not (ROOT.parent / word.replace(".", "/")).exists()} - public
    assert {word: found[word] for word in names if len(found[word]) > 1} == {}
    assert "hlo_disc.narrow" in names
    text = '"hlo_disc.ab.cd", f"hlo_disc.ef{x}", f"@hlo_disc.gh({x}", "of hlo_disc.ij"'
    assert words(text) == ["hlo_disc.ab.cd", "hlo_disc.ef", "hlo_disc.gh"]


def test_nothing_is_imported_for_its_effect():
    """A module exports its rows, and the file that imports it joins them: reading that file shows all of a table."""
    assert [path for path in files() if "noqa: F401" in path.read_text()] == []


def test_no_environment_is_read_outside_of_options():
    for path in files():
        if path != ROOT / "options.py":
            assert not any(text in path.read_text() for text in ("os.environ", "getenv")), path


# How many parameters and results of functions have an annotation with `Any`, by package; "" is the files at the top.
# Numbers only fall: say what a value is (`object` where it is only passed on), and lower the row.
ANY = {
    "": 11,
    "benchmark": 2,
    "cli": 3,
    "compiled": 5,
    "conformance": 1,
    "dynamic_hlo": 4,
    "explain": 1,
    "import_": 15,
    "jitted": 4,
    "ral": 12,
    "stitch": 6,
    "targets": 2,
    "tensorflow": 7,
    "torch": 2,
    "tracing": 4,
}


def with_any(text: str) -> int:
    """Return how many parameters and results have an annotation with `Any`."""
    found = 0
    for node in ast.walk(ast.parse(text)):
        said = node.annotation if isinstance(node, ast.arg) else getattr(node, "returns", None)
        found += said is not None and any(isinstance(x, ast.Name) and x.id == "Any" for x in ast.walk(said))
    return found


def test_any_becomes_less_in_signatures():
    assert with_any("def f(a: Any, *b: list[Any], c: int) -> dict[str, Any]:\n    x: Any = lambda y: y") == 3
    found = Counter[str]()
    for path in files():
        relative = path.relative_to(ROOT)
        found[relative.parts[0] if len(relative.parts) > 1 else ""] += with_any(path.read_text())
    assert {name: count for name, count in found.items() if count > ANY.get(name, 0)} == {}


def test_no_file_is_too_long():
    for path in files():
        assert len(path.read_text().splitlines()) <= 500, path


def long_functions(text: str) -> list[str]:
    """Return the functions of more than 60 lines, from `def` on, with the docstring and the functions within."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(parsed(text)) if isinstance(node, kinds)]
    return [node.name for node in nodes if (node.end_lineno or 0) - node.lineno >= 60]


def test_no_function_is_too_long():
    inner = "@cache\ndef f():\n    def g():\n" + "        1\n" * 58
    assert [long_functions(text) for text in (inner, inner + "    return g")] == [[], ["f"]]
    found = {short(path): long_functions(path.read_text()) for path in files()}
    found |= {path.name: long_functions(path.read_text()) for path in (ROOT.parent / "benchmarks").rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}


def test_docstrings_say_what_something_is_or_does():
    """Docstrings begin with a verb, or with a noun and its article."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [(path, node) for path in in_house() for node in ast.walk(parsed(path.read_text()))]
    texts = [(str(path), ast.get_docstring(node) or "") for path, node in nodes if isinstance(node, kinds)]
    assert [x for x in texts if re.match(r"(Of|What|Who|How|Where|When|The same)\b", x[1])] == []


def rooms() -> dict[str, set[str]]:
    """Return the files that lie directly in each directory: those that are tracked, or about to be."""
    listed = child.printed("git", "ls-files", "--cached", "--others", "--exclude-standard", *HOUSE, cwd=ROOT.parent)
    found: dict[str, set[str]] = {}
    for path in map(Path, listed.splitlines()):
        if (ROOT.parent / path).exists():
            found.setdefault(str(path.parent), set()).add(path.name)
    return found


def test_directories_are_rooms():
    """Each directory has few enough files to see at once what it does, and enough to need a directory.

    It has at least 3, `__init__.py` among them, and at most 16 beside it. Directories that hold directories, or data,
    are not looked at.
    """
    alone = {"__init__.py", "conftest.py", "py.typed"}
    found = {name: files for name, files in rooms().items() if files - alone}
    assert DATA <= found.keys()
    looked_at = {name: files for name, files in found.items() if name not in DATA}
    assert {name for name, files in looked_at.items() if len(files) < 3} == set()
    assert {name for name, files in looked_at.items() if len(files - {"__init__.py", "py.typed"}) > 16} == set()


def test_formulas_have_one_language():
    """One class over values has operators: frontends, norms and complex numbers write formulas with it."""
    found = []
    for path in [*(ROOT / "import_").rglob("*.py"), *(ROOT / "dynamic_hlo").rglob("*.py")]:
        classes = [node for node in ast.walk(parsed(path.read_text())) if isinstance(node, ast.ClassDef)]
        methods = ((node, {x.name for x in node.body if isinstance(x, ast.FunctionDef)}) for node in classes)
        found += [(path.name, node.name) for node, names in methods if "__mul__" in names]
    assert sorted(found) == [("dim.py", "Dim"), ("expr.py", "Array")]


@pytest.mark.parametrize(
    ("fragment", "home"),
    [
        ("* (a + 2)", "formulas/images.py"),  # Keys' cubic
        ("- 5 * a)", "formulas/images.py"),
        ("holes=self.strides", "formulas/windows.py"),  # a gradient of a kernel, whose windows have holes
        ("select=formula_region(", "formulas/windows.py"),
        ("k - 1 - low", "formulas/windows.py"),  # the padding of an adjoint
        ("area + own - both", "formulas/boxes.py"),
        ("(centred * centred)", "formulas/norms.py"),
        ("(grad * centred)", "formulas/norms.py"),
        ("(low - high).exp()", "formulas/arithmetic.py"),  # the log of a sum of exponentials
        ("a1 * b2 - a2 * b1", "formulas/arithmetic.py"),
        ("high + 1, high)", "handlers/random.py"),  # the carry of a counter
        ("(2 * math.pi)", "handlers/random.py"),  # Box and Muller's angle
    ],
)
def test_formulas_stand_once(fragment, home):
    """A formula that readers have in common is a function that all of them call."""
    root = ROOT / "import_"
    assert [str(path.relative_to(root)) for path in root.rglob("*.py") if fragment in path.read_text()] == [home]
    sources = [(path, path.read_text()) for name in ("aten", "tensorflow") for path in (root / name).rglob("*.py")]
    # XLA's own ops in graphs of TensorFlow are no formulas.
    assert [path.name for path, text in sources if re.search("(rhs|window)_dilations?=", text)] == ["xla.py"]


def needed(path: Path) -> set[str]:
    """The modules that a file imports, inside functions too, but those for type checkers alone."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for other in node.orelse:
                visit(other)
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            here = path.parent.relative_to(ROOT.parent).parts if node.level else ()
            base = [*here[: len(here) + 1 - node.level], *filter(None, [node.module])]
            found.update(".".join([*base, alias.name]) for alias in node.names)
        for inside in ast.iter_child_nodes(node):
            visit(inside)

    visit(parsed(path.read_text()))
    return found


def circle(imported: dict[str, set[str]]) -> list[str]:
    """Modules of which each imports the next, and the last the first; none when there is no circle."""
    done: set[str] = set()

    def walk(name: str, trail: list[str]) -> list[str]:
        if name in trail:
            return trail[trail.index(name) :]
        if name not in done:
            for other in sorted(imported[name]):
                if found := walk(other, [*trail, name]):
                    return found
            done.add(name)
        return []

    return next((found for name in imported if (found := walk(name, []))), [])


def import_graph(root: Path) -> dict[str, set[str]]:
    """Return the modules of a package that each module imports; `from package import name` counts as the submodule."""
    paths = {path: path.relative_to(root.parent).with_suffix("").parts for path in root.rglob("*.py")}
    modules = {".".join(parts[: len(parts) - (parts[-1] == "__init__")]): path for path, parts in paths.items()}

    def within(name: str) -> str | None:
        return next((m for m in (name, name.rpartition(".")[0]) if m in modules), None)

    return {name: {m for full in needed(path) if (m := within(full))} - {name} for name, path in modules.items()}


def test_imports_make_no_circle():
    assert not circle(import_graph(ROOT))


def test_a_circle_is_seen(tmp_path):
    package = tmp_path / "p"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from p import b")
    (package / "b.py").write_text("def late():\n    from p.c import x\n")
    (package / "c.py").write_text("x = 1\n")
    assert not circle(import_graph(package))
    (package / "c.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import b\nx = 1\n")
    assert not circle(import_graph(package))
    (package / "c.py").write_text("from p.a import b\nx = 1\n")
    assert circle(import_graph(package)) == ["p.a", "p.b", "p.c"]


def test_import_loads_no_framework():
    heavy = ("jax", "jaxlib", "llvmlite", "torch", "tensorflow", "click", "rich")
    code = f"import sys, hlo_disc; print([m for m in {heavy} if m in sys.modules])"
    assert child.python("-c", code).strip() == "[]"


def test_only_public_names_show():
    import hlo_disc

    assert set(dir(hlo_disc)) == {*hlo_disc.__all__, "__version__"}
    assert all(hasattr(hlo_disc, name) for name in dir(hlo_disc))


def test_only_its_target_names_a_machine():
    """Code that needs to know something of a machine asks a `Device`, a `Machine` or the `Target`."""
    words = {"x86": ("llvm.x86", "x86_64", "get_host_cpu", "zmm"), "aarch64": ("llvm.aarch64", "fp-armv8", "hwcap")}
    features = {"x86": "avx", "aarch64": "neon"}
    for path, machine in itertools.product(files(), words):
        text = path.read_text()
        if not path.name.startswith(machine):
            assert not [word for word in words[machine] if word in text], path
            assert package(path) not in ALLOWED or path.name == "options.py" or features[machine] not in text, path
        if path != ROOT / "targets" / "registry.py" and not path.name.startswith(machine):
            assert not {name for name in imports(path) if f".{machine}" in name and "targets" in name}, path


def test_stages_have_names_and_reasons():
    from hlo_disc.pipeline import STAGES

    names = [stage.name for stage in STAGES]
    assert len(set(names)) == len(names)
    assert all(stage.why for stage in STAGES)


def test_what_to_read_first_is_there_and_no_longer_than_it_says():
    text = (ROOT.parent / "docs" / "architecture.md").read_text()
    section = text.split("## To read first")[1].split("\n## ")[0]
    paths = [ROOT / name for name in re.findall(r"`([\w/]+\.py)`", section)]
    assert len(paths) > 10
    says = int("".join(re.findall(r"about (\d+) (\d+) lines", section)[0]))
    assert sum(len(path.read_text().splitlines()) for path in paths) <= says
