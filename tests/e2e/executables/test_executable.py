"""Executables: what calls return and refuse, what a call costs in memory, and one file on disk and back."""

from __future__ import annotations

import json
import os
import pickle
import re
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc
from hlo_disc.compiled.saved import read, save
from hlo_disc.errors import ArgumentError, FormatError, OutOfMemoryError, ParseError, ShapeError, UnsupportedOpError
from hlo_disc.nest import describe_structure
from hlo_disc.ral import digest, live_bytes


def add(a, b):
    return a + b


@pytest.fixture(scope="module")
def exe():
    return hlo_disc.compile(add, "f32[b, s]", "f32[b, s]")


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


# ------------------------------------------------------------------------------------------------ calls


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (1, 1), (7, 33)])
def test_call(exe, shape):
    result = exe(ones(*shape), ones(*shape))
    assert isinstance(result, np.ndarray)
    np.testing.assert_array_equal(result, 2 * ones(*shape))
    assert isinstance(exe(jnp.ones(shape), jnp.ones(shape)), jax.Array)


def test_of_many_guards_the_first_that_is_broken_is_told(tmp_path):
    exe = hlo_disc.compile(lambda *xs: sum(xs), *["f32[n]"] * 20, dump=str(tmp_path))
    xs = [ones(3)] * 20
    np.testing.assert_array_equal(exe(*xs), 20 * ones(3))
    xs[7] = xs[12] = ones(4)
    with pytest.raises(ShapeError, match=r"'xs\[7\]' dimension 0 is 4, but 'n' is 3"):
        exe(*xs)
    # A size is loaded where its guard is: what lives from guard to guard, LLVM compiles in quadratic time.
    (text,) = (path.read_text() for path in tmp_path.glob("*host_flow.mlir"))
    plan = text[text.index("func.func @plan(") :]
    ops = re.findall(r"memref\.load|arith\.select", plan[: plan.index("scf.if")])
    assert ops[:39] == ["memref.load", *["memref.load", "arith.select"] * 19]


def test_one_program_serves_every_shape(exe):
    assert exe.dims == ("b", "s")
    assert [x.name for x in exe.program.inputs] == ["a", "b"]


@pytest.mark.parametrize(
    ("args", "error", "parts"),
    [
        ((ones(2, 3), ones(2, 4)), ShapeError, ["'b'", "dimension 1", "4", "3"]),
        ((ones(2, 3), ones(2, 3, dtype=np.float64)), ArgumentError, ["'b'", "float64", "float32"]),
        ((ones(2, 3), ones(2)), ArgumentError, ["'b'", "rank"]),
        ((ones(2, 3),), ArgumentError, ["1 argument", "2 arguments", "'b'"]),
        ((ones(2, 3),) * 3, ArgumentError, ["3 arguments", "2 arguments"]),
        ((ones(2, 3), "text"), ArgumentError, ["'b'", "str"]),
    ],
    ids=["guard", "dtype", "rank", "too few", "too many", "no array"],
)
def test_a_bad_call_is_refused_and_the_next_one_works(exe, args, error, parts):
    with pytest.raises(error) as caught:
        exe(*args)
    missing = [part for part in parts if part not in str(caught.value)]
    assert not missing, f"{caught.value} does not say {missing}"
    np.testing.assert_array_equal(exe(ones(2, 3), ones(2, 3)), 2 * ones(2, 3))


def test_pytrees_of_arguments_and_results():
    exe = hlo_disc.compile(
        lambda p, x: {"y": [x * p["w"], None], "z": (x + p["b"],)}, {"w": "f32[n]", "b": "f32[]"}, "f32[n]"
    )
    out = exe({"w": ones(3), "b": np.float32(2)}, ones(3))
    assert out["y"][0].tolist() == [1, 1, 1]
    assert out["y"][1] is None
    assert out["z"][0].tolist() == [3, 3, 3]
    assert isinstance(out["z"], tuple)


def test_structure_of_other_containers_is_flat():
    assert describe_structure(frozenset()) == ""
    assert describe_structure({1: 0}) == ""
    assert json.loads(describe_structure({"a": (0, None), "b": [1]})) == {
        "dict": [["a", {"tuple": [0, None]}], ["b", {"list": [1]}]]
    }


# ----------------------------------------------------------------------------------------------- compile


