"""The conformance runner on small modules of the forms that it takes, right ones and wrong ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

from hlo_disc import cli
from hlo_disc.conformance import oracle
from hlo_disc.conformance.cases import classify, make_case
from hlo_disc.conformance.checks import mismatch
from hlo_disc.conformance.command import find
from hlo_disc.conformance.pool import run_cases
from hlo_disc.conformance.reopen import open_dims
from hlo_disc.conformance.run import Result, Settings, run_case
from hlo_disc.errors import ArgumentError
from hlo_disc.import_.stablehlo.source import load_module
from hlo_disc.options import Options


def checked(given: str, body: str, expected: str, check: str = "expect_close") -> str:
    """Return a module with `@inputs` and `@expected`.

    given, expected: "[1.0, 2.0] : tensor<2xf32>". body: makes %r of %x.
    """
    kind, result = given.partition(" : ")[2], expected.partition(" : ")[2]
    return f"""
module @case {{
  func.func public @main() -> ({result} {{jax.result_info = "result"}}) {{
    %x = call @inputs() : () -> {kind}
    %e = call @expected() : () -> {result}
    {body}
    stablehlo.custom_call @check.{check}(%r, %e) {{has_side_effect = true}} : ({result}, {result}) -> ()
    return %r : {result}
  }}
  func.func private @inputs() -> ({kind} {{mhlo.layout_mode = "default"}}) {{
    %c = stablehlo.constant dense<{given.partition(" : ")[0]}> : {kind}
    return %c : {kind}
  }}
  func.func private @expected() -> ({result} {{mhlo.layout_mode = "default"}}) {{
    %c = stablehlo.constant dense<{expected.partition(" : ")[0]}> : {result}
    return %c : {result}
  }}
}}
"""


def interpret(body: str) -> str:
    return f"func.func @some_op() {{\n{body}\n  func.return\n}}\n"


CHECK = "stablehlo.custom_call @check.{}(%r, %e) {{has_side_effect = true}} : ({}, {}) -> ()"
ROWS = "tensor<2x3xf32>"
SUM = f"""%zero = stablehlo.constant dense<0.0> : tensor<f32>
    %r = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
      : ({ROWS}, tensor<f32>) -> tensor<2xf32>"""
RIGHT = {
    "exp": checked(
        "[0.0, 1.0] : tensor<2xf32>", "%r = stablehlo.exponential %x : tensor<2xf32>",
        "[1.0, 2.7182817] : tensor<2xf32>",
    ),
    "exp_bf16": checked(
        "[0.0, 1.0] : tensor<2xbf16>", "%r = stablehlo.exponential %x : tensor<2xbf16>",
        "[1.0, 2.719] : tensor<2xbf16>",
    ),
    "nan": checked(
        "[-1.0, -0.0] : tensor<2xf32>", "%r = stablehlo.sqrt %x : tensor<2xf32>",
        "[0x7FC00000, 0.0] : tensor<2xf32>", "expect_eq",
    ),
    "sum": checked(
        f"[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]] : {ROWS}", SUM, "[6.0, 15.0] : tensor<2xf32>", "expect_almost_eq"
    ),
    "flags": checked(
        "[1, -7, 3] : tensor<3xi32>",
        "%c = stablehlo.constant dense<0> : tensor<3xi32>\n"
        "    %r = stablehlo.compare LT, %x, %c : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi1>",
        "[false, true, false] : tensor<3xi1>", "expect_eq",
    ),
    "interpret_add": interpret(
        "%a = stablehlo.constant dense<[1, 127]> : tensor<2xi8>\n"
        "%r = stablehlo.add %a, %a : tensor<2xi8>\n"
        "%e = stablehlo.constant dense<[2, -2]> : tensor<2xi8>\n"
        + CHECK.format("expect_eq", "tensor<2xi8>", "tensor<2xi8>")
    ),
    "interpret_sizes": interpret(
        "%a = stablehlo.constant dense<[1.5, 2.5]> : tensor<2xf64>\n"
        "%s = stablehlo.constant dense<[2, 2]> : tensor<2xi64>\n"
        "%r = stablehlo.dynamic_broadcast_in_dim %a, %s, dims = [1]"
        " : (tensor<2xf64>, tensor<2xi64>) -> tensor<2x2xf64>\n"
        "%e = stablehlo.constant dense<[[1.5, 2.5], [1.5, 2.5]]> : tensor<2x2xf64>\n"
        + CHECK.format("eq", "tensor<2x2xf64>", "tensor<2x2xf64>")
    ),
    "dynamic": """
