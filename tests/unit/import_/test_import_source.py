"""The forms of programs that are accepted, and the errors for everything else."""

from types import SimpleNamespace

import child
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from hlo_disc import mlir
from hlo_disc.dynamic_hlo.ops.reference import evaluate
from hlo_disc.errors import ParseError
from hlo_disc.import_.stablehlo.module import read_module
from hlo_disc.import_.stablehlo.source import load_module

TEXT = """\
module @double {
  func.func public @main(%x: tensor<?xf32>) -> tensor<?xf32> {
    %0 = stablehlo.add %x, %x : tensor<?xf32>
    return %0 : tensor<?xf32>
  }
}
"""


def bytecode():
    return mlir.bytecode(load_module(TEXT))


def artifact():
    return mlir.stablehlo.serialize_portable_artifact(load_module(TEXT), "1.8.0")


@pytest.mark.parametrize("form", ["text", "bytes", "bytecode", "artifact", "module"])
@pytest.mark.parametrize("in_file", [False, True])
def test_forms(form, in_file, tmp_path):
    forms = {"text": TEXT, "bytes": TEXT.encode(), "bytecode": bytecode(), "artifact": artifact()}
    source = forms.get(form) or load_module(TEXT)
    if in_file and form != "module":
        path = tmp_path / "program"
        path.write_bytes(source if isinstance(source, bytes) else source.encode())
        source = path if form == "text" else str(path)
    graph = read_module(load_module(source))
    np.testing.assert_array_equal(evaluate(graph, [np.ones(3, np.float32)])[0], 2)


def test_export():
    exported = export.export(jax.jit(jnp.tanh))(jax.ShapeDtypeStruct(export.symbolic_shape("b, 3"), jnp.float32))
    graph = read_module(load_module(exported))
    assert str(graph.inputs[0].shape) == "(b, 3)"


def test_lines_of_a_file(tmp_path):
    path = tmp_path / "double.mlir"
    path.write_text(TEXT)
    graph = read_module(load_module(path))
    assert graph.ops[0].loc == f"{path}:3:10"
    assert read_module(load_module(TEXT)).ops[0].loc == "<text>:3:10"


@pytest.mark.parametrize(
    "source, message",
    [
        ("", "<text> holds no MLIR module: it is empty"),
        (b"", "<bytes> holds no MLIR module: it is empty"),
        ("module {}", "<text> holds no MLIR module: it has no operations"),
        (b"hello", "<bytes>:1:1: custom op 'hello' is unknown"),
        ("module {\n  func.func @main( }", "<text>:2:19: expected"),
        (TEXT.replace("%x, %x", "%x, %y"), "<text>:3:28: use of undeclared SSA value name"),
        (TEXT.replace("stablehlo.add", "stablehlo.adds"), "<text>:3:10: custom op 'stablehlo.adds' is unknown"),
        (TEXT.replace("%x : ", "%x : (tensor<?xf32>, tensor<?xi32>) -> "), "<text>:3:28: use of value .* different"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", r"<bytes> is neither StableHLO text nor MLIR .* begins with b'\\x89PNG"),
        (b"MZ\x00\x00", "neither StableHLO text nor MLIR bytecode: .* its byte 2 is b'.x00'"),
        (b"PK\x03\x04", "is a zip file, .* is opened with hlo_disc.load"),
        (3, "cannot read a program from int: pass a function of JAX or TensorFlow, a jax.export"),
        (SimpleNamespace(mlir_module_serialized=b"ML\xefR", fun_name="f"), "the export of f: "),
    ],
)
def test_errors(source, message):
    with pytest.raises(ParseError, match=f"^{message}" if message.startswith("<") else message):
        load_module(source)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="no_such_file.mlir"):
        load_module("no_such_file.mlir")
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        load_module(tmp_path)


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "model.mlir"
    path.write_text(TEXT.replace("return", "retrun"))
    with pytest.raises(ParseError, match=rf"{path}:4:5: custom op 'retrun' is unknown"):
        load_module(path)
    path.write_bytes(bytecode()[:100])
    with pytest.raises(ParseError, match=f"{path}: "):
        load_module(str(path))


def test_no_dialects_are_listed():
    with pytest.raises(ParseError) as error:
        load_module("module {\n  %0 = foo.bar : i32\n}")
    assert "<text>:2:8: Dialect `foo' not found" in str(error.value) and "llvm" not in str(error.value)


def test_truncated_anywhere():
    """A module is truncated in a process of its own: an abort in the parser must fail this test, not end the run."""
    code = """
import sys
from hlo_disc.errors import ParseError
from hlo_disc.import_.stablehlo.source import load_module
for data in map(bytes.fromhex, sys.stdin.read().split()):
    for end in range(0, len(data), 3):
        try:
            load_module(data[:end])
        except ParseError:
            continue
        sys.exit(f"{end} of {len(data)} bytes were accepted")
"""
    text = TEXT[: TEXT.rindex("}")].encode()
    stdin = " ".join(data.hex() for data in (bytecode(), artifact(), text))
    child.python("-c", code, input=stdin)


def test_modules_without_main():
    with pytest.raises(ParseError, match="no function @main to compile; it has @f"):
        read_module(load_module("func.func @f() { return }"))
    with pytest.raises(ParseError, match="no function @main"):
        read_module(load_module("func.func private @main()\n"))
