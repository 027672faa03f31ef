"""The fast path of a call: what it must not lose or keep, beside what the tests of `hlo_disc.jit` see."""

from __future__ import annotations

import gc
import inspect
import re
import sys
import weakref
from pathlib import Path

import pytest

from hlo_disc import JitFunction, ral
from hlo_disc.errors import ArgumentError, ShapeError
from hlo_disc.ral import entries
from hlo_disc.ral.entries import ByJax, ConversionAt, Plain


class Tables(ral.FastTables):
    def __init__(self, unchanged=True, flatten=None):
        self.by_jax, self.plain, self.paths = {}, {}, {}
        super().__init__(
            unchanged=lambda: unchanged, by_jax=self.by_jax, plain=self.plain, paths=self.paths, flatten=flatten
        )


class Face:
    """A function with a fast path."""

    def __init__(self, flatten=None):
        self.tables = Tables(flatten=flatten)
        self.other: Tables | None = None

    @ral.fast_path("tables", lambda self: self.other)
    def __call__(self, *args, **kwargs):
        """Slow."""
        return "slow", args, kwargs


def flatten(both):
    return [*both[0]], "tree"


def refuse(error):
    def run(*args):
        raise error

    return run


def test_what_has_no_fast_path_is_slow():
    face = Face()
    assert face(1, "a", key=2) == ("slow", (1, "a"), {"key": 2}) and face() == ("slow", (), {})
    face.tables.plain[int,] = Plain(lambda x: (x, 5), list)
    assert face(1) == [1, 5] and face(True) == ("slow", (True,), {}) and face(1, x=1)[0] == "slow"
    face.tables.plain[int,] = Plain(lambda x: (x, 5), None)
    assert face(3) == 3


def test_what_a_program_refuses_is_slow_and_what_it_raises_is_raised():
    face = Face(flatten)
    for table, key in ((face.tables.plain, (int,)), (face.tables.paths, ("tree", (), (int,)))):
        for error in (ArgumentError("no"), ShapeError("no")):
            table[key] = Plain(refuse(error), None) if table is face.tables.plain else refuse(error)
            assert face(1) == ("slow", (1,), {})
        table[key] = Plain(refuse(KeyError("k")), None) if table is face.tables.plain else refuse(KeyError("k"))
        with pytest.raises(KeyError):
            face(1)
        table.clear()
    face.tables.paths["tree", (), (int, str)] = lambda leaves: ("path", leaves)
    assert face(1, "a") == ("path", [1, "a"])
    face.tables = Tables(flatten=refuse(TypeError("unsortable")))
    with pytest.raises(TypeError, match="unsortable"):
        face(1)


def test_other_settings_have_other_programs():
    face = Face()
    face.tables = Tables(unchanged=False)
    face.tables.plain[int,] = Plain(lambda x: ("stale",), None)
    assert face(1)[0] == "slow"
    face.other = Tables()
    face.other.plain[int,] = Plain(lambda x: ("fresh",), None)
    assert face(1) == "fresh"


@pytest.mark.parametrize("first", [1.5, [1.5, 1], ({"a": [1.5]}, 2), {"b": 1.5, "a": 1}])
def test_what_falls_back_needs_an_array_in_sight(first):
    face, calls = Face(), []
    face.tables.by_jax[type(first), str] = ByJax(lambda *args: args, lambda: calls.append(1), frozenset([float]))
    assert face(first, "a") == (first, "a") and calls == [1]
    others = {float: 2.5, list: [1], tuple: (), dict: {"b": 1, "a": 1.5}}
    assert face(others[type(first)], "a")[0] == (2.5 if type(first) is float else "slow")


