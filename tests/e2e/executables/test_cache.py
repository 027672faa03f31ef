"""The cache on disk: who finds what, and what a full disk, other users, damage and killed processes do to it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import depth
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

import hlo_disc
from hlo_disc.cache import directory, programs
from hlo_disc.cli import main

X = np.arange(6, dtype=np.float32).reshape(3, 2)

# Prints the stages that ran, and the sum of the result. argv: the cache's directory, what to do before.
PROGRAM = """
import sys
import numpy as np
import hlo_disc
from hlo_disc.cache import programs
exec(sys.argv[2])
made = hlo_disc.compile(lambda x: x @ x.T + 1, "f32[n, m]", cache=sys.argv[1])
result = made(np.arange(6, dtype=np.float32).reshape(3, 2))
print(*made.program.compile_ms, result.sum())
"""
FOUND, COMPILED = "read cache 126.0", "codegen 126.0"


def total(x):
    return x @ x.T + 1


def process(place, before: str = "", **environment: str) -> subprocess.Popen:
    command = [sys.executable, "-c", PROGRAM, str(place), before]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **environment}, **pipes)


def output(started: subprocess.Popen) -> str:
    out, errors = started.communicate()
    assert started.returncode == 0, errors
    return out.strip()


def compiled(place, fn=total, *specs, **settings) -> hlo_disc.Executable:
    return hlo_disc.compile(fn, *(specs or ("f32[n, m]",)), cache=str(place), **settings)


def was_found(executable) -> bool:
    return "codegen" not in executable.program.compile_ms


def files(place: Path) -> list[Path]:
    """All but kernels."""
    return sorted(x for x in place.iterdir() if directory.KERNEL not in x.name) if place.exists() else []


def kernel_files(place: Path) -> list[Path]:
    return sorted(x for x in place.iterdir() if directory.KERNEL in x.name)


@pytest.fixture(autouse=True)
def told_once():
    directory._told.clear()


# ---------------------------------------------------------------------------------------------- hits and misses


def test_another_process_finds_it(tmp_path):
    assert output(process(tmp_path / "new" / "cache", PYTHONHASHSEED="1")).endswith(COMPILED)
    assert output(process(tmp_path / "new" / "cache", PYTHONHASHSEED="2")) == FOUND


def test_what_is_found_is_what_was_compiled(tmp_path):
    first, second = compiled(tmp_path), compiled(tmp_path)
    assert (was_found(first), was_found(second)) == (False, True)
    np.testing.assert_array_equal(first(X), second(X))
    assert first.content == second.content
    assert first.program.source == second.program.source
    assert first.explain().splitlines()[-1] == second.explain().splitlines()[-1]
    with pytest.raises(hlo_disc.ArgumentError, match="rank 1"):
        second(X[0])


def test_functions_of_jit_are_found(tmp_path):
    def function():
        return hlo_disc.jit(lambda x, w: {"y": jnp.tanh(x @ w)}, cache=str(tmp_path))

    first, second = function(), function()
    want = first(X, X.T)["y"]
    found = second(X, X.T)["y"]
    np.testing.assert_array_equal(found, want)
    assert len(files(tmp_path)) == 1
    assert "codegen" not in second.stats().records[0].stages_ms


def test_gradients_are_found(tmp_path):
    def gradient():
        f = hlo_disc.jit(lambda x: jnp.sum(jnp.sin(x)), cache=str(tmp_path))
        return jax.grad(f)(X)

    first = gradient()
    count = len(files(tmp_path))
    np.testing.assert_array_equal(gradient(), first)
    assert len(files(tmp_path)) == count > 0


def test_modules_and_their_constants_are_found(tmp_path):
    weights = np.random.default_rng(0).normal(size=(2, 50)).astype(np.float32)
    text = hlo_disc.stablehlo(lambda x: x @ weights, "f32[n, 2]")
    first, second = (hlo_disc.compile(text, cache=str(tmp_path)) for _ in range(2))
    assert was_found(second)
    np.testing.assert_array_equal(first(X), second(X))


def test_large_arrays_are_not_stored_again(tmp_path):
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(2, 20_000)).astype(np.float32) for _ in range(2)]

    def make():
        return compiled(tmp_path, lambda x: (x @ weights[1], x[0] @ weights[0]), "f32[n, 2]")

    first, second = make(), make()
    assert was_found(second)
    for got, want in zip(second(X), first(X), strict=True):
        np.testing.assert_array_equal(got, want)
    (entry,) = files(tmp_path)
    assert entry.stat().st_size < 60_000 < weights[0].nbytes
    weights[0] = weights[0] + 1
    assert not was_found(make())


def scaled(factor):
    return lambda x: x * factor


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (dict(fn=scaled(2.0)), dict(fn=scaled(3.0))),
        (
            dict(fn=scaled(np.float32([1, 2])), specs=["f32[n, 2]"]),
            dict(fn=scaled(np.float32([1, 3])), specs=["f32[n, 2]"]),
        ),
        (dict(specs=["f32[n, m]"]), dict(specs=["f32[n, 2]"])),
        (dict(specs=["f32[n, m]"]), dict(specs=["f32[a, m]"])),
        (dict(specs=["f32[n, m]"]), dict(specs=["f16[n, m]"])),
        (dict(), dict(constraints="n <= 8")),
        (dict(constraints="n <= 8"), dict(constraints="n <= 9")),
        (dict(target="cpu"), dict(target="cpu:avx2")),
        (dict(), dict(excess_precision=True)),
        (dict(fn=lambda x: x + 1), dict(fn=lambda y: y + 1)),
        (dict(fn=lambda x: x + 1), dict(fn=lambda x: x + 1)),
    ],
    ids=(
        "number",
        "array",
        "fixed size",
        "dim",
        "dtype",
        "constraint",
        "other constraint",
        "target",
        "rounding",
        "name",
        "line",
    ),
)
def test_other_programs_are_others(tmp_path, first, second):
    def make(fn=total, specs=(), **settings):
        return compiled(tmp_path, fn, *specs, **settings)

    assert not was_found(make(**first))
    assert not was_found(make(**second))
    assert was_found(make(**first)) and was_found(make(**second))
    assert len(files(tmp_path)) == 2


CHECKED = """
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %c = stablehlo.constant dense<8> : tensor<i32>
  %ok = stablehlo.compare LE, %n, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%ok, %n) {api_version = 2 : i32, error_message = "at most 8, WORD {0}",
    has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
  %y = stablehlo.add %x, %x : tensor<?xf32>
  return %y : tensor<?xf32>
}"""


def test_a_check_that_says_something_else_is_another_program(tmp_path):
    for word in ("not", "and no"):
        made = hlo_disc.compile(CHECKED.replace("WORD", word), cache=str(tmp_path))
        assert not was_found(made)
        with pytest.raises(hlo_disc.ShapeError, match=f"at most 8, {word} 9"):
            made(np.ones(9, np.float32))


def test_settings_of_calls_make_no_other_program(tmp_path):
    compiled(tmp_path)
    assert was_found(compiled(tmp_path, threads=1, packed_bytes=0, verify=False))


@pytest.mark.parametrize("what", ["package", "versions"])
def test_another_hlo_disc_compiles_anew(tmp_path, monkeypatch, what):
    compiled(tmp_path)
    monkeypatch.setattr(programs, what, lambda *_: "another")
    assert not was_found(compiled(tmp_path))


def test_a_built_package_is_known_by_its_contents(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    module, native, build = tmp_path / "sub" / "module.py", tmp_path / "_ral.so", tmp_path / directory.BUILD
    for file in (module, native):
        file.write_text("one")
    build.write_text("contents")
    built = directory._files(tmp_path, native)
    os.utime(module, (1, 1))
    native.touch()
    assert directory._files(tmp_path, native) == built
    build.write_text("others")
    assert directory._files(tmp_path, native) != built
    build.unlink()
    for file in (module, native):  # nothing was built here: a file that was touched may be another one
        before = directory._files(tmp_path, native)
        os.utime(file, (2, 2))
        assert directory._files(tmp_path, native) != before
    one = directory.package.__wrapped__()
    monkeypatch.setattr(hlo_disc, "__version__", "0.0.0")
    assert directory.package.__wrapped__() != one


def test_a_build_leaves_a_digest():
    digest = Path(metadata.distribution("hlo_disc").locate_file(f"hlo_disc/{directory.BUILD}")).read_text()
    assert len(digest) == 64 and int(digest, 16)


def test_programs_that_call_python_are_not_kept(tmp_path):
    def called(x):
        return jax.pure_callback(lambda y: np.asarray(y) + 1, jax.ShapeDtypeStruct((3,), np.float32), x)

    for _ in range(2):
        executable = compiled(tmp_path, called, "f32[3]")
        assert not was_found(executable)
        np.testing.assert_array_equal(executable(np.ones(3, np.float32)), np.full(3, 2, np.float32))
    assert not files(tmp_path)


@pytest.mark.parametrize("settings", [dict(cache=""), dict(dump="dumped")], ids=["off", "dump"])
def test_without_a_cache_nothing_is_kept(tmp_path, monkeypatch, settings):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HLO_DISC_CACHE", str(tmp_path / "cache"))
    for _ in range(2):
        assert not was_found(hlo_disc.compile(total, "f32[n, m]", **settings))
    assert not (tmp_path / "cache").exists()


def test_the_directory_is_the_users(tmp_path, monkeypatch):
    options = hlo_disc.Options()
    assert options.cache_directory is None  # tests turn it off in the environment
    monkeypatch.setenv("HLO_DISC_CACHE", "elsewhere")
    assert options.cache_directory == Path("elsewhere")
    monkeypatch.delenv("HLO_DISC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert options.cache_directory == tmp_path / "hlo_disc"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert options.cache_directory == tmp_path / ".cache" / "hlo_disc"


# ---------------------------------------------------------------------------------------------- what goes wrong


def test_many_processes_at_once(tmp_path):
    count = depth.examples(3, 16)
    outputs = [output(p) for p in [process(tmp_path) for _ in range(count)]]
    assert all(text.endswith("126.0") for text in outputs)
    assert len(files(tmp_path)) == 1
    assert output(process(tmp_path)) == FOUND


# How much of an entry is there when its process is killed.
KILLED = """
import os, signal
save = programs.save
def killed(program, file):
    save(program, file)
    file.truncate({})
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
programs.save = killed
"""


def test_killed_processes_leave_a_valid_cache(tmp_path):
    count = depth.examples(4, 200)
    for number in range(count):
        killed = process(tmp_path, KILLED.format(number * 5000 // count))
        killed.communicate()
        assert killed.returncode == -9
    assert len(files(tmp_path)) == count
    assert was_found(compiled(tmp_path)) is False
    assert was_found(compiled(tmp_path))
    (entry,) = (path for path in files(tmp_path) if path.suffix == ".disc")
    compiled(tmp_path, lambda x: x - 1, cache_bytes=entry.stat().st_size + 1)
    assert [path.suffix for path in files(tmp_path)] == [".disc"], "what they left is deleted with what is old"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:100],
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
        lambda data: bytes(len(data)),
        lambda data: b"text",
    ],
    ids=["empty", "start", "end missing", "a bit", "zeros", "another file"],
)
def test_damaged_entries_are_compiled_anew(tmp_path, caplog, damage):
    compiled(tmp_path)
    (path,) = files(tmp_path)
    good = path.read_bytes()
    path.write_bytes(damage(good))
    with caplog.at_level(logging.WARNING, "hlo_disc"):
        executable = compiled(tmp_path)
    assert not was_found(executable)
    assert executable(X).sum() == 126
    assert [r.message for r in caplog.records if "damaged" in r.message]
    assert was_found(compiled(tmp_path))


def test_an_entry_under_another_name_is_not_run(tmp_path, caplog):
    """Both are programs of the same types."""
    compiled(tmp_path, scaled(2.0))
    (two,) = files(tmp_path)
    compiled(tmp_path, scaled(100.0))
    (hundred,) = (path for path in files(tmp_path) if path != two)
    hundred.write_bytes(two.read_bytes())
    with caplog.at_level(logging.WARNING, "hlo_disc"):
        executable = compiled(tmp_path, scaled(100.0))
    assert not was_found(executable)
    assert f"holds the entry {two.stem}" in caplog.text
    np.testing.assert_array_equal(executable(X), X * 100)
    assert was_found(compiled(tmp_path, scaled(100.0))) and was_found(compiled(tmp_path, scaled(2.0)))


def test_a_saved_program_is_no_entry(tmp_path):
    executable = compiled(tmp_path)
    (path,) = files(tmp_path)
    executable.save(path)
    assert not was_found(compiled(tmp_path))


def test_a_changed_byte_is_found_wherever_it_is(tmp_path):
    """A changed byte is found, or nobody reads it: then the entry is as good as before."""
    want = compiled(tmp_path)(X)
    (path,) = files(tmp_path)
    good = path.read_bytes()
    count = depth.examples(12, 300)
    places = [*range(0, len(good), len(good) // count), *range(len(good) - 250, len(good), 250 // count + 1)]
    for place in places:
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x41]) + good[place + 1 :])
        np.testing.assert_array_equal(compiled(tmp_path)(X), want)
    assert was_found(compiled(tmp_path))


def test_a_disk_that_is_full(tmp_path):
    before = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
"""
    started = process(tmp_path, before)
    out, errors = started.communicate()
    assert out.strip().endswith(COMPILED)
    assert errors.count("nothing can be kept in it") == 1 and "Traceback" not in errors
    assert not files(tmp_path)


