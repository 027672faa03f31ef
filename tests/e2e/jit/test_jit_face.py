"""The rest of what a user of jax.jit finds on hlo_disc.jit: functions and executables are shown, copied, inspected."""

from __future__ import annotations

import copy
import pickle
import re
import threading
import warnings

import child
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc
from hlo_disc.compiled import saved
from hlo_disc.import_.handlers import HANDLERS


def ones(*shape):
    return np.ones(shape, np.float32)


def add(a, b):
    return a + b


@hlo_disc.jit
def decorated(x):
    return x * 2


class Model:
    @hlo_disc.jit(static_argnums=0)
    def double(self, x):
        return x * 2


@pytest.fixture(scope="module")
def exe():
    return hlo_disc.compile(add, "f32[b, s]", "f32[b, s]", threads=1)


# ------------------------------------------------------------------------------------------------------- shown


def test_an_executable_on_one_line(exe):
    size = len(exe.program.object)
    text = f"<hlo_disc.Executable (a: float32[b, s], b: float32[b, s]) -> float32[b, s] for cpu, {size} bytes>"
    assert repr(exe) == text


def test_what_has_many_arrays_stays_short():
    made = hlo_disc.compile(lambda xs: tuple(xs), ["f32[n]"] * 60)
    assert "xs[5]: float32[n], and 54 more) -> (float32[n], " in repr(made)
    assert len(repr(made)) < 400
    html = made._repr_html_()
    assert (html.count("<tr>"), "and 70 more" in html) == (51, True)


def test_tables_are_escaped():
    exe = hlo_disc.compile(lambda x: x["<b>"] + 1, {"<b>": "f32[n]"})
    html = exe._repr_html_()
    assert "<td>x[&#x27;&lt;b&gt;&#x27;]: float32[n]</td>" in html
    assert "<b>" not in html


def test_a_jitted_function_on_one_line():
    f = hlo_disc.jit(add)
    assert repr(f) == "<hlo_disc.jit of add: 0 calls, 0 compilations>"
    f(ones(2), ones(2))
    assert repr(f) == "<hlo_disc.jit of add: 1 call, 1 compilation>"
    assert str(f.stats()).startswith("1 call, 1 compilation in ")
    html = f._repr_html_()
    assert "<td>first call</td><td>a: float32[2], b: float32[2]</td>" in html


@pytest.mark.filterwarnings("ignore::hlo_disc.FallbackWarning")
def test_calls_through_jax_are_shown(monkeypatch):
    monkeypatch.delitem(HANDLERS, "stablehlo.cosine")
    f = hlo_disc.jit(jnp.cos)
    f(ones(2))
    assert "1 call through jax.jit: stablehlo.cosine" in str(f.stats())
    assert "<td>1 call</td><td>through jax.jit: stablehlo.cosine" in f._repr_html_()


def test_a_lowered_function_on_one_line():
    lowered = hlo_disc.jit(add, dims={"a": "(n)", "b": "(n)"}).lower(ones(3), ones(3))
    assert repr(lowered) == "<hlo_disc.Lowered jit_add(a: float32[n], b: float32[n]) -> float32[n]>"
    assert "<td>input</td><td>a: float32[n]</td>" in lowered._repr_html_()


# ---------------------------------------------------------------------------------------------- pickled, copied


def test_an_executable_is_pickled(exe):
    again = pickle.loads(pickle.dumps(exe))
    assert again.options.threads == 1
    assert again.explain() == exe.explain()
    np.testing.assert_array_equal(again(ones(2, 3), ones(2, 3)), 2 * ones(2, 3))


def test_constants_and_nests_are_pickled():
    weights = jnp.arange(3, dtype=jnp.bfloat16)
    exe = hlo_disc.compile(lambda x: {"y": (x + weights,)}, "bf16[n, 3]")
    result = pickle.loads(pickle.dumps(exe))(np.zeros((2, 3), jnp.bfloat16))
    assert result["y"][0].tolist() == [[0, 1, 2]] * 2


