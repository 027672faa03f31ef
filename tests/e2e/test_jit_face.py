"""What else a user of jax.jit finds on hlo_disc.jit and its executables: how they are shown, copied, looked into."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc
from hlo_disc import program


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
def test_calls_through_jax_are_shown():
    f = hlo_disc.jit(lambda x: jax.pure_callback(np.sin, x, x))
    f(ones(2))
    assert "1 call through jax.jit: stablehlo.custom_call" in str(f.stats())
    assert "<td>1 call</td><td>through jax.jit: stablehlo.custom_call" in f._repr_html_()


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
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert run.stdout == "12.0 False\n", run.stderr


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: b"", "is no hlo_disc executable: it is empty"),
        (lambda content: content[:-100], "is truncated"),
        (lambda content: b"module {}", "begins with b'module"),
        (lambda content: content.replace(b"hlo_disc executable", b"hlo_disc executab1e"), "damaged"),
    ],
    ids=["empty", "cut", "another file", "changed"],
)
def test_a_damaged_pickle(exe, damage, message):
    rebuild, (content, options) = exe.__reduce__()
    with pytest.raises(hlo_disc.FormatError, match=f"a pickled executable.*{message}"):
        rebuild(damage(content), options)


def test_a_pickle_of_another_version(exe, monkeypatch):
    monkeypatch.setattr(program, "VERSION", program.VERSION + 1)
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
