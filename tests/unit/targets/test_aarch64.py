"""Compiling for AArch64 on any machine, and what happens to such programs on another one."""

from __future__ import annotations

import platform
import re
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

import hlo_disc
from hlo_disc import ral, sources
from hlo_disc.cli import main
from hlo_disc.compiled.program import Program
from hlo_disc.compiled.saved import read
from hlo_disc.errors import ArgumentError, FormatError
from hlo_disc.executable import runs_here
from hlo_disc.options import Options
from hlo_disc.targets import registry
from hlo_disc.targets.cpu import aarch64

elsewhere = pytest.mark.skipif(platform.machine() == "aarch64", reason="this machine is one")

MODULE = """
func.func public @main(%a: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %0 = stablehlo.exponential %a : tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}"""


def compiled() -> Program:
    """A program with constants in its code, calls of functions and of the runtime's."""
    return sources.program(lambda x: (x @ x.T).sum(), "f32[n, m]", options=Options(target="aarch64", cache=""))


def test_it_has_one_level():
    assert {"aarch64", "aarch64:neon"} <= set(registry.names())
    device = aarch64.generator("host").device
    assert (device.simd_bytes, device.registers) == (16, 32)
    assert device.tile_rows * device.tile_vectors + device.tile_vectors < device.registers
    with pytest.raises(ArgumentError, match="unknown target 'aarch64:sve'"):
        hlo_disc.compile(lambda x: x, "f32[n]", target="aarch64:sve")


def test_code_is_its_own(all_kernels_built):
    program = compiled()
    assert (program.target, program.features) == ("aarch64", ("neon",))
    assert struct.unpack_from("<H", program.object, 18) == (183,)
    assert program.object == compiled().object


def test_register_tiles_stay_in_registers(tmp_path: Path):
    """The innermost loop of a product has a multiplication for each of its 24 sums, and stores nothing."""
    sources.program(lambda x, y: x @ y, "f32[m, k]", "f32[k, n]", options=Options(target="aarch64", dump=str(tmp_path)))
    (listing,) = tmp_path.glob("*.asm")
    loops = re.findall(
        r"^(\.LBB\d+_\d+):[^\n]*\n((?:(?!\.LBB)[^\n]*\n)*?)[^\n]*\tb\.\w+\t\1$", listing.read_text(), re.M
    )
    tile = [body for _, body in loops if body.count("fmla\tv") == 24]
    assert tile
    assert not any(re.search(r"\tst[rpu]", body) for body in tile)


@elsewhere
def test_another_machine_cannot_run_it(tmp_path: Path):
    program = compiled()
    assert not runs_here(program)
    with pytest.raises(FormatError, match=f"compiled for AArch64, and this machine is {platform.machine()}: it runs"):
        hlo_disc.compile(lambda x: x + 1, "f32[n]", target="aarch64")
    with pytest.raises(ValueError, match="it is no relocatable object for"):
        ral.Code(program.object, ral.symbols())


@elsewhere
def test_the_command_line_writes_and_explains_it(tmp_path: Path):
    def call(*arguments: object) -> tuple[int, str]:
        result = CliRunner().invoke(main, [str(x) for x in arguments])
        return result.exit_code, result.output

    module, made, again = (tmp_path / name for name in ("exp.mlir", "exp.disc", "again.disc"))
    module.write_text(MODULE)
    code, output = call("compile", module, "-o", made, "--target", "aarch64")
    assert code == 0 and "bytes, compiled in" in output
    assert read(made).target == "aarch64"
    code, output = call("explain", made)
    assert code == 0 and "bytes for neon" in output
    assert call("explain", module, "--target", "aarch64")[0] == 0
    assert call("compile", made, "-o", again)[0] == 0
    assert read(again).object == read(made).object
    code, output = call("run", made)
    assert code == 1 and f"{made}: compiled for AArch64, and this machine is" in output
