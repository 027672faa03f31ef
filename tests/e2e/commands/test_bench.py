"""`hlo_disc.bench` and `hlo-disc bench`: what can be measured, what is found, and what is refused."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

import hlo_disc
from hlo_disc import cli, pipeline, ral
from hlo_disc.benchmark import peer
from hlo_disc.import_.handlers import HANDLERS
from hlo_disc.profile import limits
from hlo_disc.profile.limits import Limits

FIXED = Limits(1e11, 8e11, {1 << 20: 1e11, 1 << 28: 1e10}, {1 << 20: 5e10, 1 << 28: 1e10})


@pytest.fixture(autouse=True)
def known_limits(monkeypatch):
    monkeypatch.setattr(limits, "measure", lambda: FIXED)


@pytest.fixture
def compilations(monkeypatch):
    """One entry for each time that hlo_disc compiles."""
    made = []
    original = pipeline.compile_for_call
    monkeypatch.setattr(pipeline, "compile_for_call", lambda *args: made.append(1) or original(*args))
    return made


def bench(*args, **settings):
    return hlo_disc.bench(*args, seconds=0.01, **settings)


def layer(x, w):
    return jnp.tanh(x @ w)


def module() -> str:
    return hlo_disc.jit(layer, dims={"x": "(b, 64)"}).lower(np.ones((2, 64), "f"), np.ones((64, 32), "f")).as_text()


# ------------------------------------------------------------------------------------------------- what is measured


def check(found, sizes, theirs=True):
    assert [row.dims for row in found.rows] == sizes
    for row in found.rows:
        b = row.dims["b"]
        assert 0 < row.ours.least <= row.ours.median and row.ours.first > 0
        assert row.wrong == ""
        assert row.bytes == 4 * (b * 64 + 64 * 32 + b * 32)
        if theirs:
            assert row.operations == 2 * b * 64 * 32
            assert row.limit == max(row.operations / 1e11, row.bytes / 1e11)
            assert 0 < row.theirs.least <= row.theirs.median <= row.theirs.first
            assert row.error < 1e-5 and not row.partial
            assert row.ratio == row.theirs.median / row.ours.median
        assert row.fraction == row.limit / row.ours.median
        assert row.flops == row.operations / row.ours.median and row.bandwidth == row.bytes / row.ours.median


def test_a_function_with_specs(compilations):
    check(bench(layer, "f32[b, 64]", "f32[64, 32]", sizes={"b": (1, 33)}), [{"b": 1}, {"b": 33}])
    assert len(compilations) == 1


def test_a_function_with_arrays():
    found = bench(layer, np.ones((2, 64), np.float32), {"w": np.ones((64, 32), np.float32)}["w"])
    (row,) = found.rows
    assert row.dims == {} and row.operations == 2 * 2 * 64 * 32 and found.compiling == 0


def test_pytrees_with_specs(compilations):
    def fn(params, *rest):
        return {"y": params["w"] @ rest[0] + rest[1][0], "z": rest[1][1]}

    found = bench(fn, {"w": "f32[m, k]"}, "f32[k, 2*k]", ("f32[]", 3.0), sizes={"k": (4, 8), "m": 3})
    assert [row.dims for row in found.rows] == [{"m": 3, "k": 4}, {"m": 3, "k": 8}]
    assert [row.operations for row in found.rows] == [2 * 3 * 4 * 8, 2 * 3 * 8 * 16]
    assert len(compilations) == 1


def test_a_function_of_jit(compilations):
    f = hlo_disc.jit(layer, dims={"x": "(b, 64)"}, constraints="b <= 100")
    check(bench(f, "f32[b, 64]", "f32[64, 32]", sizes={"b": (1, 33)}), [{"b": 1}, {"b": 33}])
    assert f.stats().calls == 0  # another one was measured, which had compiled nothing
    assert len(compilations) == 1
    with pytest.raises(hlo_disc.ShapeError, match="b <= 100"):
        bench(f, "f32[b, 64]", "f32[64, 32]", sizes={"b": 101})


def test_static_arguments():
    f = hlo_disc.jit(lambda x, kind, y: x @ y if kind == "dot" else x, static_argnames="kind", dims={"x": "(b, 64)"})
    found = bench(f, "f32[b, 64]", "dot", "f32[64, 32]", sizes={"b": 5})
    check(found, [{"b": 5}])


def test_functions_that_ask_about_sizes():
    def fn(x):
        return x * 2 if x.shape[0] == 1 else x @ x.T

    found = bench(fn, "f32[b, 64]", sizes={"b": (1, 2)})
    assert [row.operations for row in found.rows] == [0, 2 * 2 * 2 * 64]
    assert not any(row.wrong for row in found.rows)


@pytest.mark.parametrize("form", ["text", "path", "artifact", "export", "executable", "file"])
def test_programs(tmp_path, compilations, form):
    specs = (
        jax.ShapeDtypeStruct((*jax.export.symbolic_shape("b"), 64), np.float32),
        jax.ShapeDtypeStruct((64, 32), np.float32),
    )
    export = jax.export.export(jax.jit(layer))(*specs)
    path = tmp_path / "layer.mlir"
    path.write_bytes(export.mlir_module_serialized if form == "artifact" else module().encode())
    executable = hlo_disc.compile(path)
    executable.save(tmp_path / "layer.disc")
    sources = {
        "text": module(),
        "path": str(path),
        "artifact": path,
        "export": export,
        "executable": executable,
        "file": tmp_path / "layer.disc",
    }
    compilations.clear()
    found = bench(sources[form], sizes={"b": [1, 33]})
    alone = form in ("executable", "file")
    check(found, [{"b": 1}, {"b": 33}], theirs=not alone)
    assert len(compilations) == (0 if alone else 1)
    assert (found.compiling > 0) == (not alone)
    assert any("no program for jax.jit" in note for note in found.notes) == alone
    assert all((row.theirs is None and row.error is None and row.ratio is None) == alone for row in found.rows)
    assert not any("hlo_disc.stablehlo" in note for note in found.notes)  # XLA has the module itself


def test_a_module_that_is_reopened():
    text = jax.export.export(jax.jit(jnp.exp))(jax.ShapeDtypeStruct((2, 4), np.float32)).mlir_module()
    found = bench(text, dims={"args[0]": "(n, _)"}, sizes={"n": (3, 5)})
    assert [row.bytes for row in found.rows] == [2 * 4 * 3 * 4, 2 * 4 * 5 * 4]
    assert "hlo_disc.stablehlo" in found.notes[0] and not any(row.wrong for row in found.rows)
    assert [row.dims for row in bench(text).rows] == [{}]


def test_wide_types():
    """A module means what it says, whatever JAX's settings are."""
    text = """
    func.func @main(%x: tensor<?xf64>, %i: tensor<i64>) -> (tensor<?xf64>, tensor<i64>) {
      %0 = stablehlo.exponential %x : tensor<?xf64>
      return %0, %i : tensor<?xf64>, tensor<i64>
    }"""
    (row,) = bench(text, dims=["(n)", "()"], sizes={"n": 100}).rows
    assert row.error < 1e-14 and row.wrong == ""
    assert row.bytes == 2 * 8 * 100