def test_no_directory_can_be_made(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    for _ in range(2):
        with caplog.at_level(logging.WARNING, "hlo_disc"):
            assert compiled(tmp_path / "file" / "cache")(X).sum() == 126
    assert len(caplog.records) <= 2  # that it cannot be read, and that nothing can be kept


@pytest.mark.parametrize("which", ["directory", "entry"])
def test_what_others_may_write_is_not_run(tmp_path, caplog, which):
    place = tmp_path / "cache"
    compiled(place)
    (entry,) = files(place)
    assert (place.stat().st_mode & 0o777, entry.stat().st_mode & 0o777) == (0o700, 0o600)
    (place if which == "directory" else entry).chmod(0o777)
    with caplog.at_level(logging.WARNING, "hlo_disc"):
        assert not was_found(compiled(place))
    assert "others may write to it" in caplog.text
    if which == "entry":
        assert was_found(compiled(place)), "it is replaced"


def test_links_of_entries_are_not_followed_out_of_the_cache(tmp_path):
    place = tmp_path / "cache"
    compiled(place)
    (path,) = files(place)
    path.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").chmod(0o666)
    path.symlink_to(tmp_path / "elsewhere")
    assert not was_found(compiled(place))


# ---------------------------------------------------------------------------------------------- how much there is


def test_what_was_not_used_for_longest_is_deleted(tmp_path):
    sources = {name: scaled(k) for k, name in enumerate("abc", 2)}
    for age, name in enumerate("ab"):
        compiled(tmp_path, sources[name])
        (newest,) = (path for path in files(tmp_path) if path.stat().st_mtime > 10)
        os.utime(newest, (1 + age, 1 + age))
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert was_found(compiled(tmp_path, sources["a"]))  # used again
    other = tmp_path / "not an entry.txt"
    other.write_text("x" * size)
    compiled(tmp_path, sources["c"], cache_bytes=size + 100)
    assert other.exists()
    assert [was_found(compiled(tmp_path, sources[name])) for name in "acb"] == [True, True, False]


def test_programs_that_fill_half_of_it_are_not_kept(tmp_path):
    weights = np.random.default_rng(0).normal(size=(2, 4000)).astype(np.float32)
    compiled(tmp_path, lambda x: x @ weights, "f32[n, 2]", cache_bytes=63_000)
    assert not files(tmp_path)
    compiled(tmp_path, lambda x: x + 1, "f32[n]", cache_bytes=1 << 20)
    assert len(files(tmp_path)) == 1


def test_commands(tmp_path, monkeypatch):
    monkeypatch.setenv("HLO_DISC_CACHE", str(tmp_path))

    def run(command: str) -> str:
        result = CliRunner().invoke(main, ["cache", command])
        assert result.exit_code == 0, result.output
        return result.output

    assert "0 of 4,294,967,296 bytes, 0 programs and 0 kernels" in run("size")
    compiled(tmp_path)
    (path,) = files(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    listed = run("list")
    counted = f"1 programs and {len(kernel_files(tmp_path))} kernels"
    assert "float32[n, m]" in listed and path.name[:12] in listed and counted in listed
    size = sum(x.stat().st_size for x in [path, *kernel_files(tmp_path)])
    assert f"{size:,} of" in run("size")
    path.write_bytes(b"")
    assert "not readable" in run("list")
    assert f"deleted {counted}" in run("clear")
    assert files(tmp_path) == [tmp_path / "notes.txt"]
    monkeypatch.setenv("HLO_DISC_CACHE", "")
    result = CliRunner().invoke(main, ["cache", "size"])
    assert result.exit_code == 1 and "HLO_DISC_CACHE is empty" in result.output