def test_another_process_reads_the_pickle(exe, tmp_path):
    (tmp_path / "exe.pickle").write_bytes(pickle.dumps(exe))
    code = """
import pickle, sys
import numpy as np
exe = pickle.load(open("exe.pickle", "rb"))
print(exe(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)).sum(), "jax" in sys.modules)
"""
    assert child.python("-c", code, cwd=tmp_path) == "12.0 False\n"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: b"", "is no hlo_disc executable: it is empty"),
        (lambda content: content[:-100], "is truncated"),
        (lambda content: b"module {}", "begins with b'module"),
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "is a damaged hlo_disc executable"),
    ],
    ids=["empty", "cut", "another file", "changed"],
)
def test_a_damaged_pickle(exe, damage, message):
    rebuild, (content, options) = exe.__reduce__()
    with pytest.raises(hlo_disc.FormatError, match=f"a pickled executable.*{message}"):
        rebuild(damage(content), options)


def test_a_pickle_of_another_version(exe, monkeypatch):
    monkeypatch.setattr(saved, "VERSION", saved.VERSION + 1)
    pickled = pickle.dumps(exe)
    monkeypatch.undo()
    with pytest.raises(hlo_disc.FormatError, match="format version .*: compile it again"):
        pickle.loads(pickled)


def test_copies_of_an_executable_are_itself(exe):
    assert copy.copy(exe) is exe
    assert copy.deepcopy({"exe": exe})["exe"] is exe


def test_a_decorated_function_is_pickled_by_its_name():
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert pickle.loads(pickle.dumps(Model.double)) is Model.double
    assert copy.deepcopy(decorated) is decorated


def test_a_jitted_function_is_pickled_by_what_it_jits():
    f = hlo_disc.jit(add, dims={"a": "(n)", "b": "(n)"}, constraints="n <= 4", threads=1)
    f(ones(2), ones(2))
    g = pickle.loads(pickle.dumps(f))
    assert (g.stats().calls, f.stats().calls) == (0, 1)
    assert g(ones(3), ones(3)).tolist() == [2, 2, 2]
    with pytest.raises(hlo_disc.ShapeError, match="n <= 4"):
        g(ones(5), ones(5))
    assert copy.copy(f)(ones(2), ones(2)).tolist() == [2, 2]


def test_a_function_without_a_name_cannot_be_pickled():
    f = lambda x: x  # noqa: E731
    for jit in (jax.jit, hlo_disc.jit):
        with pytest.raises((pickle.PicklingError, AttributeError), match="<lambda>"):
            pickle.dumps(jit(f))


# ---------------------------------------------------------------------------------------------------- looked into


def total(scale, x, *, axis):
    return {"sum": scale * x.sum(axis), "x": x}


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((2.0, ones(2, 3)), {"axis": 0}), ((), {"scale": 2.0, "x": ones(2, 3), "axis": 1})],
    ids=["by position", "by name"],
)
def test_shapes_and_jaxprs_are_those_of_jax(args, kwargs):
    ours, theirs = (jit(total, static_argnames=("scale", "axis")) for jit in (hlo_disc.jit, jax.jit))
    assert ours.eval_shape(*args, **kwargs) == theirs.eval_shape(*args, **kwargs)
    traced, expected = ours.trace(*args, **kwargs), theirs.trace(*args, **kwargs)
    assert str(traced.jaxpr) == str(expected.jaxpr)
    assert traced.out_info == expected.out_info
    assert traced.lower().as_text() == expected.lower().as_text()
    assert ours.stats().calls == ours.stats().compilations == 0


def test_shapes_of_structs():
    f = hlo_disc.jit(lambda x: x.T, dims={"x": "(n, m)"})
    assert f.eval_shape(jax.ShapeDtypeStruct((2, 3), np.int32)) == jax.ShapeDtypeStruct((3, 2), np.int32)
    with pytest.raises(TypeError):
        f.eval_shape()


# -------------------------------------------------------------------------------------------------------- cleared