def test_constraints_and_options():
    found = bench(module(), sizes={"b": 4}, constraints="b % 4 == 0", threads=1)
    check(found, [{"b": 4}])
    with pytest.raises(hlo_disc.ShapeError, match="b % 4"):
        bench(module(), sizes={"b": 5}, constraints="b % 4 == 0")


# -------------------------------------------------------------------------------------------------- what is shown


def test_a_wrong_result_is_told(monkeypatch):
    right = peer.Peer.__call__
    monkeypatch.setattr(peer.Peer, "__call__", lambda self, *args: [x + 1 for x in right(self, *args)])
    found = bench(module(), sizes={"b": (2, 3)})
    assert all(row.error > 0.5 and "like XLA" in row.wrong for row in found.rows)
    assert "b=3: result 0: like XLA: 96 of 96 elements differ" in str(found)


def test_what_jax_does_not_run_is_told(monkeypatch):
    def fail(*args):
        raise ValueError("not today")

    monkeypatch.setattr(peer.Peer, "__call__", fail)
    found = bench(module(), sizes={"b": 2})
    assert found.rows[0].theirs is None and found.rows[0].error is None
    assert "b=2: jax.jit does not run it: not today" in found.notes


def test_what_is_not_counted_is_told():
    def fn(x):
        return jax.lax.while_loop(lambda c: c.sum() < 10, lambda c: c @ c + 1, x)

    found = bench(fn, "f32[4, 4]")
    assert "the limit leaves out loops whose turns data decide, counted once" in found.notes