def test_specs():
    specs = [jax.ShapeDtypeStruct((2, 3), jnp.float32), ones(2, 3), "f32[2, 3]", "float32[2, 3]"]
    for spec in specs:
        assert hlo_disc.compile(lambda x: x + 1, spec)(ones(2, 3)).tolist() == (ones(2, 3) + 1).tolist()
    exe = hlo_disc.compile(lambda x: x + 1, ones(2, 3), dims={"x": "(b, _)"})
    assert exe(ones(5, 3)).shape == (5, 3)
    with pytest.raises(ShapeError, match="'x'.*dimension 1"):
        exe(ones(5, 4))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("f32", "not of the form"),
        ("f33[2]", "unknown dtype 'float33'"),
        ("f32[_]", "'_' for a size"),
        (object(), "argument x is a object"),
    ],
)
def test_bad_specs(spec, message):
    with pytest.raises(ArgumentError, match=message):
        hlo_disc.compile(lambda x: x, spec)


def test_sources(tmp_path):
    fn = jax.jit(lambda x: x + 1)
    exported = jax.export.export(fn)(jax.ShapeDtypeStruct(jax.export.symbolic_shape("n, 3"), jnp.float32))
    text = exported.mlir_module()
    (tmp_path / "f.mlir").write_text(text)
    sources = [
        (exported, "a jax.export.Exported, <lambda>"),
        (text, "a StableHLO module"),
        (text.encode(), "a StableHLO module"),
        (exported.mlir_module_serialized, "a StableHLO module"),
        (tmp_path / "f.mlir", f"a StableHLO module, {tmp_path / 'f.mlir'}"),
        (str(tmp_path / "f.mlir"), f"a StableHLO module, {tmp_path / 'f.mlir'}"),
        (hlo_disc.stablehlo(exported), "a StableHLO module"),
        (hlo_disc.stablehlo(fn, "f32[n, 3]"), "a StableHLO module"),
    ]
    for source, told in sources:
        exe = hlo_disc.compile(source)
        assert exe(ones(4, 3)).tolist() == (ones(4, 3) + 1).tolist()
        assert exe.dims == ("n",)
        assert exe.explain().splitlines()[0] == f"source  {told}"
        exe.save(tmp_path / "f.disc")
        assert hlo_disc.load(tmp_path / "f.disc").explain() == exe.explain()
    assert hlo_disc.compile(add, "f32[n]", "f32[n]").explain().startswith("source  a function of JAX, add\n")
    assert hlo_disc.compile(fn, "f32[n]")(ones(2)).tolist() == [2, 2]
    assert hlo_disc.compile(hlo_disc.jit(lambda x: x + 1), "f32[n]")(ones(2)).tolist() == [2, 2]
    with pytest.raises(FileNotFoundError, match="none.mlir"):
        hlo_disc.compile("none.mlir")
    for take in (hlo_disc.compile, hlo_disc.stablehlo):
        with pytest.raises(ParseError, match="a program from int: pass a function of JAX or TensorFlow, a jax.export"):
            take(3)
        with pytest.raises(ArgumentError, match="1 specs given, but only a function takes specs"):
            take(text, "f32[n]")


@pytest.mark.parametrize("wrong", [{"threads": -1}, {"threads": 1 << 31}, {"threads": 1.5}, {"packed_bytes": -1}])
def test_numbers_of_options_that_cannot_be(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ArgumentError, match=f"{name}={value} must be an integer from 0 to"):
        hlo_disc.compile(add, "f32[n]", "f32[n]", **wrong)


def test_a_static_module_is_reopened():
    exported = jax.export.export(jax.jit(jax.nn.softmax))(jax.ShapeDtypeStruct((2, 3), jnp.float32))
    exe = hlo_disc.compile(exported, dims={"args[0]": "(b, _)"}, constraints=["b <= 8"])
    np.testing.assert_allclose(exe(ones(5, 3)), np.full((5, 3), 1 / 3), rtol=1e-6)
    with pytest.raises(ShapeError, match="b <= 8"):
        exe(ones(9, 3))
    with pytest.raises(ArgumentError, match="inputs are"):
        hlo_disc.compile(exported, dims={"z": "(b, _)"})


def test_specs_that_are_missing_or_too_many():
    with pytest.raises(ArgumentError, match="missing a required argument: 'b'"):
        hlo_disc.compile(add, "f32[n]")
    with pytest.raises(ArgumentError, match="only a function takes specs"):
        hlo_disc.compile("module {}", "f32[n]")


