"""The commands: what they print and write, and that the user's mistakes are one message and exit code 1."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import depth
import emitted
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

import hlo_disc
from hlo_disc.cli import files, main

ADD = """
module @add {
  func.func public @main(%a: tensor<?x4xf32> {hlo_disc.shape = "(n, 4)"}, %b: tensor<4xf32>) -> tensor<?x4xf32> {
    %size = stablehlo.get_dimension_size %a, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
    %n = stablehlo.reshape %size : (tensor<i32>) -> tensor<1xi32>
    %c = stablehlo.constant dense<4> : tensor<1xi32>
    %shape = stablehlo.concatenate %n, %c, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %w = stablehlo.dynamic_broadcast_in_dim %b, %shape, dims = [1] : (tensor<4xf32>, tensor<2xi32>) -> tensor<?x4xf32>
    %sum = stablehlo.add %a, %w : tensor<?x4xf32>
    return %sum : tensor<?x4xf32>
  }
}
"""
STATIC = """
module @exp {
  func.func public @main(%a: tensor<2x4xf32>) -> tensor<2x4xf32> {
    %0 = stablehlo.exponential %a : tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}
"""


def call(*args):
    """Run the command in this process; return (exit code, stdout, stderr)."""
    result = CliRunner().invoke(main, [str(a) for a in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "add.mlir"
    path.write_text(ADD)
    return path


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "add.disc"
    hlo_disc.compile(lambda a, b: a + b, "f32[n, 4]", "f32[4]").save(path)
    return path


# ------------------------------------------------------------------------------------------------ what works


@pytest.mark.parametrize("command", [(), ("compile",), ("run",), ("explain",), ("profile",)])
def test_help(command):
    code, out, _ = call(*command, "--help")
    assert code == 0
    assert "FILE" in out


def test_version():
    code, out, _ = call("--version")
    assert code == 0
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert out.split()[-1] == hlo_disc.__version__ == project["version"]


def test_compile_then_run(module, tmp_path):
    code, out, _ = call("compile", module, "-o", tmp_path / "add.disc")
    assert code == 0
    assert "float32[n, 4]" in out
    code, out, _ = call("run", tmp_path / "add.disc", "--dim", "n=3", "--seed", 7, "--out", tmp_path / "r.npz")
    assert code == 0
    assert "(3, 4)" in out
    assert "n=3" in out
    assert np.load(tmp_path / "r.npz")["out0"].shape == (3, 4)


@pytest.mark.parametrize("form", ["text", "artifact"])
def test_stablehlo_comes_out_again(tmp_path, form):
    """The StableHLO of a program that JAX exports gives equal results at all sizes, compiled again by us and by XLA."""
    sizes = jax.export.symbolic_shape("b, s", constraints=["s <= 64"])

    def attend(x, mask):
        scores = jnp.where(mask[:, None], jnp.einsum("bsd,btd->bst", x, x), -1e9)
        return jax.nn.softmax(scores) @ x, x.cumsum(1)[:, ::2]

    specs = jax.ShapeDtypeStruct((*sizes, 4), jnp.float32), jax.ShapeDtypeStruct(sizes, jnp.bool_)
    exported = jax.export.export(jax.jit(attend))(*specs)
    content = exported.mlir_module().encode() if form == "text" else exported.mlir_module_serialized
    (tmp_path / "attend").write_bytes(content)
    code, text, err = call("compile", tmp_path / "attend", "--emit", "stablehlo")
    assert code == 0, err
    assert text == hlo_disc.stablehlo(tmp_path / "attend")
    code, out, _ = call("compile", tmp_path / "attend", "--emit", "stablehlo", "-o", tmp_path / "out.mlir")
    assert (code, out) == (0, f"{tmp_path / 'out.mlir'}: {len(text)} characters of StableHLO\n")
    assert (tmp_path / "out.mlir").read_text() == text
    calls = []
    for b, s in ((2, 7), (1, 1), (5, 64)):
        random = np.random.default_rng(s)
        arguments = random.standard_normal((b, s, 4), np.float32), random.random((b, s)) < 0.7
        calls.append((arguments, attend(*map(jnp.asarray, arguments))))
    executable = emitted.check(text, calls)
    assert executable.dims == ("b", "s")
    with pytest.raises(hlo_disc.ShapeError, match="64"):
        executable(np.ones((2, 65, 4), np.float32), np.ones((2, 65), bool))


def test_stablehlo_of_a_module_that_is_reopened(tmp_path):
    (tmp_path / "exp.mlir").write_text(STATIC)
    options = ["--dims", "args[0]=(n, _)", "--constraint", "n <= 4"]
    code, text, err = call("compile", tmp_path / "exp.mlir", "--emit", "stablehlo", *options)
    assert code == 0, err
    assert 'tensor<?x4xf32> {hlo_disc.shape = "(n, 4)"}' in text
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    executable = emitted.check(text, [([x], [np.exp(x)])])
    with pytest.raises(hlo_disc.ShapeError, match="n <= 4: 'n' is 5"):
        executable(np.ones((5, 4), np.float32))


def test_bytecode_and_portable_artifact(tmp_path):
    spec = jax.ShapeDtypeStruct((2, 3), jnp.float32)
    exported = jax.export.export(jax.jit(lambda x: x + 1))(spec)
    (tmp_path / "portable").write_bytes(exported.mlir_module_serialized)
    (tmp_path / "text").write_text(exported.mlir_module())
    for name in ("portable", "text"):
        code, out, err = call("run", tmp_path / name)
        assert code == 0, err
        assert "(2, 3)" in out


def test_run_with_arrays(compiled, tmp_path):
    a, b = np.arange(8, dtype=np.float32).reshape(2, 4), np.ones(4, np.float32)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    np.savez(tmp_path / "named.npz", b=b, a=a)
    np.savez(tmp_path / "positions.npz", a, b)
    for inputs in (["a.npy", "b.npy"], ["named.npz"], ["positions.npz"], ["b=b.npy", "a.npy"]):
        options = [
            x for name in inputs for x in ("--input", f"b={tmp_path / name[2:]}" if "=" in name else tmp_path / name)
        ]
        code, _, err = call("run", compiled, *options, "--out", tmp_path / "r.npz", "--repeat", 3)
        assert code == 0, err
        np.testing.assert_array_equal(np.load(tmp_path / "r.npz")["out0"], a + b)


def test_sizes_of_random_inputs_follow_given_arrays(compiled, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((5, 4), np.float32))
    code, out, _ = call("run", compiled, "--input", f"a={tmp_path / 'a.npy'}")
    assert code == 0
    assert "n=5" in out


def test_static_module_is_reopened(tmp_path):
    (tmp_path / "exp.mlir").write_text(STATIC)
    code, out, err = call("run", tmp_path / "exp.mlir", "--dims", "args[0]=(n, _)", "--dim", "n=6")
    assert code == 0, err
    assert "(6, 4)" in out


def test_constraints(module):
    code, out, err = call("run", module, "--constraint", "n % 4 == 0", "--constraint", "n//2 < 4", "--dim", "n=4")
    assert code == 0, err
    code, out, err = call("run", module, "--constraint", "n % 4 == 0", "--dim", "n=6")
    assert (code, err) == (1, "error: the sizes do not meet the constraint n % 4 == 0: 'mod(n, 4)' is 2\n")
    code, out, err = call("run", module, "--constraint", "n % 4", "--dim", "n=6")
    assert code == 1 and err.startswith("error: 'n % 4' is not a constraint"), err


def test_explain_and_dump(module, tmp_path):
    code, out, _ = call(
        "explain", module, "--dump", tmp_path / "dump", "--target", "cpu:avx2", "--constraint", "n <= 64"
    )
    assert code == 0
    assert "codegen" in out
    assert any(path.suffix == ".asm" for path in (tmp_path / "dump").iterdir())


def test_explain_in_short_in_full_and_as_a_page(compiled, tmp_path):
    code, short, _ = call("explain", compiled)
    assert code == 0 and "program jit_" in short and "operations" not in short
    code, full, _ = call("explain", compiled, "--full")
    assert code == 0 and "operations" in full
    code, out, _ = call("explain", compiled, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert (code, out) == (0, f"{short}{tmp_path / 'page.html'}: {len(page.encode())} bytes\n")
    assert "hlo-disc profile FILE" in page and '"profile":null' in page
    code, _, err = call("explain", compiled, "--html", tmp_path)
    assert code == 1 and "is a directory" in err


def test_profile(compiled, tmp_path):
    files = tmp_path / "trace.json", tmp_path / "page.html"
    options = ["--dim", "n=100", "--seconds", 0.01, "--trace", files[0], "--html", files[1]]
    code, out, err = call("profile", compiled, *options)
    assert code == 0, err
    assert "at n=100: " in out and "the host" in out and "k0_" in out
    events = json.loads(files[0].read_text())["traceEvents"]
    kernels = [event["args"]["kernel"] for event in events if event.get("cat") == "kernel"]
    assert kernels and all(kernel.startswith("k0_") for kernel in kernels)
    assert '"profile":{"name":"jit_' in files[1].read_text()
    for wrong, message in (
        (["--dim", "n=4", "--seconds", 0], "--seconds 0.0: give a number of seconds above 0"),
        (["--dim", "n=4", "--trace", tmp_path], "is a directory"),
        ([], "give --dim n=…"),
    ):
        code, _, err = call("profile", compiled, *wrong)
        assert code == 1 and message in err, err


def test_module_entry_point(compiled):
    result = subprocess.run(
        [sys.executable, "-m", "hlo_disc", "run", str(compiled), "--dim", "m=2"], capture_output=True, text=True
    )
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr


# --------------------------------------------------------------------------------------------- what does not

UNKNOWN_OP = STATIC.replace("stablehlo.exponential", "stablehlo.frobnicate")
UNSUPPORTED = """
module {
  func.func public @main(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
    %0 = stablehlo.custom_call @frobnicate(%a) : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return %0 : tensor<4x4xf32>
  }
}
"""


def bytecode():
    exported = jax.export.export(jax.jit(lambda x: x + 1))(jax.ShapeDtypeStruct((2,), jnp.float32))
    return exported.mlir_module_serialized


UNFIT: dict[str, tuple[bytes, list[str]]] = {
    "text": (b"This is a letter.\n", []),
    "long": (b"x" * 100_000, ["custom op 'xxx", "…"]),
    "latin": (STATIC.encode() + b"// \xe9", [f"byte {len(STATIC) + 3} is b'\\xe9', which no UTF-8"]),
    "bytes": (b"\x00\x01\x02" * 50, []),
    "empty": (b"", []),
    "truncated bytecode": (bytecode()[:100], []),
    "unknown op": (UNKNOWN_OP.encode(), ["frobnicate"]),
    "unsupported op": (UNSUPPORTED.encode(), ["custom_call", "4x4xf32"]),
    "no main": (STATIC.replace("@main", "@other").encode(), ["main", "other"]),
    "no function": (b"module {}", ["no MLIR module"]),
}
READING = ["explain", "run", "compile --emit stablehlo"]


@pytest.mark.parametrize(("kind", "command"), depth.crossed([*UNFIT], READING))
def test_files_that_cannot_be_compiled(tmp_path, kind, command):
    content, parts = UNFIT[kind]
    path = tmp_path / "bad.mlir"
    path.write_bytes(content)
    code, out, err = call(*command.split(), path)
    assert code == 1
    assert out == ""
    assert err.startswith("error: ")
    assert "Traceback" not in err
    assert len(err) < 1000
    missing = [part for part in parts if part not in err]
    assert not missing, f"{err} does not say {missing}"


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--dim", "m=3"], ["m=3", "dims are n"]),
        (["--dim", "n"], ["--dim 'n'", "NAME=SIZE"]),
        (["--dim", "n=-3"], ["n=-3", "no size", "integer from 0"]),
        (["--dim", "n=1.5"], ["'1.5' is no size"]),
        (["--dim", "n=²"], ["'²' is no size"]),
        (["--dim", "n=9223372036854775808"], ["'9223372036854775808' is no size"]),
        (["--dim", "n=" + "9" * 5000], ["is no size"]),
        (["--dim", "n=9223372036854775807"], ["float32[9223372036854775807, 4]", "larger than any array"]),
        (["--dim", "n=1000000000000"], ["float32[1000000000000, 4]", "32000000000000 bytes", "smaller sizes"]),
        (["--dim", "n=2", "--dim", "n=3"], ["--dim gives n twice, as 2 and as 3"]),
        (["--dim", "n=3", "--input", "{tmp}/a.npy"], ["--dim n=3", "input a has 2 in dimension 0", "'n'"]),
        (["--dim", "n=3", "--seed", "-1"], ["--seed", "-1"]),
        (["--dim", "n=3", "--threads", "9" * 20], ["--threads", "9" * 20]),
        ([], ["input a", "--dim n="]),
        (["--input", "{tmp}/none.npy"], ["none.npy", "No such file"]),
        (["--input", "{tmp}/text.npy"], ["text.npy: is no .npy or .npz file, it begins with b'text'; give what numpy"]),
        (["--input", "{tmp}/empty.npy"], ["empty.npy: is empty; give what numpy.save"]),
        (["--input", "{tmp}/cut.npy"], ["cut.npy: is a damaged .npy", "numpy.save"]),
        (["--input", "{tmp}/cut.npz"], ["cut.npz: is a damaged .npz", "numpy.save"]),
        (["--input", "{tmp}/odd.npy"], ["odd.npy: is a damaged .npy", "numpy.save"]),
        (["--input", "{tmp}/huge.npy"], ["huge.npy: "]),
        (["--input", "{tmp}/object.npy"], ["object.npy: holds Python objects"]),
        (["--input", "{tmp}/zip.npz"], ["zip.npz: is a zip file, but no .npz: its member 'x' is no array"]),
        (["--input", "{tmp}"], ["Is a directory"]),
        (["--input", "a="], ["--input 'a=' is not of the form [NAME=]FILE"]),
        (["--input", "={tmp}/a.npy"], ["is not of the form [NAME=]FILE"]),
        (["--input", "a={tmp}/both.npz"], ["a .npz names its arrays itself"]),
        (["--input", "{tmp}/a.npy", "--input", "a={tmp}/a.npy"], ["the input a is given twice"]),
        (["--input", "{tmp}/bytes.npy", "--dim", "n=2"], ["'a'", "|V4", "float32"]),
        (["--input", "{tmp}/bytes2.npy", "--dim", "n=2"], ["'a'", "|V2", "float32"]),
        (["--input", "{tmp}/record.npy", "--dim", "n=2"], ["'a'", "('x', '<f4')", "float32"]),
        (["--input", "c={tmp}/a.npy"], ["no input 'c'", "a, b"]),
        (["--input", "{tmp}/f64.npy", "--dim", "n=2"], ["'a'", "float64", "float32"]),
        (["--input", "{tmp}/rank.npy", "--dim", "n=2"], ["'a'", "rank"]),
        (["--input", "{tmp}/wide.npy", "--dim", "n=2"], ["'a'", "dimension 1", "5", "4"]),
        (["--input", "{tmp}/a.npy"] * 1 + ["--input", "{tmp}/rank.npy"] * 2, ["only 2 inputs"]),
        (["--dims", "a=(n, m)", "--dim", "n=2"], ["compiled already", "--dims"]),
        (["--repeat", "0"], ["0"]),
        (["--nonsense"], ["No such option '--nonsense'", "; see '"]),
        (["--out", "{tmp}"], ["--out {tmp}: is a directory"]),
        (["--out", "{tmp}/none/x.npz"], ["there is no directory {tmp}/none"]),
        (["--out", "/dev/full", "--dim", "n=1"], ["cannot write /dev/full: No space left on device"]),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else None,
)
def test_calls_that_do_not_fit(compiled, tmp_path, args, parts):
    np.save(tmp_path / "a.npy", np.zeros((2, 4), np.float32))
    np.save(tmp_path / "f64.npy", np.zeros((2, 4)))
    np.save(tmp_path / "rank.npy", np.zeros(4, np.float32))
    np.save(tmp_path / "wide.npy", np.zeros((2, 5), np.float32))
    np.save(tmp_path / "object.npy", np.array([{}], object))
    np.save(tmp_path / "bytes.npy", np.zeros((2, 4), "V4"))
    np.save(tmp_path / "bytes2.npy", np.zeros((2, 8), "V2"))
    np.save(tmp_path / "record.npy", np.zeros((2, 4), [("x", "f4")]))
    np.savez(tmp_path / "both.npz", a=np.zeros((2, 4), np.float32), b=np.zeros(4, np.float32))
    good = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "text.npy").write_text("text")
    (tmp_path / "empty.npy").write_text("")
    (tmp_path / "cut.npy").write_bytes(good[:-5])
    (tmp_path / "cut.npz").write_bytes((tmp_path / "both.npz").read_bytes()[:100])
    (tmp_path / "odd.npy").write_bytes(good.replace(b"'shape': (2", b"'shape': (("))
    (tmp_path / "huge.npy").write_bytes(good.replace(b"(2, 4), }" + b" " * 11, b"(2000000000000,4), }"))
    with zipfile.ZipFile(tmp_path / "zip.npz", "w") as archive:
        archive.writestr("x", "text")
    code, out, err = call("run", compiled, *(a.format(tmp=tmp_path) for a in args))
    assert code == 1
    assert err.startswith("error: ") and err.count("\n") == 1, err
    missing = [part for part in parts if part.format(tmp=tmp_path) not in err]
    assert not missing, f"{err} does not say {missing}"


def test_sizes_that_are_none(tmp_path):
    """Sizes that make a dim negative are errors, where the dims of inputs are expressions."""
    hlo_disc.compile(lambda x, y: (x, y), "f32[n]", "f32[n - 3]").save(tmp_path / "minus.disc")
    assert call("run", tmp_path / "minus.disc", "--dim", "n=3")[0] == 0
    code, _, err = call("run", tmp_path / "minus.disc", "--dim", "n=2")
    assert (code, err) == (
        1,
        "error: the input y is float32[n - 3]: with n=2, its dimension 0 is -1, which is no size\n",
    )
    np.save(tmp_path / "y.npy", np.zeros(1, np.float32))
    code, _, err = call("run", tmp_path / "minus.disc", "--dim", "n=3", "--input", f"y={tmp_path / 'y.npy'}")
    assert code == 1 and "--dim n=3: the array for the input y has 1 in dimension 0, which is 'n - 3'" in err


def test_memory_that_cannot_be_had(compiled):
    """Memory that the machine has, but the system does not let a process have, is an error with a message."""
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (6 << 30,) * 2); from hlo_disc.cli import main; main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, "run", str(compiled), "--dim", "n=200000000"], capture_output=True, text=True
    )
    assert result.returncode == 1
    assert result.stderr.startswith("error: ") and "Traceback" not in result.stderr, result.stderr
    assert "(200000000, 4)" in result.stderr or "float32[200000000, 4]" in result.stderr


def test_extension_types_in_files(tmp_path):
    """npz does not know these types: arrays are bytes without a type's name, and results are float32."""
    for dtype in (jnp.bfloat16, jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.int4):
        hlo_disc.compile(lambda x: x, jax.ShapeDtypeStruct((3,), dtype)).save(tmp_path / "x.disc")
        code, _, err = call("run", tmp_path / "x.disc", "--out", tmp_path / "results")
        assert code == 0, err
        assert np.load(tmp_path / "results")["out0"].dtype == np.float32
    x = np.array([1, 2.5, -3], jnp.bfloat16)
    np.save(tmp_path / "x=1.npy", x)
    hlo_disc.compile(lambda x: x + 1, "bf16[n]").save(tmp_path / "x.disc")
    code, _, err = call("run", tmp_path / "x.disc", "--input", tmp_path / "x=1.npy", "--out", tmp_path / "results")
    assert code == 0, err
    np.testing.assert_array_equal(np.load(tmp_path / "results")["out0"], [2, 3.5, -2])


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["frobnicate"], ["No such command 'frobnicate'", "--help'"]),
        (["run"], ["Missing argument 'FILE'", "run --help'"]),
        (["compile", "{tmp}/add.mlir"], ["Missing option '-o' / '--output'", "compile --help'"]),
        (["compile", "{tmp}/add.mlir", "--emit", "x"], ["--emit", "'x' is not one of 'disc', 'library', 'stablehlo'"]),
        (["compile", "{tmp}/add.mlir", "--emit", "stablehlo", "-o", "{tmp}"], ["--output {tmp}: is a directory"]),
        (["compile", "{tmp}/add.mlir", "--emit", "stablehlo", "-o", "/dev/full"], ["cannot write /dev/full: No space"]),
        (
            ["compile", "{tmp}/add.mlir", "--emit", "stablehlo", "--target", "cpu"],
            ["--target has no effect on"],
        ),
        (["compile", "{tmp}/add.mlir", "-o", "{tmp}"], ["--output {tmp}: is a directory"]),
        (["compile", "{tmp}/add.mlir", "-o", "{tmp}/none/x"], ["there is no directory {tmp}/none"]),
        (["compile", "{tmp}/add.mlir", "-o", "/dev/full"], ["cannot write /dev/full: No space left on device"]),
        (["compile", "{tmp}/add.mlir", "-o", "{tmp}/x", "--target", "cpu:sse"], ["'cpu:sse'", "cpu:avx2"]),
        (["explain", "{tmp}/add.mlir", "--dump", "{tmp}/add.mlir"], ["--dump {tmp}/add.mlir: is a file"]),
        (["explain", "{tmp}/add.mlir", "--dims", "a=(n)", "--dims", "a=(m)"], ["--dims gives a twice"]),
        (["explain", "/dev/null"], ["/dev/null: is no regular file"]),
        (["conformance", "{tmp}", "--timeout", "nan"], ["--timeout nan", "seconds"]),
        (["conformance", "{tmp}", "--timeout", "1e300"], ["--timeout 1e+300", "seconds"]),
        (["conformance", "{tmp}", "--timeout", "0"], ["--timeout 0", "seconds"]),
        (["conformance", "{tmp}", "--junit", "{tmp}"], ["--junit {tmp}: is a directory"]),
        (["conformance", "{tmp}", "--json", "{tmp}/none/x"], ["there is no directory {tmp}/none"]),
        (["conformance", "{tmp}", "--dump", "{tmp}/add.mlir"], ["--dump {tmp}/add.mlir: is a file"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_options_that_cannot_be(module, tmp_path, args, parts):
    code, out, err = call(*(a.format(tmp=tmp_path) for a in args))
    assert (code, out) == (1, "")
    assert err.startswith("error: ") and err.count("\n") == 1, err
    missing = [part for part in parts if part.format(tmp=tmp_path) not in err]
    assert not missing, f"{err} does not say {missing}"


def test_stablehlo_of_an_executable_there_is_none(compiled):
    code, out, err = call("compile", compiled, "--emit", "stablehlo")
    assert (code, out) == (1, "")
    assert err == f"error: {compiled} is compiled already, to machine code: give the program that it was made from\n"


def test_a_reader_that_has_enough(compiled):
    """A reader may close the pipe early, as in `hlo-disc explain FILE | head`: the command ends without a message."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hlo_disc", "explain", str(compiled)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 1


@pytest.mark.parametrize("command", ["compile", "run", "explain"])
def test_no_such_file(tmp_path, command):
    extra = ["-o", tmp_path / "x.disc"] if command == "compile" else []
    code, _, err = call(command, tmp_path / "none.mlir", *extra)
    assert code == 1
    assert "none.mlir: no such file" in err
    code, _, err = call(command, tmp_path, *extra)
    assert code == 1
    assert "is a directory" in err


def test_environment_that_does_not_parse(compiled, monkeypatch):
    monkeypatch.setenv("HLO_DISC_THREADS", "many")
    code, _, err = call("explain", compiled)
    assert code == 1
    assert "HLO_DISC_THREADS='many' is not a valid int" in err
    monkeypatch.setenv("HLO_DISC_THREADS", "-1")
    code, _, err = call("explain", compiled)
    assert code == 1
    assert "threads=-1 must be an integer from 0 to" in err


@pytest.mark.parametrize("name", ["x.disc", "x"])
def test_damaged_executable(compiled, tmp_path, name):
    (tmp_path / name).write_bytes(compiled.read_bytes()[:500])
    code, _, err = call("run", tmp_path / name)
    assert code == 1
    assert err.startswith(f"error: {tmp_path / name} (500 bytes) is truncated: ") and "compile it again" in err


def test_a_parser_that_dies_takes_another_process_with_it(tmp_path, monkeypatch):
    path = tmp_path / "add.mlirbc"
    path.write_bytes(bytecode())
    for code, message in (
        ("import os; os.abort()", "damaged MLIR bytecode: the process that read it has ended by SIGABRT"),
        ("""import sys; sys.exit('a warning\\n["ShapeError", "sizes:\\\\nno"]\\nanother')""", "error: sizes:\nno"),
        ("raise RuntimeError('x')", "add.mlirbc cannot be read: RuntimeError: x"),
        ("import sys; sys.exit(1)", "add.mlirbc cannot be read: no reason is given"),
    ):
        monkeypatch.setattr(files, "_READ", code)
        for command in (["explain", path], ["compile", path, "--emit", "stablehlo"], ["run", path], ["bench", path]):
            exit_code, _, error = call(*command)
            assert (exit_code, message in error) == (1, True), error
    assert call("explain", tmp_path / "none.mlirbc")[0] == 1


def test_reading_takes_no_more_than_so_much_cpu_time(tmp_path, monkeypatch):
    path = tmp_path / "add.mlirbc"
    path.write_bytes(bytecode())
    read = files._READ
    assert "\ntry:\n" in read
    monkeypatch.setattr(files, "_SECONDS", 1)
    monkeypatch.setattr(files, "_READ", read.replace("\ntry:\n", "\nwhile True: pass\ntry:\n"))
    exit_code, _, error = call("compile", path, "--emit", "stablehlo")
    assert (exit_code, f"error: {path} cannot be read: it takes more than 1 s of CPU time" in error) == (1, True), error
