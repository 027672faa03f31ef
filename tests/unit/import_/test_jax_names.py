"""The names inside JAX that importing relies on: each is there, is looked up where we change it, and has a row."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import hlo_disc.import_
from hlo_disc.import_.jax_edge.jax_names import READ, REPLACED, Name, check

FOLDER = Path(hlo_disc.import_.__file__).parent
NOW = jax.__version_info__


def run(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process in which nothing of JAX is replaced yet."""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


@pytest.mark.parametrize("row", [*REPLACED, *READ], ids=lambda row: row.name)
def test_it_is_there_and_is_looked_up(row):
    check((row,))


@pytest.mark.parametrize(
    "row, problem",
    [
        (Name("jax._src.core.no_such_name"), "there is no jax._src.core.no_such_name"),
        (Name("jax._src.no_such_module.name"), "there is no jax._src.no_such_module.name"),
        (
            Name("jax._src.numpy.einsum._einsum.<locals>.inner"),
            "there is no jax._src.numpy.einsum._einsum.<locals>.inner",
        ),
        (
            Name("jax._src.numpy.einsum._einsum.<locals>.filter_singleton_dims", variables=("operand", "left")),
            "jax._src.numpy.einsum._einsum.<locals>.filter_singleton_dims has no left",
        ),
        (
            Name("jax._src.core.dedup_referents", ("jax._src.core.definitely_equal",)),
            "jax._src.core.dedup_referents is not used by jax._src.core.definitely_equal",
        ),
        (
            Name("jax._src.core.dedup_referents", ("jax._src.api.no_such_user",)),
            "jax._src.core.dedup_referents is not used by jax._src.api.no_such_user",
        ),
        (  # whose module imports it by its name, and has the old one
            Name("jax._src.lax.lax._const", ("jax._src.lax.special.polygamma_gradx",)),
            "jax._src.lax.lax._const is not used by jax._src.lax.special.polygamma_gradx",
        ),
    ],
    ids=lambda x: x.name if isinstance(x, Name) else "",
)
def test_what_is_missing_is_told_with_the_version(row, problem):
    with pytest.raises(ImportError) as error:
        check((Name("jax._src.core.Tracer"), row))
    assert f"with JAX {jax.__version__}, inside of which names have changed: {problem}. " in str(error.value)


def test_rows_are_for_some_versions():
    check((Name("jax._src.core.no_such_name", before=NOW), Name("jax._src.core.no_such_name", since=(*NOW, 1))))
    for version in ({"since": NOW}, {"before": (*NOW, 1)}):
        with pytest.raises(ImportError):
            check((Name("jax._src.core.no_such_name", **version),))


def test_users_are_told_and_nothing_falls_back():
    done = run("""
import hlo_disc, jax, numpy
del jax._src.core.dedup_referents
for fn in (lambda x: x + 1, jax.grad(hlo_disc.jit(lambda x: x.sum()))):
    try:
        hlo_disc.jit(fn)(numpy.ones(3, "f4"))
    except ImportError as error:
        print(error)
""")
    assert done.stdout.count("there is no jax._src.core.dedup_referents") == 2, done.stderr
    assert "Warning" not in done.stderr


REPLACING = """
import inspect, json, sys, types
import jax, jax._src.numpy.hijax, jax._src.random

def names():
    found = {}
    def note(name, thing):
        found[name] = thing, getattr(inspect.unwrap(thing), "__code__", None) if callable(thing) else None
    for module in [m for n, m in sys.modules.items() if n == "jax" or n.startswith("jax.")]:
        for name, thing in list(vars(module).items()):
            note(f"{module.__name__}.{name}", thing)
            if isinstance(thing, type) and thing.__module__ == module.__name__:
                for method, function in vars(thing).items():
                    note(f"{module.__name__}.{name}.{method}", function)
    return found

def positional(function):
    # With how many arguments it may be called: the least and the most.
    least = most = 0
    for parameter in inspect.signature(function, follow_wrapped=False).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            return None
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            least, most = least + (parameter.default is parameter.empty), most + 1
    return least, most

import hlo_disc.import_.jax
from hlo_disc.import_.jax_edge import jax_lowering, size_functions, size_questions
before = names()
size_questions._install()
size_functions._install()
jax_lowering._install()
changed, unlike = [], []
for name, (thing, code) in names().items():
    old, old_code = before.get(name, (None, None))
    if name not in before or (thing is old and code is old_code):
        continue
    if thing is old:  # a function that has another code, under all its names
        function = inspect.unwrap(thing)
        changed.append(f"{function.__module__}.{function.__qualname__}")
    elif isinstance(old, types.ModuleType):
        changed += [f"{name}.{k}" for k, v in vars(thing).items() if getattr(old, k, v) is not v and k[:2] != "__"]
        changed += [f"{name}.{k}" for k in vars(type(thing)) if k[:2] != "__" and k not in vars(types.SimpleNamespace)]
    else:
        changed.append(name)
        if isinstance(old, types.FunctionType):
            unlike += [name] if positional(thing) not in (None, positional(old)) else []
print(json.dumps([sorted(set(changed)), unlike]))
"""


def test_what_is_replaced_has_a_row_and_is_called_alike():
    done = run(REPLACING)
    assert not done.returncode, done.stderr
    changed, unlike = json.loads(done.stdout)
    assert set(changed) == {row.name for row in REPLACED if row.since <= NOW < row.before}
    assert unlike == []


def test_what_is_replaced_has_a_reason_and_a_test():
    tests = Path(__file__).parents[2]
    assert [row.name for row in REPLACED if not (row.why and (tests / row.test).is_file())] == []


def read_by(path: Path) -> set[str]:
    """Return the names that a file reads of the modules inside JAX that it imports. Annotations are only texts."""
    tree, modules = ast.parse(path.read_text()), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jax._src"):
            modules |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return {
        f"{modules[node.value.id]}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules
    }


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_what_is_read_has_a_row(path):
    rows = {row.name for row in (*REPLACED, *READ)}
    assert {
        name for name in read_by(path) if not any(row == name or row.startswith(f"{name}.") for row in rows)
    } == set()


def test_every_row_of_what_is_read_is_read():
    text = "".join(path.read_text() for path in FOLDER.rglob("*.py") if path.stem != "jax_names")
    unused = {row.name for row in READ if row.name.split(".")[-1].removesuffix("_p").removesuffix("_impl") not in text}
    assert unused == set()