def test_symbolic_sizes_that_jax_cannot_compare():
    with pytest.raises(ShapeError) as caught:
        hlo_disc.compile(lambda x, y: x + y, jnp.ones(3), jnp.ones(3), dims={"x": "(n)", "y": "(m)"})
    assert "x: float32[n], y: float32[m]" in str(caught.value)
    assert "JAX says" in str(caught.value)


def test_a_mistake_of_the_function_stays_its_own():
    with pytest.raises(ZeroDivisionError):
        hlo_disc.compile(lambda x: x / (1 // 0), "f32[n]")


@pytest.mark.parametrize("constraint", ["n % 4 == 0", "mod(n, 4) == 0", "n == 4*(n // 4)", "n // 2 % 2 + n % 2 < 1"])
def test_constraints(constraint, tmp_path):
    """A constraint has the same grammar wherever it is given."""
    exported = jax.export.export(jax.jit(lambda x: x + 1))(jax.ShapeDtypeStruct((3,), jnp.float32))
    (tmp_path / "add.mlir").write_text(exported.mlir_module())
    programs = [
        hlo_disc.compile(lambda x: x + 1, "f32[n]", constraints=[constraint]),
        hlo_disc.compile(exported, dims={"args[0]": "(n)"}, constraints=[constraint]),
        hlo_disc.compile(tmp_path / "add.mlir", dims={"args[0]": "(n)"}, constraints=[constraint]),
        hlo_disc.jit(lambda x: x + 1, dims={"x": "(n)"}, constraints=[constraint]),
    ]
    programs[0].save(tmp_path / "add.disc")
    programs.append(hlo_disc.load(tmp_path / "add.disc"))
    for program in programs:
        assert program(ones(8)).shape == (8,)
        with pytest.raises(ShapeError, match=f"constraint {re.escape(constraint)}: "):
            program(ones(6))


@pytest.mark.parametrize("constraints", [["n <= 8", "n % 4 == 0"], ["n % 4 == 0", "n <= 8"]], ids=str)
def test_the_first_broken_constraint_is_reported(constraints):
    exe = hlo_disc.compile(lambda x: x + 1, "f32[n]", constraints=constraints)
    with pytest.raises(
        ShapeError, match=f"constraint {re.escape(constraints[0])}: '.*' is {9 if '<' in constraints[0] else 1}$"
    ):
        exe(np.zeros(9, np.float32))


def test_results_that_no_memory_can_hold():
    def powers(x):
        n = x.shape[0]
        return jnp.broadcast_to(x[:, None], (n, n, n, n, 1))

    exe = hlo_disc.compile(powers, "f32[n]")
    with pytest.raises(OutOfMemoryError, match=r"float32 of shape \(65536, 65536, 65536, 65536, 1\) is larger than"):
        exe(np.zeros(1 << 16, np.float32))
    with pytest.raises(OutOfMemoryError, match=f"cannot allocate {1 << 62} bytes (of the GPU's memory )?for output 0"):
        exe(np.zeros(1 << 15, np.float32))
    assert exe(np.ones(3, np.float32)).shape == (3, 3, 3, 3, 1)


def test_constraints_that_cannot_be_read():
    for constraint in ("n % 4", "n & 3 == 0"):
        with pytest.raises(ParseError, match=f"'{constraint}' is not a constraint"):
            hlo_disc.compile(lambda x: x + 1, "f32[n]", constraints=[constraint])
        with pytest.raises(ParseError, match=f"'{constraint}' is not a constraint"):
            hlo_disc.jit(lambda x: x + 1, constraints=[constraint])
    for constraints in (iter(["n <= 4"]), [4], None):
        with pytest.raises(ArgumentError, match="constraints=.*: pass a string.* or a list of such strings"):
            hlo_disc.jit(lambda x: x + 1, constraints=constraints)
        with pytest.raises(ArgumentError, match="constraints=.*: pass a string.* or a list of such strings"):
            hlo_disc.compile(lambda x: x + 1, "f32[n]", constraints=constraints)


def test_dump_writes_every_stage(tmp_path):
    hlo_disc.compile(lambda x: x + 1, "f32[n]", dump=str(tmp_path))
    suffixes = {path.name.rsplit("-", 1)[1] for path in tmp_path.iterdir()}
    assert {f"{name}.stablehlo.mlir" for name in ("read", "rewrite", "complex")} <= suffixes
    assert {f"{name}.txt" for name in ("normalise", "fuse", "schedule", "memory")} <= suffixes
    assert {"host_flow.plan.txt", "host_flow.mlir", "kernels.mlir"} <= suffixes
    assert {"codegen.ll", "codegen.asm"} <= suffixes
    assert all(path.stat().st_size for path in tmp_path.iterdir())


def test_dumps_show_what_becomes_of_complex_numbers_and_of_padding(tmp_path):
    hlo_disc.compile(lambda x: jnp.pad(abs(x * x), 1), "c64[n]", dump=str(tmp_path))
    texts = {path.name.split("-", 2)[2].partition(".")[0]: path.read_text() for path in tmp_path.iterdir()}
    of_complex = "stablehlo.multiply %arg0, %arg0"
    assert [of_complex in texts[name] for name in ("read", "rewrite", "complex")] == [True, True, False]
    assert "stablehlo.pad" in texts["complex"]
    assert "place(" in texts["normalise"] and "pad(" not in texts["normalise"]


def test_explain(exe):
    text = exe.explain()
    for part in ("a: float32[b, s]", "guard", "compile"):
        assert part in text
    assert "codegen" in exe.explain(full=True)  # all stages; else those that took longest
    assert exe.program.compile_ms["codegen"] > 0


def test_explain_is_short_unless_all_is_asked_for():
    def layers(x, *weights):
        for w in weights:
            x = jnp.exp(jnp.tanh(x @ w) / jnp.sum(x))
        return x

    exe = hlo_disc.compile(layers, "f32[n, 8]", *[f"f32[{8 + k}, {9 + k}]" for k in range(30)])
    text, full = exe.explain(), exe.explain(full=True)
    assert len(text.splitlines()) < 60 < len(full.splitlines())
    assert re.search("and [0-9]+ launches with less work", text) and "input   and 26 more" in text
    assert full.count("input   ") == 31 and "bytes, " in full
    alike = hlo_disc.compile(layers, "f32[n, 8]", *["f32[8, 8]"] * 20).explain()
    assert "\n  20 x  " in alike and "20 x" not in hlo_disc.compile(layers, "f32[n, 8]", "f32[8, 8]").explain()


def test_a_function_with_many_programs_is_explained_in_short():
    def fn(x):
        return x * sum(range(x.shape[0]))

    compiled = hlo_disc.jit(fn)
    for n in range(1, 9):
        compiled(ones(n))
    text = compiled.explain()
    assert len(text.splitlines()) < 60 and re.search(r"and \d more programs", text)
    assert compiled.explain(full=True).count("program jit_fn") == compiled.stats().compilations


def test_what_a_damaged_account_says():
    exe = hlo_disc.compile(lambda x: x + 1, "f32[n]")
    for damaged in ("", "{", "[1, 2]", "[1, 2, 3, 4, 5, 6, 7, 8]"):
        other = hlo_disc.Executable(exe.program._replace(account=damaged))
        if damaged:
            with pytest.raises(FormatError, match="what this executable says of how it was compiled is damaged"):
                other.explain()
        else:
            assert "input   x: float32[n]" in other.explain() and "program" not in other.explain()


# ------------------------------------------------------------------------------------------------ memory


def test_memory(exe):
    memory = exe.memory(b=3, s=5)
    assert memory.outputs == 3 * 5 * 4
    assert memory.temporary >= 0
    assert memory.total == memory.temporary + memory.outputs


def test_one_constraint_is_a_string():
    exported = jax.export.export(jax.jit(lambda x: x + 1))(ones(2, 3))
    for exe in (
        hlo_disc.compile(lambda x: x + 1, "f32[b, 3]", constraints="b <= 8"),
        hlo_disc.compile(exported, dims={"args[0]": "(b, _)"}, constraints="b <= 8"),
    ):
        assert exe(np.ones((8, 3), np.float32)).sum() == 48
        with pytest.raises(ShapeError, match="b <= 8"):
            exe(np.ones((9, 3), np.float32))


@pytest.mark.parametrize("dims", ["(b, _)", ["(b, _)"], ""])
def test_dims_of_a_function_are_a_mapping(dims):
    with pytest.raises(ArgumentError, match="must map the parameters of .* to shape strings, as in dims={'x': '"):
        hlo_disc.compile(lambda x: x + 1, ones(2, 3), dims=dims)


def test_dims_of_a_module_are_no_string():
    exported = jax.export.export(jax.jit(lambda x: x + 1))(ones(2, 3))
    with pytest.raises(ArgumentError, match="a list with a shape string for each input, as in dims=\\['\\(b, _\\)'\\]"):
        hlo_disc.compile(exported, dims="(b, _)")
    assert hlo_disc.compile(exported, dims=["(b, _)"])(ones(4, 3)).shape == (4, 3)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"b": 3}, "no size for s.*dims are b, s"),
        ({"b": 3, "s": 5, "t": 1}, "unknown dim 't'.*dims are b, s"),
        ({"b": 3, "s": -1}, "size of s"),
        ({"b": 3, "s": 1.5}, "size of s"),
    ],
)
def test_memory_refuses_dims(exe, dims, message):
    with pytest.raises(ShapeError, match=message):
        exe.memory(**dims)


