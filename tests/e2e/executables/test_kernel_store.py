"""The store of kernels: programs and processes share it, and damaged, foreign or unsafe entries are not run."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
from pathlib import Path

import depth
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc
from hlo_disc import mlir
from hlo_disc.cache import directory, kernels, reuse
from hlo_disc.compiled import account
from hlo_disc.stitch import origin
from hlo_disc.stitch.codegen.module import LinkedFunctions
from hlo_disc.targets.cpu import x86
from hlo_disc.targets.cpu.native_generator import NativeCompilation, NativeGenerator

RNG = np.random.default_rng(0)
X = RNG.normal(size=(37, 40)).astype(np.float32)
W = RNG.normal(size=(40, 24)).astype(np.float32)


def layer(x, w):
    return jax.nn.softmax(jnp.tanh(x @ w))


def deeper(x, w):
    return layer(x, w).T[:, ::-1] * 3


PROGRAMS = {
    "layer": (layer, X, W),
    "sort": (lambda x: jnp.sort(x, 0), X),
    "sums": (lambda x: (x.sum(0), jnp.cumsum(x, 1)), X),
    "functions": (lambda x: jnp.sin(x) + jnp.exp(x) * jnp.log1p(x * x) + x**3, X),
    "f16": (lambda x, w: jnp.exp(x @ w), X.astype(np.float16), W.astype(np.float16)),
    "f64 pools": (
        lambda x: jax.lax.reduce_window(x, -np.inf, jax.lax.max, (3, 3), (2, 2), "SAME"),
        X.astype(np.float64),
    ),
    "scatter": (lambda x: jnp.zeros_like(x).at[jnp.int32([3, 1, 3])].add(1.0), X),
}
SHAPES = ("[n, k]", "[k, m]")


@pytest.fixture(autouse=True)
def told_once():
    directory._told.clear()


@pytest.fixture
def compiled_texts(monkeypatch) -> list[str]:
    """The LLVM IR that is compiled from here on."""
    texts: list[str] = []
    compile_llvm = NativeGenerator.compile_llvm

    def recorded(self, text, dump=None):
        texts.append(text)
        return compile_llvm(self, text, dump)

    monkeypatch.setattr(NativeGenerator, "compile_llvm", recorded)
    return texts


@pytest.fixture
def built(monkeypatch) -> list[str]:
    """The names of the forms that are built from here on."""
    names: list[str] = []
    build = reuse.build_linked_kernel

    def recorded(item, *others):
        names.append(item.name)
        return build(item, *others)

    monkeypatch.setattr(reuse, "build_linked_kernel", recorded)
    return names


@pytest.fixture
def found(monkeypatch) -> list[str]:
    """The names of kernels that are found from here on. They are built as well, which must give what was found."""
    names: list[str] = []
    added: dict[bytes, bytes] = {}
    taken, add = reuse.Kernels._taken, NativeCompilation.add

    def noted(self, module, prefix="", key=b"", record=b""):
        added[key] = mlir.identity(module)
        add(self, module, prefix, key, record)

    def checked(self, key, entry, known, prefix):
        if not taken(self, key, entry, known, prefix):
            return False
        (item,) = (x for name, x in self._scheduled.kernels.items() if self._scheduled.origins[name] is known)
        made = reuse.build_linked_kernel(item, self.functions, self._excess_precision)
        kept = origin.read(entry.partition(b"\n")[0], known.symbols, self._scheduled.facts)
        assert (kept.functions.keys(), kept.types) == (made.calls.keys(), made.types)  # names say what is in functions
        assert mlir.identity(made.module) == added[key]
        names.append(item.name)
        return True

    monkeypatch.setattr(NativeCompilation, "add", noted)
    monkeypatch.setattr(reuse.Kernels, "_taken", checked)
    return names


def compiled_kernels(texts: list[str]) -> int:
    return sum(line.startswith("define hidden") for text in texts for line in text.splitlines())


def run(place, fn, *arrays, **settings):
    specs = [x.dtype.name.replace("float", "f") + shape for x, shape in zip(arrays, SHAPES, strict=False)]
    executable = hlo_disc.compile(fn, *specs, cache=str(place), **settings)
    return jax.tree.leaves(executable(*arrays)), executable


def files(place: Path) -> list[Path]:
    return sorted(place.glob(f"*{directory.KERNEL}"))


def without_programs(place: Path) -> None:
    for path in place.glob(f"*{directory.PROGRAM}"):
        path.unlink()


@depth.sampled(2)
@pytest.mark.parametrize("target", ["cpu", "cpu:avx2"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_have_the_same_bits(tmp_path, compiled_texts, built, name, target):
    fn, *arrays = PROGRAMS[name]
    with jax.enable_x64(True):
        want, _ = run("", fn, *arrays, target=target)
        first, _ = run(tmp_path, fn, *arrays, target=target)
        without_programs(tmp_path)
        assert compiled_kernels(compiled_texts) > 0 and built
        compiled_texts.clear()
        built.clear()
        again, executable = run(tmp_path, fn, *arrays, target=target)
    assert "codegen" in executable.program.compile_ms and compiled_kernels(compiled_texts) == 0 and not built
    for a, b, c in zip(want, first, again, strict=True):
        assert a.tobytes() == b.tobytes() == c.tobytes()


def test_another_program_compiles_what_it_alone_has(tmp_path, compiled_texts):
    run(tmp_path, layer, X, W)
    count = compiled_kernels(compiled_texts)
    compiled_texts.clear()
    (got,), _ = run(tmp_path, deeper, X, W)
    assert 0 < compiled_kernels(compiled_texts) < count / 2
    np.testing.assert_allclose(got, jax.jit(deeper)(X, W), rtol=1e-5)


def test_sizes_have_other_names_in_other_programs(tmp_path, compiled_texts, built):
    """Names of sizes, arguments and functions, and places in the source, are in no kernel."""
    lines = ("lambda x, y: x * 2 + y", "lambda other, y:\\\n other * 2 + y")
    for number, (line, (rows, columns)) in enumerate(itertools.product(lines, ("nm", "ab"))):
        built.clear()
        compiled_texts.clear()
        spec = f"f32[{rows}, {columns}]"
        executable = hlo_disc.compile(eval(line), spec, f"f32[{columns}]", cache=str(tmp_path))
        np.testing.assert_array_equal(executable(X, X[0]), X * 2 + X[0])
        assert number == 0 or compiled_kernels(compiled_texts) == len(built) == 0


# What may be said of the sizes of two arrays.
SPECS = {
    "any": ("[n, k]", "[k, m]"),
    "other order": ("[z, k]", "[k, a]"),
    "multiples": ("[n, 8*k]", "[8*k, 8*m]"),
    "even": ("[2*n, 2*k]", "[2*k, m]"),
    "square": ("[n, n]", "[n, n]"),
    "numbers": ("[n, 40]", "[40, 24]"),
    "other numbers": ("[n, 48]", "[48, 200]"),
    "odd numbers": ("[n, 37]", "[37, 17]"),
    "small numbers": ("[n, 15]", "[15, 1]"),
    "sum": ("[n, k + 1]", "[k + 1, m]"),
}


def random(shape: str) -> np.ndarray:
    """An array of such a shape, every symbol being 40."""
    return RNG.normal(size=[int(n) if n.isdigit() else 40 for n in shape[1:-1].split(", ")]).astype(np.float32)


@pytest.mark.parametrize("target", ["cpu", "cpu:avx2"])
def test_what_is_found_is_what_would_be_built(tmp_path, found, target):
    """Programs that say more or less of their sizes share a store. The fixture compares."""
    arrays = [RNG.normal(size=(40, 40)).astype(np.float32)] * 2
    functions = [layer, deeper, *(PROGRAMS[name][0] for name in ("sums", "sort", "scatter", "functions"))]
    for turn, fn in enumerate(functions):
        count = fn.__code__.co_argcount
        for name, specs in depth.some([*SPECS.items()], turn + (target != "cpu"), 2):
            shapes = [f"f32{shape}" for shape in specs[:count]]
            inputs = arrays if "numbers" not in name else [random(spec) for spec in specs]
            executable = hlo_disc.compile(fn, *shapes, cache=str(tmp_path), target=target)
            got = jax.tree.leaves(executable(*inputs[:count]))
            want = jax.tree.leaves(jax.jit(fn)(*inputs[:count]))
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
        without_programs(tmp_path)
    assert len(found) > 10


# (inputs, outputs) of layers: around the number of columns of a vector and of a tile, prime, 1, and equal.
WIDTHS = [
    (40, 24),
    (16, 15),
    (15, 16),
    (37, 53),
    (64, 64),
    (96, 200),
    (200, 96),
    (256, 17),
    (1, 64),
    (64, 1),
    (48, 136),
]
# Of these, one has what another leaves: the same tile, and neither number says more.
ALIKE = [((40, 128), (96, 256)), ((64, 200), (17, 72)), ((256, 48), (33, 40))]


def dense(inputs: int, outputs: int):
    """A layer whose weights are constants, and what it does to some rows, with numpy."""
    rng = np.random.default_rng(inputs * 1000 + outputs)
    x, w, b = (rng.normal(size=shape).astype(np.float32) for shape in ((11, inputs), (inputs, outputs), (outputs,)))
    return (lambda x: jnp.maximum(x @ w + b, 0) * 2), x, np.maximum(x @ w + b, 0) * 2


@pytest.mark.parametrize("target", ["cpu", "cpu:avx2"])
def test_layers_of_other_widths_find_what_would_be_built(tmp_path, found, target):
    """Numbers of products and packings are arguments. The fixture compares."""
    for inputs, outputs in WIDTHS:
        fn, x, want = dense(inputs, outputs)
        executable = hlo_disc.compile(fn, f"f32[n, {inputs}]", cache=str(tmp_path), target=target)
        np.testing.assert_allclose(executable(x), want, rtol=1e-5, atol=1e-4)
    assert {"dot_packed", "dot_open", "pack"} <= {*found}


@pytest.mark.parametrize(("one", "other"), ALIKE, ids=str)
def test_layers_of_other_widths_compile_nothing(tmp_path, compiled_texts, built, one, other):
    for widths in (one, other):
        compiled_texts.clear()
        built.clear()
        fn, x, want = dense(*widths)
        executable = hlo_disc.compile(fn, f"f32[n, {widths[0]}]", cache=str(tmp_path), target="cpu:avx2")
        np.testing.assert_allclose(executable(x), want, rtol=1e-5, atol=1e-4)
    assert compiled_kernels(compiled_texts) == 0 and not built


def test_layers_of_one_program_share_kernels():
    """Each gets its own sizes, packed or not, and so does a long sum that blocks share."""
    layers = [dense(*widths) for widths in [*WIDTHS, *itertools.chain(*ALIKE)]]
    specs = [f"f32[n, {x.shape[1]}]" for _, x, _ in layers]
    executable = hlo_disc.compile(lambda *xs: [fn(x) for (fn, *_), x in zip(layers, xs, strict=True)], *specs, cache="")
    for got, (_, _, want) in zip(executable(*(x for _, x, _ in layers)), layers, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
    assert len(account.parse(executable.program.account).kernels) < len(layers)


def test_long_sums_of_one_program_share_kernels_of_equal_tiles_alone():
    """The launches differ in their conditions, too: only the call says how many columns the last one has."""
    columns = (24, 33, 40, 70, 53, 96, 200, 2000)
    rng = np.random.default_rng(5)
    x, *ys = (rng.normal(size=(9000, n)).astype(np.float32) for n in (40, *columns))
    specs = [*(f"f32[k, {n}]" for n in (40, *columns[:-1])), "f32[k, m + 33]"]
    executable = hlo_disc.compile(lambda x, *ys: [x.T @ y for y in ys], *specs, cache="")
    for rows in (5, 9000):
        for got, y in zip(executable(x[:rows], *(y[:rows] for y in ys)), ys, strict=True):
            np.testing.assert_allclose(got, x[:rows].T @ y[:rows], rtol=1e-4, atol=1e-3)


def mixed(*pairs):
    """Products with sums of several types, and equal results, which follow each other in one program."""
    types = {"int8": [jnp.int8, jnp.int32], "float32": [jnp.int8, jnp.float32], "float16": [jnp.int8, jnp.float16]}
    dots = [
        jax.lax.dot_general(x, w, (((1,), (0,)), ((), ())), preferred_element_type=t)
        for x, w in pairs
        for t in types.get(x.dtype.name, [x.dtype])
    ]
    return [y for dot in dots for y in (dot, jnp.maximum(dot, 0))]


def test_a_kernel_is_the_same_in_all_programs(tmp_path, monkeypatch):
    """Functions that other kernels of a program have left make no difference."""
    build, count = reuse.build_linked_kernel, []

    def compared(item, functions, excess_precision):
        made = build(item, functions, excess_precision)
        alone = build(item, LinkedFunctions(functions.facts), excess_precision)
        assert mlir.identity(made.module) == mlir.identity(alone.module)
        assert (made.calls.keys(), made.answers) == (alone.calls.keys(), alone.answers)
        count.append(item.name)
        return made

    monkeypatch.setattr(reuse, "build_linked_kernel", compared)
    small = [np.clip(x * 2, -3, 3).round() for x in (X, W)]
    pairs = [[x.astype(t) for x in small] for t in ("int8", "float32", "float16", "int32", "float64")]
    with jax.enable_x64(True):
        got = hlo_disc.jit(mixed, cache=str(tmp_path), defer_kernels=False, fallback=False)(*pairs)
        for a, b in zip(got, jax.jit(mixed)(*pairs), strict=True):
            np.testing.assert_array_equal(a, b)
        for fn, *arrays in PROGRAMS.values():
            run("", fn, *arrays)
    assert len(count) > 40


@pytest.mark.parametrize(
    ("name", "change"),
    [("f16", {"target": "cpu:avx2"}), ("functions", {"target": "cpu:avx2"}), ("f16", {"excess_precision": True})],
    ids=str,
)
def test_other_code_is_another_entry(tmp_path, compiled_texts, name, change):
    if change.get("target") == f"cpu:{x86.made_for('host')}":
        pytest.skip("this machine has that level alone")
    fn, *arrays = PROGRAMS[name]
    run(tmp_path, fn, *arrays)
    compiled_texts.clear()
    run(tmp_path, fn, *arrays, **change)
    assert compiled_kernels(compiled_texts) > 0


def test_a_kernel_that_is_found_shares_functions_with_one_that_is_built(tmp_path, compiled_texts, built):
    run(tmp_path, lambda x, w: x @ w, X, W)
    built.clear()
    got, _ = run(tmp_path, lambda x, w: (x @ w, jnp.tanh((x * 3) @ w)), X, W)
    assert len(built) > 2 and "dot_narrow" in built
    for a, b in zip(got, (X @ W, np.tanh((X * 3) @ W)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("what", ["package", "versions"])
def test_another_hlo_disc_compiles_anew(tmp_path, monkeypatch, compiled_texts, what):
    run(tmp_path, layer, X, W)
    compiled_texts.clear()
    monkeypatch.setattr(kernels, what, lambda *_: "another")
    run(tmp_path, layer, X, W)
    without_programs(tmp_path)
    assert compiled_kernels(compiled_texts) == 0, "the program is the same"
    run(tmp_path, layer, X, W)
    assert compiled_kernels(compiled_texts) > 0


# Prints how many kernels were compiled, and the sum of the result. argv: the cache's directory, what to do before.
PROGRAM = """
import sys
import numpy as np
import hlo_disc
from hlo_disc import mlir
from hlo_disc.cache import kernels
from hlo_disc.targets.cpu.native_generator import NativeCompilation, NativeGenerator
exec(sys.argv[2])
count, compile_llvm = 0, NativeGenerator.compile_llvm
def counted(self, text, dump=None):
    global count
    count += text.count("define hidden")
    return compile_llvm(self, text, dump)