def test_figures_as_dicts_and_as_a_table():
    found = bench(layer, "f32[b, 64]", "f32[64, 32]", sizes={"b": (0, 33)})
    again = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert again["name"] == "layer" and again["machine"]["cores"] == ral.usable_cores()
    assert again["limits"]["fma_bf16"] == FIXED.fma_bf16
    assert again["rows"][1]["dims"] == {"b": 33} and again["rows"][1]["ours"]["median"] == found.rows[1].ours.median
    text = str(found)
    header, *rows = [line.split() for line in text.splitlines() if line.strip()][1:]
    assert header[:3] == ["b", "hlo_disc", "least"] and header[-1] == "error"
    assert [row[0] for row in rows[1:3]] == ["0", "33"]
    assert "compiling and first calls: hlo_disc " in text
    assert "100 GFLOP/s (800 in bf16), 10 to 100 GB/s" in text


def test_what_begins_is_reported():
    said = []
    bench(module(), sizes={"b": (2, 3)}, report=said.append)
    assert said[:2] == ["the machine's limits", "compiling"]
    assert [text for text in said if text.startswith("b=3")] == ["b=3: first calls", "b=3: taking turns for 0.01 s"]


# ------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("args", "settings", "error", "message"),
    [
        ((layer, "f32[b, 64]", "f32[64, 32]"), {}, hlo_disc.ShapeError, "no size for b: give --dim b=…, in Python siz"),
        ((layer, "f32[b, 64]", "f32[64, 32]"), {"sizes": {"b": 1, "s": 2}}, hlo_disc.ShapeError, "for s.* dims are b"),
        ((layer, "f32[2, 64]", "f32[64, 32]"), {"sizes": {"s": 2}}, hlo_disc.ShapeError, "for s.* all fixed"),
        ((layer, "f32[b, 64]", "f32[64, 32]"), {"sizes": {"b": -1}}, hlo_disc.ShapeError, "size -1 of b"),
        ((layer, "f32[b, 64]", "f32[64, 32]"), {"sizes": {"b": [1, 2.5]}}, hlo_disc.ShapeError, "size 2.5 of b"),
        ((layer, "f32[b - 3, 64]", "f32[64, 32]"), {"sizes": {"b": 2}}, hlo_disc.ShapeError, "is -1, which is no size"),
        ((layer, "f32[b, 64]"), {}, hlo_disc.ArgumentError, "missing a required argument"),
        ((layer, "f99[b, 64]", "f32[64, 32]"), {}, hlo_disc.ArgumentError, "f99"),
        ((layer, "f32[b, 64]", "f32[64, 32]"), {"seconds": 0}, hlo_disc.ArgumentError, "seconds=0"),
        ((layer, "f32[b, 64]", "f32[64, 32]"), {"nonsense": 1}, hlo_disc.ArgumentError, "unknown option 'nonsense'"),
        ((layer, "f32[b, 64]", "f32[64, 32]"), {"target": "cuda"}, hlo_disc.ArgumentError, "only programs for the CPU"),
        ((hlo_disc.jit(layer), "f32[b, 64]", "f32[64, 32]"), {"dims": {}}, hlo_disc.ArgumentError, "for hlo_disc.jit"),
        ((hlo_disc.jit(layer, donate_argnums=0), "f32[b, 64]", "f32[64, 32]"), {}, hlo_disc.ArgumentError, "donates"),
        (("module {}",), {}, hlo_disc.ParseError, "no MLIR module"),
        (("none.mlir",), {}, FileNotFoundError, "none.mlir"),
        ((17,), {}, hlo_disc.ParseError, "cannot read a program from int"),
        ((module(), "f32[2]"), {"sizes": {"b": 1}}, hlo_disc.ArgumentError, "only a function takes specs"),
    ],
)
def test_calls_that_do_not_fit(args, settings, error, message):
    with pytest.raises(error, match=message):
        hlo_disc.bench(*args, **{"seconds": 0.01, **settings})


def test_specs_for_what_is_compiled():
    with pytest.raises(hlo_disc.ArgumentError, match="compiled already"):
        bench(hlo_disc.compile(module()), "f32[2, 64]")