# ------------------------------------------------------------------------------------------------- files


def test_save_and_load(exe, tmp_path):
    path = tmp_path / "add.disc"
    exe.save(path)
    loaded = hlo_disc.load(path)
    np.testing.assert_array_equal(loaded(ones(4, 2), ones(4, 2)), 2 * ones(4, 2))
    assert loaded.memory(b=2, s=2) == exe.memory(b=2, s=2)
    assert loaded.explain() == exe.explain()


def test_save_keeps_constants_and_structure(tmp_path):
    table = jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3)
    exe = hlo_disc.compile(lambda x: {"y": x + table, "t": x > 1}, "bf16[2, 3]")
    exe.save(tmp_path / "x.disc")
    out = hlo_disc.load(tmp_path / "x.disc")(jnp.ones((2, 3), jnp.bfloat16))
    assert out["y"].dtype == jnp.bfloat16
    assert out["y"].astype(jnp.float32).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert not out["t"].any()


def test_constants_are_mapped_and_aligned(tmp_path):
    tables = [np.arange(n, dtype=t) for n, t in ((1000, np.float32), (7, np.int8), (33, np.float64), (5, np.int16))]
    exe = hlo_disc.compile(lambda i: tuple(jnp.asarray(t)[i] for t in tables), "i32[n]")
    exe.save(tmp_path / "x.disc")
    loaded = hlo_disc.load(tmp_path / "x.disc")
    constants = [c for c in loaded.program.constants if c.size > 1]
    assert sorted(c.size for c in constants) == [5, 7, 33, 1000]
    assert all(c.ctypes.data % 64 == 0 and not c.flags.owndata and not c.flags.writeable for c in constants)
    with open("/proc/self/maps") as maps:
        assert str(tmp_path / "x.disc") in maps.read()
    for got, want in zip(loaded(np.array([0, 4, 2], np.int32)), tables, strict=True):
        np.testing.assert_array_equal(got, want[[0, 4, 2]])