func.func public @main(%n: tensor<i64>, %x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %four = stablehlo.constant dense<4> : tensor<1xi64>
  %rows = stablehlo.reshape %n : (tensor<i64>) -> tensor<1xi64>
  %shape = stablehlo.concatenate %rows, %four, dim = 0 : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
  %ones = stablehlo.dynamic_broadcast_in_dim %one, %shape, dims = [] : (tensor<f32>, tensor<2xi64>) -> tensor<?x4xf32>
  %r = stablehlo.add %x, %ones : tensor<?x4xf32>
  return %r : tensor<?x4xf32>
}
""",
    "two_dims": """
func.func @main(%x: tensor<?x?xf32>, %y: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %r = stablehlo.maximum %x, %y : tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}
""",
    "static": """
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %r = stablehlo.negate %x : tensor<3xf32>
  return %r : tensor<3xf32>
}
""",
}  # fmt: skip
WRONG = {
    "failed": checked(
        "[0.0, 1.0] : tensor<2xf32>", "%r = stablehlo.exponential %x : tensor<2xf32>", "[1.0, 2.5] : tensor<2xf32>"
    ),
    "unsupported": """
func.func @main(%x: tensor<2xf32>, %t: !stablehlo.token) -> !stablehlo.token {
  %r = "stablehlo.outfeed"(%x, %t) {outfeed_config = ""} : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
  return %r : !stablehlo.token
}
""".replace("outfeed", "no_such_feed"),
    "skipped": """