def test_a_cleared_function_compiles_again():
    scale = 2
    f = hlo_disc.jit(lambda x: x * np.dtype(type(scale)).type(scale))
    assert (f(ones(2)).tolist(), f.eval_shape(ones(2)).dtype) == ([2, 2], np.float32)
    scale = 3j
    assert (f(ones(2)).tolist(), f.eval_shape(ones(2)).dtype) == ([2, 2], np.float32)
    f.clear_cache()
    assert (f(ones(2)).tolist(), f.eval_shape(ones(2)).dtype) == ([3j, 3j], np.complex64)
    stats = f.stats()
    assert (stats.calls, [r.reason for r in stats.records]) == (3, ["first call", "first call"])
    f.clear_cache()
    assert f.explain() == f"<lambda>: {stats}"


def test_programs_may_be_cleared_while_they_run():
    f = hlo_disc.jit(lambda x: x + 1, dims={"x": "(n)"})
    wrong, stop = [], threading.Event()

    def call(n):
        while not stop.is_set():
            if f(ones(n)).tolist() != [2.0] * n:
                wrong.append(n)

    threads = [threading.Thread(target=call, args=(n,)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        f.clear_cache()
        f(ones(4))
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert f.stats().compilations >= 5


# -------------------------------------------------------------------------------------------------------- donated


def unusable(caught):
    """Return the types of the donated arrays that stay, as warnings list them for each call."""
    texts = [str(w.message) for w in caught]
    assert all(text.startswith("Some donated buffers were not usable: ") for text in texts)
    return [re.findall(r"[\w<>]+\[[\d,]*\]", text.partition("\nSee")[0]) for text in texts]


def donating(jit, fn, arrays, **settings):
    """Call a function twice. Return for each call its results, which arrays are deleted, and what warnings say."""
    f, made = jit(fn, **settings), []
    for _ in range(2):
        given = jax.tree.map(lambda x: x.copy(), arrays)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            results = jax.tree.map(np.asarray, f(*given))
        flags = [x.is_deleted() if isinstance(x, jax.Array) else None for x in jax.tree.leaves(given)]
        made.append((results, flags, unusable(caught)))
    return made


X, Y = jnp.arange(4.0), jnp.ones((2, 2))
DONATIONS = {
    "usable": (lambda x: x + 1, (X,), {"donate_argnums": 0}),
    "unusable": (lambda x: x.sum(), (X,), {"donate_argnums": 0}),
    "by its size": (lambda x: x.reshape(2, 2) * 2, (X,), {"donate_argnums": 0}),
    "of another type": (lambda x: x.astype(np.int32), (X,), {"donate_argnums": 0}),
    "itself": (lambda x: x, (X,), {"donate_argnums": 0}),
    "by name": (lambda x, y: x + y.sum(), (X, Y), {"donate_argnames": "x"}),
    "by number of two": (lambda x, y: x + y.sum(), (X, Y), {"donate_argnums": [1]}),
    "one result for two": (lambda x, y: x + y, (X, X + 1), {"donate_argnums": (0, 1)}),
    "two results": (lambda x, y: (x + y, x - y), (X, X + 1), {"donate_argnums": (0, 1)}),
    "type before size": (lambda x, y: x + y.reshape(4), (Y.reshape(4), Y), {"donate_argnums": (0, 1)}),
    "not read": (lambda x, y: y + 1, (X, X), {"donate_argnums": 0}),
    "pytree": (lambda p: p["a"] + p["b"].sum(), ({"a": X, "b": jnp.ones(3)},), {"donate_argnums": 0}),
    "behind a static one": (lambda s, x: x * s, (3, X), {"donate_argnums": 1, "static_argnums": 0}),
    "the rest": (lambda x, *rest: (x + rest[0], rest[1] * 2), (X, X, X), {"donate_argnums": 2}),
    "numpy": (lambda x: x + 1, (np.arange(4.0, dtype=np.float32),), {"donate_argnums": 0}),
    "empty": (lambda x: x + 1, (jnp.ones(0),), {"donate_argnums": 0}),
}


@pytest.mark.parametrize(("fn", "arrays", "settings"), DONATIONS.values(), ids=DONATIONS)
@pytest.mark.filterwarnings("ignore::hlo_disc.FallbackWarning")
def test_donated_arrays_go_as_with_jax(fn, arrays, settings):
    arrays = tuple(np.int64(x) if isinstance(x, int) else x for x in arrays)
    ours, theirs = (donating(jit, fn, arrays, **settings) for jit in (hlo_disc.jit, jax.jit))
    for (result, flags, said), (expected, *others) in zip(ours, theirs, strict=True):
        jax.tree.map(np.testing.assert_array_equal, result, expected)
        assert [flags, said] == others


@pytest.mark.filterwarnings("ignore::hlo_disc.FallbackWarning")
def test_what_runs_through_jax_donates_too(monkeypatch):
    monkeypatch.delitem(HANDLERS, "stablehlo.cosine")
    f = hlo_disc.jit(lambda x, y: jnp.cos(x * 0) * x * 2 + y, donate_argnums=1)
    x, y = X.copy(), X.copy()
    assert f(x, y).tolist() == [0, 3, 6, 9]
    assert (x.is_deleted(), y.is_deleted(), f.stats().fallbacks[0].calls) == (False, True, 1)


def test_donated_keyword_arguments():
    f = hlo_disc.jit(lambda x, *, y: x + y, donate_argnames=("x", "y"))
    x, y = X.copy(), X.copy()
    with pytest.warns(UserWarning, match=r"not usable: float32\[4\]"):
        f(y=y, x=x)
    assert (x.is_deleted(), y.is_deleted()) == (True, False)


def test_donated_random_keys():
    f = hlo_disc.jit(lambda key: jax.random.split(key, 1)[0], donate_argnums=0)
    key = jax.random.key(0)
    assert (f(key).dtype, key.is_deleted()) == (key.dtype, True)


def test_many_sizes_are_donated_by_one_program():
    f = hlo_disc.jit(lambda x, y: x + y[:1], dims={"x": "(n)", "y": "(m)"}, donate_argnums=(0, 1))
    with pytest.warns(UserWarning, match="float32"):
        for n, m in ((3, 2), (5, 4), (1, 1), (4, 4)):
            x, y = jnp.ones(n), jnp.ones(m)
            assert f(x, y).tolist() == [2] * n
            assert (x.is_deleted(), y.is_deleted()) == (True, False)
    assert f.stats().compilations == 1


@pytest.mark.parametrize("donated", [0, (0, 1)], ids=["and passed", "twice"])
def test_an_array_that_is_donated_and_passed_again_is_refused(donated):
    f = hlo_disc.jit(lambda x, y: (x + y, x - y), donate_argnums=donated)
    for _ in range(2):
        x = X.copy()
        with pytest.raises(hlo_disc.ArgumentError, match=r"float32\[4\] is donated and also passed a second time"):
            f(x, x)
        assert not x.is_deleted()
        x, y = X.copy(), X.copy()
        f(x, y)
        assert x.is_deleted()


def test_a_deleted_array_is_refused_as_by_jax():
    for jit in (jax.jit, hlo_disc.jit):
        f = jit(lambda x: x + 1, donate_argnums=0)
        for _ in range(2):
            x = X.copy()
            f(x)
            with pytest.raises((RuntimeError, ValueError), match="deleted"):
                f(x)


def test_a_view_outlives_a_donated_array():
    f = hlo_disc.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.full(100_000, 3.0)
    view = np.asarray(x)
    f(x)
    assert x.is_deleted()
    others = [f(jnp.full(100_000, float(i))) for i in range(5)]
    assert view.tolist() == [3.0] * 100_000
    assert others[4][0] == 5


def test_a_packed_weight_may_be_donated():
    f = hlo_disc.jit(lambda w, x: (x @ w, w * 2), donate_argnums=0)
    plain = hlo_disc.jit(lambda w, x: (x @ w, w * 2))
    w, x = jnp.ones((64, 64)), jnp.ones((8, 64))
    for _ in range(3):
        plain(w, x)
    f(w, x)
    with pytest.raises(RuntimeError, match="deleted"):
        plain(w, x)


def test_nothing_is_donated_inside_of_transformations():
    f = hlo_disc.jit(lambda x: (x * x).sum(), donate_argnums=0)
    g = hlo_disc.jit(lambda x: x * x, donate_argnums=0)
    x = X.copy()
    assert jax.grad(f)(x).tolist() == (2 * X).tolist()
    assert jax.jit(lambda x: g(x) + 1)(x).tolist() == (X * X + 1).tolist()
    assert not x.is_deleted()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "settings",
    [
        {"donate_argnums": 5},
        {"donate_argnames": "z"},
        {"donate_argnums": 0, "static_argnums": 0},
        {"in_shardings": 3},
        {"out_shardings": "x"},
        {"in_shardings": jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0]), "backend": "cpu"},
    ],
    ids=str,
)
def test_what_jax_refuses_is_refused_when_it_is_said(settings):
    for jit in (jax.jit, hlo_disc.jit):
        with pytest.raises((ValueError, TypeError)):
            jit(lambda x: x, **settings)