def private_bytes(path) -> int:
    """Return the bytes of a file's mapping that are not the file's own pages; -1 where the file is not mapped."""
    with open("/proc/self/smaps") as maps:
        parts = maps.read().partition(str(path))[2]
    found = re.search(r"Anonymous: +(\d+) kB", parts)
    return int(found[1]) * 1024 if found else -1


def test_constants_are_the_files_pages(tmp_path):
    table = np.arange(4_000_000, dtype=np.float32)
    hlo_disc.compile(lambda i: jnp.asarray(table)[i], "i32[n]").save(tmp_path / "x.disc")
    before = live_bytes()
    loaded = hlo_disc.load(tmp_path / "x.disc")
    np.testing.assert_array_equal(loaded(np.arange(0, 4_000_000, 1000, dtype=np.int32)), table[::1000])
    assert private_bytes(tmp_path / "x.disc") == 0
    assert live_bytes() - before < table.nbytes // 8


def test_what_only_packed_kernels_read_is_kept_and_saved_packed(tmp_path):
    w = np.random.default_rng(0).standard_normal((256, 384), np.float32)  # whole tiles, at every level
    exe = hlo_disc.compile(lambda x: x @ jnp.asarray(w), "f32[n, 256]")
    assert [c.nbytes for c in exe.program.constants] == [0]
    assert [c.nbytes for c in exe.program.forms] == [w.nbytes]
    exe.save(tmp_path / "w.disc")
    before = live_bytes()
    loaded = hlo_disc.load(tmp_path / "w.disc")
    assert live_bytes() - before < w.nbytes // 8
    assert private_bytes(tmp_path / "w.disc") == 0
    assert loaded.native.packed_bytes() == w.nbytes
    for n in (0, 1, 7):
        x = np.random.default_rng(n).standard_normal((n, 256), np.float32)
        np.testing.assert_array_equal(loaded(x), exe(x))
        np.testing.assert_allclose(loaded(x), x @ w, rtol=1e-4, atol=1e-4)
    assert loaded.content == exe.content
    again = pickle.loads(pickle.dumps(loaded))
    np.testing.assert_array_equal(again(x), exe(x))