func.func @main(%x: tensor<2x!quant.uniform<i8:f32, 0.1>>) -> tensor<2x!quant.uniform<i8:f32, 0.1>> {
  return %x : tensor<2x!quant.uniform<i8:f32, 0.1>>
}
""",
}


def write(directory: Path, modules: dict[str, str]) -> Path:
    for name, text in modules.items():
        (directory / f"{name}.mlir").write_text(text)
    return directory


def run(path: Path, **settings: object) -> Result:
    given = {"target": Options.from_env().target, **settings}
    return run_case(path, path.name, Settings(**given), lambda stage, kind, op: None)


@pytest.mark.parametrize("name", RIGHT)
def test_right_modules_pass(name, tmp_path):
    result = run(write(tmp_path, RIGHT) / f"{name}.mlir")
    assert (result.status, result.reason) == ("passed", "")
    assert result.shapes == (4 if name in ("dynamic", "two_dims") else 1)


@pytest.mark.parametrize("target", ["emulated-cuda", "emulated-rocm"])
def test_the_command_for_an_emulated_gpu(target, tmp_path):
    """Its worker processes know the target, too."""
    directory = write(tmp_path, {"exp": RIGHT["exp"], "sum": RIGHT["sum"], "wrong": WRONG["failed"]})
    command = [sys.executable, "-m", "commands", "conformance", str(directory), "--jobs", "1", "--target", target]
    tests = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(tests / x) for x in ("emulator", "aarch64"))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 1 and "testdata: 2 passed, 1 failed of 3" in done.stdout, done.stdout + done.stderr


def test_a_target_that_is_not_there(tmp_path):
    result = CliRunner().invoke(cli.main, ["conformance", str(write(tmp_path, RIGHT)), "--target", "abacus"])
    assert result.exit_code == 1 and "unknown target 'abacus'" in result.output


def test_kinds_are_told_by_content():
    kinds = {name: classify(load_module(text)) for name, text in RIGHT.items()}
    assert kinds["exp"] == ("testdata", "exponential") and kinds["sum"] == ("testdata", "reduce")
    assert kinds["interpret_add"] == ("interpret", "add")
    assert kinds["dynamic"] == ("differential", "add") and kinds["static"] == ("differential", "negate")


def test_given_values_become_arguments():
    module = load_module(RIGHT["interpret_sizes"])
    case = make_case(module, "interpret")
    assert [a.tolist() for a in case.inputs] == [[1.5, 2.5]]  # but for those that are sizes
    assert [c.kind for c in case.checks] == ["eq"]
    assert module.operation.verify() and "check." not in str(module)
    case = make_case(load_module(RIGHT["sum"]), "testdata")
    assert case.inputs[0].shape == (2, 3) and case.checks[0].expected.tolist() == [6, 15]


@pytest.mark.parametrize(
    "kind, got, want, passes",
    [
        ("expect_eq", np.float32([np.nan, -0.0]), np.float32([np.nan, 0.0]), True),
        ("expect_eq", np.float32([1]), np.float32([np.nextafter(np.float32(1), np.float32(2))]), False),
        ("expect_eq", np.int8([1]), np.int16([1]), False),
        ("expect_eq", np.int8([[1]]), np.int8([1]), False),
        ("expect_close", np.float32([1, np.inf]), np.float32([1 + 3 * 2**-23, np.inf]), True),
        ("expect_close", np.float32([1]), np.float32([1 + 4 * 2**-23]), False),
        ("expect_close", np.float64([1]), np.float64([1 + 4 * 2**-52]), False),
        ("expect_close", np.float32([1e-45]), np.float32([-1e-45]), True),
        ("expect_close", np.float32([np.inf]), np.float32([3.4028235e38]), False),
        ("expect_close", np.float32([np.inf]), np.float32([-np.inf]), False),
        ("expect_close", np.float32([np.nan]), np.float32([1]), False),
        ("expect_close", np.array([1], ml_dtypes.bfloat16), np.array([1 + 2**-6], ml_dtypes.bfloat16), True),
        ("expect_close", np.complex64([1 + 1j]), np.complex64([1 + (1 + 2**-22) * 1j]), True),
        ("expect_close", np.complex64([1 + 1j]), np.complex64([1 + 1.1j]), False),
        ("expect_close", np.int32([7]), np.int32([8]), False),
        ("expect_almost_eq", np.float32([1, np.nan]), np.float32([1.0009, np.nan]), True),
        ("expect_almost_eq", np.float32([1]), np.float32([1.002]), False),
        ("eq", np.float32([1]), np.float32([1.00009]), True),
        ("eq", np.float32([1]), np.float32([1.0002]), False),
    ],
)  # fmt: skip
def test_checks(kind, got, want, passes):
    assert (mismatch(kind, got, want) == "") is passes


def test_mismatch_says_what_and_where():
    wrong = mismatch("expect_eq", np.int32([[1, 2], [3, 4]]), np.int32([[1, 2], [7, 8]]))
    assert wrong == "expect_eq: 2 of 4 elements differ; first at [1, 0]: got 3, expected 7"


def test_command_reports_and_exits_with_1(tmp_path):
    write(tmp_path, {"exp": RIGHT["exp"], **WRONG})
    files = "--junit", f"{tmp_path}/r.xml", "--json", f"{tmp_path}/r.json"
    outcome = CliRunner().invoke(cli.main, ["conformance", str(tmp_path), "--jobs", "1", *files])
    assert outcome.exit_code == 1
    assert "failed      failed.mlir: result 0: expect_close: 1 of 2 elements differ; first at [1]" in outcome.stdout
    by_name = {r["name"]: r for r in json.loads((tmp_path / "r.json").read_text())}
    assert {name: r["status"] for name, r in by_name.items()} == {
        "exp.mlir": "passed", "failed.mlir": "failed", "unsupported.mlir": "error", "skipped.mlir": "skipped"
    }  # fmt: skip
    suite = ElementTree.parse(tmp_path / "r.xml").getroot()
    assert {**suite.attrib, "name": ""} == {"name": "", "tests": "4", "failures": "1", "errors": "1", "skipped": "1"}


def test_causes_name_a_case(tmp_path):
    for name in ("a.mlir", "b.mlir"):
        (tmp_path / name).write_text("module {\n  frobnicate\n}\n")
    (tmp_path / "empty.vhlo").write_text("")
    outcome = CliRunner().invoke(cli.main, ["conformance", str(tmp_path), "--jobs", "1"])
    assert outcome.exit_code == 1
    unknown = "custom op 'frobnicate' is unknown (tried 'builtin.frobnicate' as well)"
    lines = [line.strip() for line in outcome.stdout.splitlines()]
    assert f"error       a.mlir: ParseError: {tmp_path}/a.mlir:2:3: {unknown}" in lines
    assert f"2 error: ParseError: FILE: {unknown} (a.mlir, …)" in lines
    assert "1 error: ParseError: FILE holds no MLIR module: it is empty (empty.vhlo)" in lines


def test_command_exits_with_0_when_all_pass(tmp_path):
    arguments = ["conformance", str(write(tmp_path, RIGHT)), "--filter", "exp*", "--jobs", "1"]
    outcome = CliRunner().invoke(cli.main, arguments)
    assert outcome.exit_code == 0 and "testdata: 2 passed of 2" in outcome.stdout


def test_no_cases_is_an_error(tmp_path):
    with pytest.raises(ArgumentError, match="no such file or directory"):
        find([tmp_path / "none"], [])
    with pytest.raises(ArgumentError, match=r"no module .* that fits z\*"):
        find([write(tmp_path, RIGHT)], ["z*"])


def misbehaves(path: Path, name: str, settings: Settings, stage) -> Result:
    """Misbehave as a case can towards its worker: end the process, or never return."""
    stage("compile", "testdata", "add")
    if name == "abort":
        os.write(2, b"LLVM ERROR: out of ideas\n")
        os.abort()
    if name == "hang":
        time.sleep(60)
    return Result(name)


def test_the_run_goes_on_after_a_crash_or_a_hang():
    tasks = [(Path(), name) for name in ("abort", "right", "hang", "again")]
    results = {r.name: r for r in run_cases(tasks, Settings(), jobs=1, timeout=15, run=misbehaves)}
    assert {name: r.status for name, r in results.items()} == {
        "abort": "crashed", "right": "passed", "hang": "timeout", "again": "passed"
    }  # fmt: skip
    assert (results["abort"].kind, results["abort"].op) == ("testdata", "add")
    assert results["abort"].reason == "SIGABRT: LLVM ERROR: out of ideas in stage 'compile'"
    assert results["hang"].reason == "no result after 15 s in stage 'compile'"


def test_inputs_are_reopened(tmp_path):
    module = load_module(RIGHT["sum"])
    opened = open_dims(make_case(module, "testdata"))
    assert (dict(opened.dims), opened.share) == ({0: "(d0_0, d0_1)"}, "2 of 2")
    result = run(write(tmp_path, RIGHT) / "sum.mlir", reopen=True)
    assert (result.status, result.opened) == ("passed", "2 of 2")


def test_dims_that_the_module_fixes_stay(tmp_path):
    text = checked(
        "[[1, 2], [3, 4]] : tensor<2x2xi32>",
        "%c = stablehlo.constant dense<[[1, 1], [1, 2]]> : tensor<2x2xi32>\n"
        "    %p = stablehlo.add %x, %c : tensor<2x2xi32>\n"
        "    %r = stablehlo.transpose %p, dims = [1, 0] : (tensor<2x2xi32>) -> tensor<2x2xi32>",
        "[[2, 4], [3, 6]] : tensor<2x2xi32>",
    )
    result = run(write(tmp_path, {"fixed": text}) / "fixed.mlir", reopen=True)
    assert result.status == "skipped" and "the fixed size 2" in result.reason


def test_dims_are_named_as_the_module_allows():
    module = load_module("""
func.func @main(%x: tensor<?x2x?xf32>, %y: tensor<?x2x?xf32>) -> tensor<?x2x?xf32> {
  %t = stablehlo.transpose %y, dims = [2, 1, 0] : (tensor<?x2x?xf32>) -> tensor<?x2x?xf32>
  %r = stablehlo.add %x, %t : tensor<?x2x?xf32>
  return %r : tensor<?x2x?xf32>
}""")
    names = oracle.find_names(module, oracle.MainSignature(module))
    assert names == (("b0", None, "b1"), ("b1", None, "b0"))
