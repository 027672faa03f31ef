"""Programs and files that are made to do harm: the command line refuses them with a message, in some time and memory.

Each is given to `hlo-disc explain` in a process with bounds on both. What compiles at all is run, too.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import depth
import jax.numpy as jnp
import numpy as np
import pytest
from fuzz_files import signed

import hlo_disc
from hlo_disc.cli import files
from hlo_disc.compiled.saved import VERSION
from hlo_disc.errors import FormatError, OutOfMemoryError, UnsupportedOpError
from hlo_disc.import_.stablehlo import reader

MEMORY, SECONDS = 10 << 30, 300
# The command's own bounds: the deep sweeps have the true ones, which take half a minute to reach.
READ_MEMORY, MOST_OPS = (files._MEMORY, reader._MOST_OPS) if depth.full else (1 << 29, 1 << 14)
FEWER_OPS = f"from hlo_disc.import_.stablehlo import reader\nreader._MOST_OPS = {MOST_OPS}\n"
COMMAND = f"""
from hlo_disc.cli import files, main
files._MEMORY, files._READ = {READ_MEMORY}, {FEWER_OPS!r} + files._READ
main()
"""
MOST = 2**63 - 1
F32 = "tensor<f32>"


def explained(path: Path) -> tuple[int, str]:
    """Return the exit code and stderr of `hlo-disc explain`."""

    def bounds() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    command = [sys.executable, "-c", COMMAND, "explain", str(path)]
    environment = {**os.environ, "HLO_DISC_CACHE": ""}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, preexec_fn=bounds, env=environment, check=False
    )
    return done.returncode, done.stderr


def main_of(body: str, arguments: str = f"%a: {F32}", result: str = F32) -> str:
    return f"func.func @main({arguments}) -> {result} {{\n{body}\n}}\n"


def cases(depth: int) -> str:
    """Return a module of nested `case` ops, each in the only branch of the one around it."""
    begins = "".join(f'%r{k} = "stablehlo.case"(%i) ({{\n' for k in range(depth))
    ends = "".join(
        f"stablehlo.return %r{k + 1} : {F32}\n}}) : (tensor<i32>) -> {F32}\n" for k in reversed(range(depth))
    )
    inner = f"%r{depth} = stablehlo.cosine %a : {F32}\n"
    return main_of(f"{begins}{inner}{ends}return %r0 : {F32}", f"%i: tensor<i32>, %a: {F32}")


def loops(depth: int) -> str:
    inner = f"%r{depth} = stablehlo.cosine %b{depth} : {F32}\n"
    for k in reversed(range(depth)):
        before = f"%b{k}" if k else "%a"
        inner = (
            f'%r{k} = "stablehlo.while"({before}) ({{\n^bb0(%c{k}: {F32}):\nstablehlo.return %p : tensor<i1>\n}}, '
            f"{{\n^bb0(%b{k + 1}: {F32}):\n{inner}stablehlo.return %r{k + 1} : {F32}\n}}) : ({F32}) -> {F32}\n"
        )
    return main_of(f"{inner}return %r0 : {F32}", f"%p: tensor<i1>, %a: {F32}")


def calls(depth: int, twice: bool) -> str:
    """Return functions that call the next one, once or twice."""
    text = main_of(f"%0 = func.call @f0(%a) : ({F32}) -> {F32}\nreturn %0 : {F32}")
    for k in range(depth):
        body = "stablehlo.cosine {} : " + F32
        if k + 1 < depth:
            body = f"func.call @f{k + 1}({{}}) : ({F32}) -> {F32}"
        lines = f"%0 = {body.format('%a')}\n" + (f"%1 = {body.format('%0')}\n" if twice else "")
        text += f"func.func private @f{k}(%a: {F32}) -> {F32} {{\n{lines}return %{int(twice)} : {F32}\n}}\n"
    return text


def doubled(kind: str, first: str, count: int, what: str) -> str:
    """Return aliases that each name the one before twice, so that the last stands for text of 2^count parts."""
    lines = [f"{kind}0 = {first}\n"]
    lines += [f"{kind}{k + 1} = {what.format(f'{kind}{k}')}\n" for k in range(count)]
    return "".join(lines)


def sizes(step: str, count: int) -> str:
    """Return a module with a size that grows with every op, and a result of that size."""
    first = "%s0 = stablehlo.get_dimension_size %a, dim = 0 : (tensor<?xf32>) -> tensor<i32>\n"
    body = "".join(step.replace("NEW", f"%s{k + 1}").replace("OLD", f"%s{k}") for k in range(count))
    last = f"%r = stablehlo.reshape %s{count} : (tensor<i32>) -> tensor<1xi32>\n"
    last += f"%z = stablehlo.constant dense<0.0> : {F32}\n"
    last += f"%q = stablehlo.dynamic_broadcast_in_dim %z, %r, dims = [] : ({F32}, tensor<1xi32>) -> tensor<?xf32>\n"
    three = "%three = stablehlo.constant dense<3> : tensor<i32>\n"
    return main_of(f"{three}{first}{body}{last}return %q : tensor<?xf32>", "%a: tensor<?xf32>", "tensor<?xf32>")


def typed(kind: str, op: str) -> str:
    return main_of(f"%0 = {op}\nreturn %0 : {kind}", f"%a: {kind}", kind)


HUGE = f"tensor<{2**40}x{2**30}xf32>"
LONG = f"tensor<{2**60}xf32>"
DEEP = "damaged, or nested too deeply: the process that read it has ended by SIGSEGV"
REFUSED: dict[str, tuple[str | Callable[[], str], str]] = {
    "a size of 2^63": ("func.func @main(%a: tensor<9223372036854775808xf32>) { return }", "invalid dimension"),
    "bytes above 2^63": (typed(HUGE, f"stablehlo.negate %a : {HUGE}"), "more bytes than 64 bits"),
    "a concatenation": (
        main_of(
            f"%0 = stablehlo.concatenate %a, %a, %a, dim = 0 : ({LONG}, {LONG}, {LONG}) -> tensor<?xf32>\n"
            "return %0 : tensor<?xf32>",
            f"%a: {LONG}",
            "tensor<?xf32>",
        ),
        "stablehlo.concatenate",
    ),
    "padding": (
        main_of(
            f"%z = stablehlo.constant dense<0.0> : {F32}\n"
            f"%0 = stablehlo.pad %a, %z, low = [{MOST}], high = [{MOST}], interior = [{MOST}] : "
            f"(tensor<4xf32>, {F32}) -> tensor<?xf32>\nreturn %0 : tensor<?xf32>",
            "%a: tensor<4xf32>",
            "tensor<?xf32>",
        ),
        "stablehlo.pad",
    ),
    "a constant of more than there is": (
        main_of(
            '%0 = stablehlo.constant dense<"0x0000"> : tensor<1000000000xf32>\nreturn %0 : tensor<1000000000xf32>',
            "",
            "tensor<1000000000xf32>",
        ),
        "hex data size is invalid",
    ),
    "a splat of 2^62": (
        main_of(
            f"%0 = stablehlo.constant dense<1.0> : tensor<{2**62}xf32>\nreturn %0 : tensor<{2**62}xf32>",
            "",
            f"tensor<{2**62}xf32>",
        ),
        "more bytes than 64 bits",
    ),
    "a rank of 1000": (typed(f"tensor<{'1x' * 1000}f32>", f"stablehlo.negate %a : tensor<{'1x' * 1000}f32>"), "1000"),
    "cases, 65": (cases(65), "regions are nested more than 64 deep"),
    "cases, 1e5": (lambda: cases(10**5), DEEP),
    "loops, 65": (loops(65), "regions are nested more than 64 deep"),
    "brackets": (lambda: "module attributes {x = " + "[" * 10**6 + "]" * 10**6 + "} {}", DEEP),
    "signs": (lambda: f"module attributes {{x = affine_map<(i) -> ({'-' * 10**6}i)>}} {{}}", DEEP),
    "types": (lambda: f"func.func @main(%a: {'tuple<' * 10**6}f32{'>' * 10**6}) {{ return }}", DEEP),
    "locations": (
        lambda: "func.func @main() { return loc(" + 'callsite("a" at ' * 10**6 + '"b"' + ")" * 10**6 + ")}",
        DEEP,
    ),
    "types that double": (
        doubled("!t", F32, 60, "tuple<{0}, {0}>") + "func.func @main(%a: !t60) -> !t60 { return %a : !t60 }",
        "cannot be read",
    ),
    "recursion": (main_of(f"%0 = func.call @main(%a) : ({F32}) -> {F32}\nreturn %0 : {F32}"), "must not call itself"),
    "mutual recursion": (
        main_of(f"%0 = func.call @g(%a) : ({F32}) -> {F32}\nreturn %0 : {F32}")
        + main_of(f"%0 = func.call @main(%a) : ({F32}) -> {F32}\nreturn %0 : {F32}").replace("@main(%a: ", "@g(%a: "),
        "must not call itself",
    ),
    "calls that double": (calls(60, True), f"one op too many: {MOST_OPS} are compiled"),
    "sizes squared": (sizes("NEW = stablehlo.multiply OLD, OLD : tensor<i32>\n", 100), "a size is an expression of"),
    "sizes of sizes": (
        sizes("NEWd = stablehlo.divide OLD, %three : tensor<i32>\nNEW = stablehlo.add NEWd, OLD : tensor<i32>\n", 100),
        "a size is an expression of",
    ),
    "a name that is no text": (
        'module @"\\FF\\00" { func.func @main(%a: tensor<?xf32> {jax.arg_info = "\\FF"}) -> tensor<?xf32> { '
        '%0 = stablehlo.custom_call @"\\FFf"(%a) : (tensor<?xf32>) -> tensor<?xf32> loc("\\FF\\00")\n'
        "return %0 : tensor<?xf32> } }",
        "",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    source, words = REFUSED[name]
    path = tmp_path / "program.mlir"
    path.write_text(source if isinstance(source, str) else source())
    code, error = explained(path)
    assert code == 1 and error.startswith("error: ") and words in error, (code, error[-500:])
    assert len(error) < 4000


def test_what_is_shared_or_deep_is_read() -> None:
    """Locations that double 60 times, and a chain of 10 000 locations, are read."""
    ends = {
        "#l60": doubled("#l", "loc(unknown)", 60, "loc(fused[{0}, callsite({0} at {0})])"),
        "#l10000": "#l0 = loc(unknown)\n" + "".join(f"#l{k + 1} = loc(callsite(#l{k} at #l0))\n" for k in range(10**4)),
    }
    for end, text in ends.items():
        body = f"%0 = stablehlo.negate %a : {F32} loc({end})\nreturn %0 : {F32}"
        assert hlo_disc.compile(text + main_of(body), cache="")(np.float32(3)) == -3


@pytest.mark.parametrize("program", [cases, loops])
def test_deepest_regions(program: Callable[[int], str]) -> None:
    executable = hlo_disc.compile(program(64), cache="")
    x = np.float32(0.5)
    assert executable(np.zeros((), executable.program.inputs[0].dtype), x) == (np.cos(x) if program is cases else x)


def test_many_branches() -> None:
    """An op may have more branches than Python could nest. An index without a branch takes the last one."""
    branches = ", ".join(
        f"{{ %x{k} = stablehlo.constant dense<{k}.0> : {F32}\n%y{k} = stablehlo.add %x{k}, %a : {F32}\n"
        f"stablehlo.return %y{k} : {F32} }}"
        for k in range(2000)
    )
    body = f'%0 = "stablehlo.case"(%i) ({branches}) : (tensor<i32>) -> {F32}\nreturn %0 : {F32}'
    executable = hlo_disc.compile(main_of(body, f"%i: tensor<i32>, %a: {F32}"), cache="")
    for number, taken in ((0, 0), (1, 1), (999, 999), (1000, 1000), (1999, 1999), (2000, 1999), (-1, 1999)):
        assert executable(np.int32(number), np.float32(0.5)) == taken + 0.5


def test_ops_are_counted_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_MOST_OPS", 1000)
    hlo_disc.compile(calls(7, True), cache="")
    with pytest.raises(UnsupportedOpError, match="one op too many: 1000 are compiled, counted at each call"):
        hlo_disc.compile(calls(9, True), cache="")


# Of %b, the sum of its sorted rows: an order needs all of them in memory.
SORTED = """\
  %t = "stablehlo.sort"(%b) <{dimension = 1 : i64}> ({
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %p = stablehlo.compare LT, %l, %r : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) : (tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%t init: %z) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<?x?x?xf32>, tensor<f32>) -> tensor<?xf32>
  return %m : tensor<?xf32>
}"""


def test_sizes_whose_product_64_bits_do_not_hold() -> None:
    """A kernel writes no memory that was not allocated: 2^66 bytes do not wrap to 0."""
    source = (
        """
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %d = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %v = stablehlo.reshape %d : (tensor<i32>) -> tensor<1xi32>
  %s = stablehlo.concatenate %v, %v, %v, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
  %b = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [0] : (tensor<?xf32>, tensor<3xi32>) -> tensor<?x?x?xf32>