def test_what_runs_through_jax(monkeypatch):
    monkeypatch.delitem(HANDLERS, "stablehlo.cosine")
    with pytest.raises(hlo_disc.UnsupportedOpError, match="cosine"):
        bench(jnp.cos, "f32[n]", sizes={"n": 2})
    with jax.debug_nans(True), pytest.raises(hlo_disc.UnsupportedOpError, match="jax_debug_nans"):
        bench(layer, "f32[b, 64]", "f32[64, 32]", sizes={"b": 2})


# ------------------------------------------------------------------------------------------------- from the shell


def call(*args):
    """The command in this process: (exit code, stdout, stderr)."""
    result = CliRunner().invoke(cli.main, ["bench", *map(str, args)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "layer.mlir"
    path.write_text(module())
    return path


@pytest.fixture
def read_at_once(monkeypatch):
    """Let the command read a file without another process that reads it first."""
    monkeypatch.setattr(cli.files, "check_module", lambda *_: None)


def test_command(file, tmp_path, compilations):
    code, out, err = call(file, "--dim", "b=2, 17", "--seconds", "0.01", "--json", tmp_path / "found.json")
    assert code == 0, err
    assert "layer.mlir: " in out and "of limit" in out and "compiling and first calls" in out
    found = json.loads((tmp_path / "found.json").read_text())
    assert [row["dims"] for row in found["rows"]] == [{"b": 2}, {"b": 17}]
    assert len(compilations) == 1


def test_command_for_a_compiled_file(tmp_path):
    hlo_disc.compile(module()).save(tmp_path / "layer.disc")
    code, out, err = call(tmp_path / "layer.disc", "--dim", "b=3", "--seconds", "0.01")
    assert code == 0, err
    assert "no program for jax.jit" in out


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        ([], ["no size for b", "--dim b=…"]),
        (["--dim", "b=2", "--dim", "c=3"], ["a size is given for c", "the dims are b"]),
        (["--dim", "b"], ["--dim 'b' is not of the form NAME=SIZE"]),
        (["--dim", "b=1,,2"], ["--dim b=: '' is no size"]),
        (["--dim", "b=1,x"], ["--dim b=x: 'x' is no size"]),
        (["--dim", "b=-1"], ["'-1' is no size"]),
        (["--dim", "b=1", "--dim", "b=2"], ["--dim gives b twice"]),
        (["--dim", "b=1", "--seconds", "0"], ["--seconds 0"]),
        (["--dim", "b=1", "--seconds", "nan"], ["--seconds nan"]),
        (["--dim", "b=1000000000000"], ["float32[1000000000000, 64]", "smaller sizes"]),
        (["--dim", "b=1", "--json", "{tmp}"], ["--json {tmp}: is a directory"]),
        (["--dim", "b=1", "--json", "{tmp}/none/x"], ["there is no directory {tmp}/none"]),
        (["--dim", "b=1", "--target", "cuda"], ["only programs for the CPU are measured"]),
        (["--dim", "b=1", "--constraint", "b >= 2"], ["b >= 2"]),
        (["--dim", "b=1", "--dims", "y=(n, _)"], ["y"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_commands_that_do_not_fit(file, read_at_once, tmp_path, args, parts):
    code, out, err = call(file, *(a.format(tmp=tmp_path) for a in args))
    assert (code, out) == (1, "")
    assert err.startswith("error: ") and err.count("\n") == 1, err
    missing = [part for part in parts if part.format(tmp=tmp_path) not in err]
    assert not missing, f"{err} does not say {missing}"


def test_files_that_are_none(tmp_path):
    code, _, err = call(tmp_path / "none.mlir")
    assert code == 1 and "none.mlir: no such file" in err
    (tmp_path / "bad.mlir").write_text("This is a letter.\n")
    code, _, err = call(tmp_path / "bad.mlir")
    assert code == 1 and err.startswith("error: ")
    (tmp_path / "bad.disc").write_text("This is a letter.\n")
    code, _, err = call(tmp_path / "bad.disc")
    assert code == 1 and err.startswith("error: ")


def test_dims_of_what_is_compiled_already(tmp_path):
    hlo_disc.compile(module()).save(tmp_path / "layer.disc")
    code, _, err = call(tmp_path / "layer.disc", "--dims", "x=(n, _)", "--dim", "b=3")
    assert code == 1 and "--dims has no effect" in err