# --------------------------------------------------------------------------------------------------------- placed


CPU = jax.devices("cpu")[0]
ONE = jax.sharding.SingleDeviceSharding(CPU)
PLACES = {
    "nothing": {},
    "input": {"in_shardings": ONE},
    "inputs": {"in_shardings": (None, ONE)},
    "no input": {"in_shardings": [None, None]},
    "result": {"out_shardings": ONE},
    "device": {"device": CPU},
    "backend": {"backend": "cpu"},
    "others": {"keep_unused": True, "inline": True},
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("settings", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("committed", [False, True], ids=["", "committed"])
def test_results_are_committed_as_with_jax(settings, committed):
    place = (lambda x: jax.device_put(x, CPU)) if committed else jnp.asarray
    f, g = (jit(lambda x, y: {"sum": x + y}, **settings) for jit in (hlo_disc.jit, jax.jit))
    for _ in range(2):
        ours, theirs = f(place(X), X)["sum"], g(place(X), X)["sum"]
        assert (ours.committed, ours.sharding) == (theirs.committed, theirs.sharding)
        assert isinstance(f(np.asarray(X), np.asarray(X))["sum"], np.ndarray)
    assert f.stats().compilations == 1


def test_other_shardings_run_through_jax():
    mesh = jax.sharding.NamedSharding(jax.make_mesh((1,), ("i",)), jax.sharding.PartitionSpec("i"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for settings in ({"out_shardings": mesh}, {"in_shardings": (mesh, None)}):
            f = hlo_disc.jit(lambda x, y: x + y, **settings, donate_argnums=1)
            x, y = X.copy(), X.copy()
            result = f(x, y)
            assert result.sharding.is_equivalent_to(mesh, 1)
            assert isinstance(result.sharding, jax.sharding.NamedSharding)
            assert y.is_deleted()
            (fallback,) = f.stats().fallbacks
            assert "programs run on the first CPU device" in fallback.reason
            assert (f.stats().calls, f.stats().compilations) == (1, 0)
            assert jax.jit(f)(x, X.copy()).tolist() == [0, 2, 4, 6]


def test_shardings_of_pytrees_run_through_jax():
    mesh = jax.sharding.NamedSharding(jax.make_mesh((1,), ("i",)), jax.sharding.PartitionSpec())
    f = hlo_disc.jit(lambda p, x: p["a"] + p["b"][0] + x, in_shardings=({"a": mesh, "b": None}, None))
    assert f({"a": X, "b": [X, None]}, X).tolist() == (3 * X).tolist()
    assert f.stats().compilations == 0
    with pytest.raises(ValueError, match="kwargs"):  # as jax.jit
        f({"a": X, "b": [X, None]}, x=X)


def test_a_pickle_keeps_what_is_donated():
    f = pickle.loads(pickle.dumps(hlo_disc.jit(add, donate_argnums=0)))
    x = X.copy()
    f(x, X)
    assert x.is_deleted()