@pytest.mark.parametrize(
    ("read", "kept"),
    [
        (lambda w, x: x @ w, False),
        (lambda w, x: x @ w[:, :64], False),
        (lambda w, x: (x @ w) @ w.T, False),
        (lambda w, x: x @ w + w[:1, :], True),
        (lambda w, x: (x @ w, w.sum()), True),
        (lambda w, x: (x @ w, w), True),
        (lambda w, x: (x @ w) * w.T.sum(1), True),
        (lambda w, x: (x @ w) @ w.T + x * w[:, 0], True),
        (lambda w, x: w[: x.shape[0]] @ w.T, True),
        (lambda w, x: jax.lax.fori_loop(0, 3, lambda i, y: (y @ w) @ w.T, x), False),
        (lambda w, x: jax.lax.fori_loop(0, 3, lambda i, y: (y @ w) @ w.T + w[i, 0], x), True),
    ],
)
def test_constants_stay_as_they_are_where_a_kernel_reads_them_so(tmp_path, read, kept):
    w = np.random.default_rng(0).standard_normal((128, 192), np.float32) / 10
    exe = hlo_disc.compile(lambda x: read(jnp.asarray(w), x), "f32[n, 128]", constraints=["n <= 100"])
    assert any(c.nbytes >= w.nbytes for c in exe.program.constants) == kept
    exe.save(tmp_path / "w.disc")
    loaded = hlo_disc.load(tmp_path / "w.disc")
    for n in (1, 9):
        x = np.random.default_rng(n).standard_normal((n, 128), np.float32)
        want = jax.tree.leaves(jax.jit(lambda x: read(jnp.asarray(w), x))(x))
        for run in (exe, loaded):
            got = jax.tree.leaves(run(x))
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


def test_a_program_that_is_saved_before_it_is_packed(tmp_path):
    """A program for another machine is saved before its weights are packed. The machine that loads it packs them."""
    w = np.random.default_rng(0).standard_normal((128, 192), np.float32)
    with_forms = hlo_disc.compile(lambda x: x @ jnp.asarray(w), "f32[n, 128]").program
    bare = with_forms._replace(constants=(w,), forms=())
    save(bare, tmp_path / "w.disc")
    loaded = hlo_disc.load(tmp_path / "w.disc")
    np.testing.assert_array_equal(loaded.program.forms[0], with_forms.forms[0])
    np.testing.assert_allclose(loaded(np.eye(128, dtype=np.float32)), w, rtol=1e-6)


def test_what_is_loaded_survives_its_file(tmp_path):
    path, table = tmp_path / "x.disc", np.arange(100_000, dtype=np.float32)
    hlo_disc.compile(lambda i: jnp.asarray(table)[i], "i32[n]").save(path)
    loaded = hlo_disc.load(path)
    hlo_disc.compile(lambda x: x + 1, "f32[n]").save(path)
    np.testing.assert_array_equal(loaded(np.array([99_999], np.int32)), [99_999])
    assert hlo_disc.load(path)(ones(2)).sum() == 4
    path.unlink()
    np.testing.assert_array_equal(loaded(np.array([50_000], np.int32)), [50_000])
    assert not list(tmp_path.iterdir())


