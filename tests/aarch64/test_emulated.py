"""AArch64's code under QEMU: the linker there, memory, and the emulated process itself (`pytest --target aarch64`)."""

from __future__ import annotations

import gc
import random
import struct

import depth
import jax.numpy as jnp
import numpy as np
import pytest
import remote
from click.testing import CliRunner

import hlo_disc
from hlo_disc.cli import main
from hlo_disc.errors import ShapeError


@pytest.fixture(autouse=True)
def emulated(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--target") != remote.TARGET:
        pytest.skip("needs --target aarch64")


@pytest.fixture(scope="module")
def object_() -> bytes:
    """Return object code of a program with constants, kernels, and calls of the C library and of the runtime."""
    return hlo_disc.compile(lambda x: (x @ x.T).sum(), "f32[n, m]").program.object


def relocations(object_: bytes) -> list[int]:
    """Return the offsets of the entries of all tables of relocations."""
    (sections,) = struct.unpack_from("<Q", object_, 0x28)
    size, count = struct.unpack_from("<HH", object_, 0x3A)
    rows = [struct.unpack_from("<IIQQQQIIQQ", object_, sections + k * size) for k in range(count)]
    return [at for row in rows if row[1] == 4 for at in range(row[4], row[4] + row[5], 24)]


def test_code_runs_on_aarch64():
    exe = hlo_disc.compile(lambda x: x + 1, "f32[n]")
    assert isinstance(exe.native, remote.Native)
    assert exe.program.target == "aarch64"
    assert remote.process().request("machine") == ("aarch64", ["neon"])
    np.testing.assert_array_equal(exe(np.arange(5, dtype=np.float32)), np.arange(1, 6))


def test_the_compiler_runs_there_too():
    """The compiler in the emulated process takes "cpu" for the machine of that process."""
    text = """func.func public @main(%a: tensor<?x4xf32>) -> tensor<?x4xf32> {
      %0 = stablehlo.exponential %a : tensor<?x4xf32>
      return %0 : tensor<?x4xf32>
    }"""
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    target, features, y = remote.process().request("compile_and_run", text, [x])
    assert (target, features) == ("cpu", ("neon",))
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)


def test_errors_come_back():
    exe = hlo_disc.compile(lambda x, y: x + y, "f32[n]", "f32[n]")
    with pytest.raises(ShapeError, match="n"):
        exe(np.zeros(3, np.float32), np.zeros(4, np.float32))


def test_a_process_that_dies_is_an_error_and_another_one_is_started(object_):
    first = remote.process()
    with pytest.raises(remote.Died, match="has ended with 3 in 'end'"):
        first.request("end", 3)
    assert remote.process() is not first
    test_code_runs_on_aarch64()


def test_nothing_is_left_behind():
    def live() -> int:
        gc.collect()
        return remote.process().request("live_bytes")

    before = live()
    exe = hlo_disc.compile(lambda x: (x @ x.T, x.sum()), "f32[n, m]")
    for n in (1, 40, 700):
        exe(np.ones((n, 33), np.float32))
    del exe
    assert live() == before


def test_every_relocation_is_one_that_the_linker_knows(object_):
    assert remote.process().request("link", [object_]) == [""]
    kinds = {struct.unpack_from("<I", object_, at + 8)[0] for at in relocations(object_)}
    assert {275, 277, 283} <= kinds  # pages, places in them, and calls


@pytest.mark.parametrize("kind", [280, 250])
def test_other_relocations_are_refused(object_, kind):
    data = bytearray(object_)
    for at in relocations(object_):
        struct.pack_into("<I", data, at + 8, kind)
    (message,) = remote.process().request("link", [bytes(data)])
    assert f"relocations of type {kind}" in message


def test_a_library_that_a_cross_compiler_builds(monkeypatch, tmp_path):
    """A library of a cross-compiler packs its weights when it is opened, and calls a function of the runtime's own."""
    w = np.random.default_rng(0).standard_normal((33, 65)).astype(np.float32)
    program = tmp_path / "f.disc"
    hlo_disc.compile(lambda x: (x @ w, jnp.fft.fft(x)), "f32[n, 33]").save(program)
    monkeypatch.setenv("CXX", "aarch64-linux-gnu-g++")
    arguments = ["compile", program, "-o", tmp_path / "f", "--emit", "library", "--weights-beside"]
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    for n in (1, 7, 100):
        x = np.random.default_rng(n).standard_normal((n, 33)).astype(np.float32)
        product, transform = remote.process().request("run_library", str(tmp_path / "f" / "libf.so"), [x])
        np.testing.assert_allclose(product, x @ w, atol=1e-4)
        np.testing.assert_allclose(transform, np.fft.fft(x), atol=1e-4)


def test_damage_ends_no_process(object_):
    """Damage is anywhere in the object code, or in the tables of offsets."""
    random_ = random.Random(0)
    (sections,) = struct.unpack_from("<Q", object_, 0x28)
    tables = [0, 0x28, 0x3A, *relocations(object_), *range(sections, len(object_), 4)]
    damaged = []
    for number in range(depth.examples(1000, 20_000)):
        data = bytearray(object_)
        for _ in range(random_.randint(1, 4)):
            at = random_.choice(tables) + random_.randrange(16) if number % 2 else random_.randrange(len(data))
            data[min(at, len(data) - 1)] = random_.choice((0, 1, 0x7F, 0x80, 0xFF, random_.randrange(256)))
        damaged.append(bytes(data))
    found = remote.process().request("link", damaged)
    assert sum(map(bool, found)) > 50
