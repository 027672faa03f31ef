"""The archive of kernels that comes with the package: kernels in it are not compiled, and no damage to it shows."""

from __future__ import annotations

import logging
from pathlib import Path

import child
import jax
import numpy as np
import pytest
from hand_written import kernel_runner

from benchmarks import in_jax
from benchmarks.program import named
from hlo_disc.cache import archive, directory, kernels
from hlo_disc.targets.cpu.native_generator import NativeGenerator

PROGRAMS = ("softmax", "x + 1")
SIZES = {"softmax": (33, 40), "x + 1": (100,)}
TOOL = Path(__file__).parents[3] / "tools" / "kernels.py"


def build(place: Path, *programs: str) -> bytes:
    """Make an archive as `make kernels` does, in another process, for the levels of this machine."""
    levels = [option for level in kernel_runner.levels() for option in ("--level", level)]
    chosen = [option for name in programs for option in ("--program", name)]
    child.python(TOOL, *chosen, *levels, "--output", place)
    return place.read_bytes()


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> bytes:
    return build(tmp_path_factory.mktemp("archive") / "some.kernels", *PROGRAMS)


@pytest.fixture
def place(built, tmp_path, monkeypatch) -> Path:
    """Install the archive as if it had come with the package; return its path."""
    directory._told.clear()
    archive.opened.cache_clear()
    path = tmp_path / "some.kernels"
    path.write_bytes(built)
    monkeypatch.setattr(archive, "PLACE", path)
    return path


@pytest.fixture
def compiled(monkeypatch) -> list[int]:
    """Return a list to which each call of LLVM from here on adds how many kernels it has compiled."""
    counts: list[int] = []
    compile_llvm = NativeGenerator.compile_llvm

    def counted(self, text, dump=None):
        counts.append(text.count("\ndefine hidden"))
        return compile_llvm(self, text, dump)

    monkeypatch.setattr(NativeGenerator, "compile_llvm", counted)
    return counts


def results(name: str, **options) -> list[bytes]:
    program = named(name)
    inputs = in_jax.inputs(program, program.sizes(*SIZES[name]))
    found = in_jax.compiled(program, fallback=False, defer_kernels=False, **options)(in_jax.weights(program), inputs)
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(found)]


@pytest.mark.parametrize("level", ["", *(f":{level}" for level in kernel_runner.levels())])
@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_come_from_it_and_results_have_the_same_bits(place, compiled, tmp_path, monkeypatch, name, level):
    options = {"target": f"cpu{level}", "cache": str(tmp_path / "cache")}
    got = results(name, **options)
    assert not compiled, "only host functions were compiled"
    assert not [*(tmp_path / "cache").glob(f"*{directory.KERNEL}")], "and nothing was kept again"
    monkeypatch.setattr(archive, "PLACE", tmp_path / "none")
    assert results(name, **options | {"cache": ""}) == got
    assert sum(compiled) > 0


def test_what_it_lacks_is_compiled_and_kept(place, compiled, tmp_path):
    program = named("softmax")
    inputs = in_jax.inputs(program, program.sizes(3, 5))
    for expected in (True, False):
        before = sum(compiled)
        made = in_jax.compiled(program, cache=str(tmp_path / "cache"), excess_precision=True, defer_kernels=False)
        made(None, [inputs[0].astype("bfloat16")])
        assert (sum(compiled) > before) == expected
        for path in (tmp_path / "cache").glob(f"*{directory.PROGRAM}"):
            path.unlink()


def test_it_is_no_cache_of_the_users(place, compiled, tmp_path):
    """The archive is read also where there is no cache directory. A program that is dumped is compiled."""
    results("softmax", cache="")
    assert sum(compiled) == 0
    results("softmax", cache="", dump=str(tmp_path / "dump"))
    assert sum(compiled) > 0


def test_another_compiler_finds_what_it_has(place, compiled, monkeypatch):
    monkeypatch.setattr(kernels, "versions", lambda *_: "another")
    results("softmax", cache="")
    assert sum(compiled) == 0


def test_another_package_finds_nothing(place, compiled, monkeypatch, caplog):
    monkeypatch.setattr(archive, "package", lambda: "another")
    with caplog.at_level(logging.WARNING, "hlo_disc"):
        results("softmax", cache="")
    assert sum(compiled) > 0 and not caplog.text


def test_a_package_without_one(place, compiled, caplog):
    place.unlink()
    with caplog.at_level(logging.WARNING, "hlo_disc"):
        results("softmax", cache="")
    assert sum(compiled) > 0 and not caplog.text


@pytest.mark.parametrize("size", [0, 5, 24, 100, -1])
def test_one_that_is_cut_is_not_used(place, built, caplog, size):
    want = results("softmax", cache="")
    archive.opened.cache_clear()
    place.write_bytes(built[:size])
    with caplog.at_level(logging.WARNING, "hlo_disc"):
        assert results("softmax", cache="") == want
        results("x + 1", cache="")
    assert caplog.text.count("the kernels that come with hlo_disc: they are not used") == 1


def test_damage_is_found_wherever_it_is(place, built, compiled, caplog):
    """A byte of each part is damaged, one after another. Damaged code is not run, and undamaged code is still found."""
    want = results("softmax", cache="")
    size = archive._HEADER.size + archive._ENTRY.size * archive.Archive(built)._count
    damaged = bytearray(built)
    for at in range(size, len(built), 50):
        damaged[at] ^= 0x41
    for content in (bytes(damaged), *(_changed(built, at) for at in range(0, size, size // 7))):
        archive.opened.cache_clear()
        place.write_bytes(content)
        assert results("softmax", cache="") == want
    directory._told.clear()
    archive.opened.cache_clear()
    place.write_bytes(damaged)
    compiled.clear()
    caplog.clear()
    with caplog.at_level(logging.WARNING, "hlo_disc"):
        assert results("softmax", cache="") == want
    assert sum(compiled) > 0 and caplog.text.count("an entry is damaged") == 1


def _changed(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :]


def test_entries_that_changed_places_are_not_run(tmp_path):
    """Two entries that have exchanged the digests and places of their contents are not found."""
    archive.write(tmp_path / "two", {b"a": b"one", b"b": b"two"})
    content = (tmp_path / "two").read_bytes()
    at, size = archive._HEADER.size, archive._ENTRY.size
    first, second = content[at : at + size], content[at + size : at + 2 * size]
    exchanged = first[:32] + second[32:] + second[:32] + first[32:]
    found = archive.Archive(content[:at] + exchanged + content[at + 2 * size :])
    assert [found.find(key) for key in (b"a", b"b", b"c")] == [None, None, None]
    assert [archive.Archive(content).find(key) for key in (b"a", b"b", b"c")] == [b"one", b"two", None]


def test_the_same_package_makes_the_same_bytes(built, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "77")
    assert build(tmp_path / "again", *PROGRAMS) == built