def test_saving_where_that_is_impossible_leaves_nothing(exe, tmp_path):
    with pytest.raises(FileNotFoundError) as info:
        exe.save(tmp_path / "no" / "x.disc")
    assert info.value.filename == str(tmp_path / "no" / "x.disc")
    with pytest.raises(IsADirectoryError):
        exe.save(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        exe.save("/dev/full")
    assert not list(tmp_path.iterdir())


PREFIX = struct.Struct("<8sQQ")


def header_of(path):
    content = path.read_bytes()
    kind, size, digest_ = PREFIX.unpack_from(content)
    text = content[PREFIX.size : PREFIX.size + size]
    assert (kind, digest_) == (b"hlo_disc", digest(text))
    return json.loads(text)


def within(header, **fields):
    """Return the header with other fields of the program."""
    return header | {"program": header["program"] | fields}


def rewrite(source, target, change):
    """A copy of a saved file with a changed header, as another version of hlo_disc might have written it."""
    content = source.read_bytes()
    _, size, _ = PREFIX.unpack_from(content)
    behind = content[PREFIX.size + size + -(PREFIX.size + size) % 64 :]
    text = json.dumps(change(json.loads(content[PREFIX.size : PREFIX.size + size]))).encode()
    start = PREFIX.pack(b"hlo_disc", len(text), digest(text)) + text
    target.write_bytes(start + bytes(-len(start) % 64) + behind)


def test_another_format_version_is_refused(exe, tmp_path):
    exe.save(tmp_path / "a.disc")
    version = header_of(tmp_path / "a.disc")["version"]
    rewrite(tmp_path / "a.disc", tmp_path / "b.disc", lambda h: h | {"version": version + 1})
    with pytest.raises(FormatError, match=f"version {version + 1}.*reads {version}"):
        hlo_disc.load(tmp_path / "b.disc")


def test_another_cpu_is_refused(exe, tmp_path):
    exe.save(tmp_path / "a.disc")
    rewrite(
        tmp_path / "a.disc", tmp_path / "b.disc", lambda h: within(h, features=[*h["program"]["features"], "avx9000"])
    )
    with pytest.raises(FormatError, match="avx9000"):
        hlo_disc.load(tmp_path / "b.disc")


def test_damaged_files_are_refused(exe, tmp_path):
    path = tmp_path / "a.disc"
    exe.save(path)
    data = path.read_bytes()
    damaged = {
        "empty": (b"", "it is empty; compile it again"),
        "text": (b"module {}", "it begins with b'module {'.*compiled with hlo_disc.compile"),
        "truncated": (data[: len(data) // 2], "is truncated: .*; compile it again"),
        "flipped": (
            data[:1200] + bytes([data[1200] ^ 0xFF]) + data[1201:],
            "is a damaged .*the digest of its header.*; compile it again",
        ),
    }
    for name, (content, reason) in damaged.items():
        other = tmp_path / name
        other.write_bytes(content)
        with pytest.raises(FormatError, match=rf"{other} \({len(content)} bytes\) .*{reason}"):
            hlo_disc.load(other)
    with pytest.raises(FileNotFoundError):
        hlo_disc.load(tmp_path / "none")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: {"format": "other"}, "its header is {'format': 'other'}"),
        (lambda h: [h], "its header is"),
        (lambda h: h | {"code": h["code"] | {"start": -64}}, "the object code, from -64"),
        (lambda h: h | {"code": h["code"] | {"size": 1 << 62}}, "of 4611686018427387904 bytes of the object code"),
        (lambda h: h | {"code": h["code"] | {"size": -1}}, "of -1 bytes of the object code"),
        (lambda h: h | {"code": h["code"] | {"digest": "0"}}, "the digest of the object code is another one"),
        (lambda h: h | {"more": 1}, "an unknown more"),
        (lambda h: h | {"arrays": [["f", [1]]]}, r"header.arrays\[0\] is .*fields of _Array"),
        (lambda h: h | {"arrays": [{"shape": [1]}]}, r"header.arrays\[0\] has no dtype, section"),
        (lambda h: h | {"program": None}, "header is None"),
        (lambda h: within(h, more=1), "header has an unknown more"),
        (lambda h: within(h, object="x"), "unknown object"),
        (lambda h: within(h, symbols="bs"), "header.symbols is 'bs'"),
        (lambda h: within(h, env=h["program"]["env"] | {"words": True}), "header.env.words is True"),
        (lambda h: within(h, env=h["program"]["env"] | {"words": 0}), "an env of 0 words"),
        (lambda h: within(h, compile_ms={"read": "1"}), r"compile_ms\['read'\] is '1'"),
        (lambda h: within(h, inputs=[{"name": "x", "dtype": "float32"}]), r"inputs\[0\] has no shape"),
        (lambda h: within(h, inputs=[{"name": "x", "dtype": "f99", "shape": []}]), "f99"),
        (lambda h: within(h, packs=[{"kind": "input", "number": 9, "size": 4, "function": "main"}]), "pack"),
        (lambda h: within(h, packs=[{"kind": "input", "number": 0, "size": 4, "function": "none"}]), "none"),
        (lambda h: within(h, target="abacus"), "'abacus'.*has cpu"),
    ],
)
def test_a_damaged_header_is_refused(exe, tmp_path, change, message):
    exe.save(tmp_path / "a.disc")
    rewrite(tmp_path / "a.disc", tmp_path / "b.disc", change)
    with pytest.raises(FormatError, match=f"b.disc.*{message}"):
        hlo_disc.load(tmp_path / "b.disc")