"""
        + SORTED
    )
    executable = hlo_disc.compile(source, cache="")
    np.testing.assert_array_equal(executable(np.ones(3, np.float32)), np.full(3, 9, np.float32))
    for n in (1 << 21, 1 << 22):
        with pytest.raises(OutOfMemoryError, match="64 bits"):
            executable(np.ones(n, np.float32))


def test_late_sizes_whose_product_64_bits_do_not_hold() -> None:
    """A product of sizes that only the run knows, and that 64 bits do not hold, raises OutOfMemoryError."""
    source = (
        """
func.func @main(%n: tensor<i32>) -> tensor<?xf32> {
  %v = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %s = stablehlo.concatenate %v, %v, %v, dim = 0 : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
  %b = stablehlo.dynamic_iota %s, dim = 0 : (tensor<3xi32>) -> tensor<?x?x?xf32>
"""
        + SORTED
    )
    executable = hlo_disc.compile(source, cache="")
    np.testing.assert_array_equal(executable(np.int32(2)), np.full(2, 2, np.float32))
    for n in (1 << 21, 1 << 22):
        with pytest.raises(OutOfMemoryError):
            executable(np.int32(n))


# ------------------------------------------------------------------------------------------------ saved programs


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: b"[" * 10**6, "recursion"),
        (lambda text: f'{{"version": {VERSION}, "program": '.encode() + b'{"a": ' * 10**5, "recursion"),
        (lambda text: f'{{"version": {VERSION}, "program": 1e400}}'.encode(), "has no arrays, code"),
        (lambda text: text.replace(b'"words": ', b'"words": 4611686018427387904'), "damaged"),
        (lambda text: text.replace(b'"size": ', b'"size": -'), "truncated"),
        (lambda text: text.replace(b'"float32"', b'"' + b"9" * 5000 + b'"'), "damaged"),
        (lambda text: text.replace(b'"n"', json.dumps("9" * 30).encode()), "damaged"),
    ],
)
def test_forged_headers(tmp_path: Path, change: Callable[[bytes], bytes], words: str) -> None:
    path = tmp_path / "x.disc"
    weights = jnp.arange(4096, dtype=jnp.float32)
    hlo_disc.compile(lambda x, i: x + weights[i], "f32[n]", "i32[n]", cache="").save(path)
    path.write_bytes(signed(path.read_bytes(), change))
    with pytest.raises(FormatError, match=words):
        hlo_disc.load(path)