def test_what_is_no_table_is_an_error():
    face = Face()
    for wrong in (None, {}):
        face.tables = wrong  # type: ignore[assignment]
        with pytest.raises(TypeError, match="no tables"):
            face(1)
    del face.tables
    with pytest.raises(AttributeError, match="tables"):
        face(1)
    face.tables = Tables(unchanged=False)
    face.other = {}  # type: ignore[assignment]
    with pytest.raises(TypeError, match="no tables"):
        face(1)
    with pytest.raises(TypeError):
        ral.FastTables(unchanged=bool, by_jax=None, plain={}, paths={}, flatten=None)  # type: ignore[arg-type]


def test_positions_are_those_of_the_records():
    source = (Path(ral.__file__).parent / "binding/jit/fast_path.cc").read_text()
    positions = dict(re.findall(r"struct (\w+) {\s+enum { (.*), kSize };", source))
    assert positions.pop("Flat") == "kLeaves, kTree"  # what JAX's flatten returns
    for name, fields in positions.items():
        assert fields == ", ".join(f"k{field.title()}" for field in getattr(entries, name)._fields)
    assert positions.keys() == {"ByJax", "ConversionAt", "Plain"}


def test_what_is_no_record_is_an_error():
    face = Face(flatten)
    for table, wrong in ((face.tables.plain, (list,)), (face.tables.by_jax, (list, int)), (face.tables.plain, None)):
        table[int,] = wrong
        with pytest.raises(TypeError, match="expects a tuple of"):
            face(1)
        table.clear()
    for result in ([[1], "tree"], ([1],), ((1,), "tree")):
        face.tables = Tables(flatten=lambda both, result=result: result)
        with pytest.raises(TypeError, match=r"expects a tuple of|no list"):
            face(1)
    with pytest.raises(TypeError, match="expects a tuple of"):
        ral.path(list, None, ((0,),), ())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expects a tuple of"):
        ral.path(list, None, (), (id,))  # type: ignore[arg-type]


def test_tables_that_refer_to_their_function_are_collected():
    face = Face()
    face.tables = Tables(flatten=face)
    gone = weakref.ref(face)
    del face
    gc.collect()
    assert gone() is None


def test_a_path_converts():
    path = ral.path(lambda *args: args, None, (), ())
    assert path([3]) == 3 and path((4, 5)) == 4
    path = ral.path(lambda *args: args, list, (ConversionAt(1, str), ConversionAt(0, float)), (ConversionAt(2, repr),))
    leaves = [1, 2, 3]
    assert path(leaves) == [1.0, "2", "3"] and leaves == [1, 2, 3]
    with pytest.raises(IndexError):
        path([1])
    with pytest.raises(ZeroDivisionError):
        ral.path(lambda *args: args, None, (ConversionAt(0, lambda x: x / 0),), ())([1])


def test_no_reference_is_lost_or_kept():
    face = Face(flatten)
    marks = [object() for _ in range(3)]
    kinds = (object,) * 3
    fourth = (ConversionAt(3, id),)
    face.tables.plain[kinds] = Plain(lambda *args: args, None)
    face.tables.paths["tree", (), (*kinds, int)] = ral.path(lambda *args: args, list, fourth, fourth)
    face.tables.paths["tree", (), (*kinds, str)] = ral.path(refuse(KeyError), list, fourth, fourth)
    face.tables.by_jax[(*kinds, bytes)] = ByJax(lambda *args: args, int, frozenset([object]))
    before = [sys.getrefcount(x) for x in marks]
    for _ in range(50):
        face(*marks), face(*marks, 1), face(*marks, b""), face(*marks, None), face(*marks, k=1)
        with pytest.raises(KeyError):
            face(*marks, "")
    assert [sys.getrefcount(x) for x in marks] == before


def test_the_method_is_its_python_function_to_who_looks():
    assert "x" not in inspect.signature(JitFunction.__call__).parameters
    assert [*inspect.signature(Face.__call__).parameters] == ["self", "args", "kwargs"]
    assert Face.__call__.__doc__ == "Slow." and Face.__call__.__name__ == "__call__"
    assert Face().__call__(1) == ("slow", (1,), {})