def test_no_field_of_the_header_can_be_missing_or_of_another_type(tmp_path):
    """Every element of a header with all kinds of records is replaced or removed, one after another."""
    exe = hlo_disc.compile(lambda x, y: (jnp.fft.fft(x + 1), x @ y, x @ jnp.ones((3, 5))), "f32[n, 3]", "f32[3, n]")
    exe.save(tmp_path / "a.disc")
    tried = 0
    for path in places(header_of(tmp_path / "a.disc")):
        for other in (None, "nonsense", -1, 1e99, [], {}):
            rewrite(tmp_path / "a.disc", tmp_path / "b.disc", lambda h, p=path, o=other: replaced(h, p, o))
            try:
                hlo_disc.load(tmp_path / "b.disc")
            except FormatError:
                tried += 1
            except UnsupportedOpError:
                assert path[-1] == "target"
    assert tried > 100


def places(node, path=()):
    """Yield the paths to everything within a header, but for what is only shown."""
    if path:
        yield path
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if key not in ("compile_ms", "account"):
            yield from places(value, (*path, key))


def replaced(node, path, other):
    """Return a header with `other` at a path, or with nothing there if it is None."""
    first, *rest = path
    items = dict(node) if isinstance(node, dict) else dict(enumerate(node))
    if rest:
        items[first] = replaced(items[first], rest, other)
    elif other is None:
        del items[first]
    else:
        items[first] = other
    return items if isinstance(node, dict) else list(items.values())


def test_any_damage_is_a_format_error(exe, tmp_path):
    """Damage is a format error, or it was in a gap between sections, and nothing has changed."""
    exe.save(tmp_path / "a.disc")
    data = (tmp_path / "a.disc").read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        at, length = int(rng.integers(len(data))), int(rng.integers(100))
        content = bytearray(data)
        if rng.random() < 0.5:
            del content[at : at + length]
        else:
            content[at] ^= 1 << int(rng.integers(8))
        (tmp_path / "b.disc").write_bytes(content)
        try:
            program = read(tmp_path / "b.disc")
        except FormatError:
            refused += 1
            continue
        assert (program.object, program.inputs) == (exe.program.object, exe.program.inputs)
    assert refused > 200


def test_round_trip_of_the_record(exe, tmp_path):
    save(exe.program, tmp_path / "a.disc")
    again = read(tmp_path / "a.disc")
    for name in again._fields:
        if name not in ("constants", "forms"):
            assert getattr(again, name) == getattr(exe.program, name), name


def test_a_program_that_is_not_mapped_outlives_its_file(tmp_path):
    """A program that is not mapped outlives its file. A mapped one would end the process if the file became shorter."""
    w = np.random.default_rng(0).standard_normal((64, 300), np.float32)
    exe = hlo_disc.compile(lambda x: (x @ w, w[0] + x.sum()), "f32[n, 64]")
    exe.save(tmp_path / "layer.disc")
    loaded = hlo_disc.load(tmp_path / "layer.disc", mmap=False)
    os.truncate(tmp_path / "layer.disc", 0)
    x = np.ones((3, 64), np.float32)
    for got, want in zip(loaded(x), exe(x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_file_is_on_the_disk_before_it_takes_the_place_of_another(tmp_path, monkeypatch):
    done: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: done.append("fsync") or fsync(file))
    monkeypatch.setattr(os, "replace", lambda *paths: done.append("replace") or replace(*paths))
    hlo_disc.compile(lambda x: x + 1, "f32[n]", cache="").save(tmp_path / "add.disc")
    assert done == ["fsync", "replace"]