NativeGenerator.compile_llvm = counted
made = hlo_disc.compile(lambda x: x @ x.T + 1, "f32[n, m]", cache=sys.argv[1])
print(count, made(np.arange(6, dtype=np.float32).reshape(3, 2)).sum())
"""


def process(place, before: str = "", **environment: str) -> subprocess.Popen:
    command = [sys.executable, "-c", PROGRAM, str(place), before]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **environment}, **pipes)


def output(started: subprocess.Popen) -> tuple[int, float]:
    out, errors = started.communicate()
    assert started.returncode == 0, errors
    count, total = out.split()
    return int(count), float(total)


def test_processes_share_it(tmp_path):
    started = [process(tmp_path, PYTHONHASHSEED=str(k)) for k in range(depth.examples(3, 16))]
    assert all(total == 126 for _, total in map(output, started))
    without_programs(tmp_path)
    assert output(process(tmp_path, PYTHONHASHSEED="77")) == (0, 126)


# How much of a kernel is there when its process is killed.
KILLED = """
import os, signal
replace = os.replace
def killed(a, b):
    if b.endswith(".kernel") and {0} <= 0:
        os.truncate(a, {1})
        os.kill(os.getpid(), signal.SIGKILL)
    replace(a, b)
os.replace = killed
"""


def test_killed_processes_leave_whole_kernels(tmp_path):
    for number in range(depth.examples(3, 300)):
        killed = process(tmp_path, KILLED.format(0, number * 100))
        killed.communicate()
        assert killed.returncode == -9
    assert not files(tmp_path)
    assert output(process(tmp_path))[1] == 126
    without_programs(tmp_path)
    assert output(process(tmp_path)) == (0, 126)


def test_a_changed_byte_is_found_wherever_it_is(tmp_path, caplog):
    want, _ = run(tmp_path, layer, X, W)
    for number, path in enumerate(files(tmp_path)):
        good = path.read_bytes()
        at = (number * 97) % len(good)
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1 :])
    without_programs(tmp_path)
    with caplog.at_level(logging.WARNING, "hlo_disc"):
        got, _ = run(tmp_path, layer, X, W)
    assert "damaged" in caplog.text
    assert [x.tobytes() for x in got] == [x.tobytes() for x in want]
    without_programs(tmp_path)
    directory._told.clear()
    caplog.clear()
    run(tmp_path, layer, X, W)
    assert not caplog.text, "they were replaced"


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:20], lambda data: data[:-1]], ids=range(3))
def test_what_is_cut_is_compiled_anew(tmp_path, damage):
    want, _ = run(tmp_path, layer, X, W)
    for path in files(tmp_path):
        path.write_bytes(damage(path.read_bytes()))
    without_programs(tmp_path)
    got, _ = run(tmp_path, layer, X, W)
    assert [x.tobytes() for x in got] == [x.tobytes() for x in want]


def test_entries_that_changed_places_are_not_run(tmp_path, compiled_texts):
    want, _ = run(tmp_path, layer, X, W)
    contents = [path.read_bytes() for path in files(tmp_path)]
    for path, other in zip(files(tmp_path), contents[1:] + contents[:1], strict=True):
        path.write_bytes(other)
    without_programs(tmp_path)
    compiled_texts.clear()
    got, _ = run(tmp_path, layer, X, W)
    assert [x.tobytes() for x in got] == [x.tobytes() for x in want]
    assert compiled_kernels(compiled_texts) > 0


def test_what_others_may_write_is_not_run(tmp_path, compiled_texts, caplog):
    place = tmp_path / "cache"
    run(place, layer, X, W)
    assert {path.stat().st_mode & 0o777 for path in files(place)} == {0o600}
    without_programs(place)
    for path in files(place):
        path.chmod(0o666)
    compiled_texts.clear()
    with caplog.at_level(logging.WARNING, "hlo_disc"):
        run(place, layer, X, W)
    assert "others may write to it" in caplog.text and compiled_kernels(compiled_texts) > 0


def test_it_is_bounded(tmp_path):
    for k in range(4):
        run(tmp_path, lambda x, k=k: jnp.sort(x, 0) * (k + 2), X, cache_bytes=40_000)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 40_000


@pytest.mark.parametrize("settings", [dict(cache=""), dict(dump="dumped")], ids=["off", "dump"])
def test_without_a_cache_nothing_is_kept(tmp_path, monkeypatch, settings):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HLO_DISC_CACHE", str(tmp_path / "cache"))
    hlo_disc.compile(layer, "f32[n, k]", "f32[k, m]", **settings)
    assert not (tmp_path / "cache").exists()
