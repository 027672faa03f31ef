"""Libraries with a C interface: they compute what the executable does, bit for bit, and refuse what they must."""

from __future__ import annotations

import ctypes
import re
import shutil
import threading
from pathlib import Path

import child
import depth
import emulated
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from c_library import (
    ALLOCATE,
    ARGUMENT,
    LOG,
    OPEN,
    OUT_OF_MEMORY,
    OVERFLOW,
    RELEASE,
    SHAPE,
    Failed,
    Library,
    Model,
    Tensor,
    exercise,
    run,
    written,
)
from click.testing import CliRunner
from hand_written import kernel_runner

import hlo_disc
from hlo_disc.abi import ALIGNMENT
from hlo_disc.cli import main
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.library.emit import emit

FILES = Path(__file__).parents[2] / "library"
W = np.random.default_rng(0).standard_normal((33, 70), np.float32)


def layer(x):
    return jax.nn.softmax(x @ jnp.asarray(W)) @ jnp.asarray(W).T + x


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("libraries")


@pytest.fixture(scope="module")
def exe():
    return hlo_disc.compile(layer, "f32[n, 33]", constraints=["n <= 500"])


@pytest.fixture(scope="module")
def library(exe, folder):
    return Library(written(exe, folder, "layer"))


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


PROGRAMS = {
    "several": (lambda x, i: (x.sum(0), x[i] > 0, jnp.asarray(3, jnp.int8)), ("f32[n, 5]", "i32[m]")),
    "fourier": (lambda x: jnp.fft.rfft(x).real, ("f32[n, 12]",)),
    "loop": (lambda x: jax.lax.fori_loop(0, 5, lambda i, y: jnp.sin(y) @ y.T @ y, x), ("f32[n, 4]",)),
    "narrow": (lambda x: (x * 2).astype(jnp.float8_e4m3fn), ("bf16[n, 3]",)),
    "scalar": (lambda x: x * 2, ("f64[]",)),
    "complex": (lambda x: jnp.conj(x) * 1j, ("c64[n]",)),
    "sorting": (lambda x: jax.lax.top_k(x, 2), ("f32[n, 9]",)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_computes_what_the_executable_does(folder, name):
    function, specs = PROGRAMS[name]
    exe = hlo_disc.compile(function, *specs)
    model = Model(Library(written(exe, folder, name)))
    for n in (1, 0, 7, 32):
        arrays = []
        for row in exe.program.inputs:
            shape = [int(d) if d.isdigit() else n for d in row.shape]
            arrays.append(np.zeros(shape, np.int32) if row.dtype == "int32" else normal(*shape).astype(row.dtype))
        if n == 0 and name == "several":
            arrays[0] = normal(3, 5)
        got, want = model(*arrays), exe.native(*arrays)
        for a, b in zip(got, want, strict=True):
            assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        shapes, sizes, _ = model.plan(*arrays)
        assert shapes == [b.shape for b in want]
        assert sizes == [b.nbytes for b in want]
    model.close()


def test_it_computes_the_same_at_every_size(library, exe):
    model = Model(library)
    for n in (0, 1, 5, 500):
        (got,) = model(normal(n, 33))
        np.testing.assert_array_equal(got, exe(normal(n, 33)))
    model.close()


def test_results_go_where_the_caller_says(library, exe):
    model, x = Model(library), normal(3, 33)
    place = np.zeros(1 + 3 * 33 + 1, np.float32)
    (got,) = model(x, into=[place[1:-1]])  # at an odd address
    np.testing.assert_array_equal(place[1:-1].reshape(3, 33), exe(x))
    assert place[0] == place[-1] == 0
    with pytest.raises(Failed, match="result 0 has 396 bytes, and there is room for 392") as info:
        model(x, into=[place[: 2 * 49]])
    assert info.value.status == ARGUMENT
    model.close()


COUNTED = """
func.func @main(%n: tensor<i32>) -> tensor<?xi32> {
  %v = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %i = stablehlo.dynamic_iota %v, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  return %i : tensor<?xi32>
}"""


def test_sizes_that_only_the_run_knows(folder):
    model = Model(Library(written(hlo_disc.compile(COUNTED), folder, "counted")))
    for n in (0, 1, 1000):
        count = np.array(n, np.int32)
        assert model.plan(count)[:2] == ([(-1,)], [0])
        np.testing.assert_array_equal(model(count)[0], np.arange(n))
        place = np.full(n + 1, -1, np.int32)
        np.testing.assert_array_equal(model(count, into=[place])[0], np.arange(n))
        assert place[n] == -1
    with pytest.raises(Failed, match="result 0 has 4000 bytes, and there is room for 3996"):
        model(count, into=[place[:999]])
    heap = Heap()
    counting = Model(model.library, allocate=heap.allocate, release=heap.release)
    with pytest.raises(Failed, match="room for 3996"):
        counting(count, into=[place[:999]])
    assert not heap.out
    with pytest.raises(Failed, match="dimension 0 of the result would have the size -1") as info:
        model(np.array(-1, np.int32))
    assert info.value.status == SHAPE


def test_wrong_calls_say_what_is_wrong(library, exe):
    model = Model(library)
    for array, status, message in (
        (normal(3, 33).astype(np.float64), ARGUMENT, "argument 'x' has dtype float64, but float32 was compiled"),
        (normal(33), ARGUMENT, "argument 'x' has rank 1"),
        (normal(3, 32), SHAPE, "argument 'x' has size 32 in dimension 1"),
        (normal(501, 33), SHAPE, "n <= 500"),
    ):
        for call in (model, model.plan):
            with pytest.raises(Failed, match=message) as info:
                call(array)
            assert info.value.status == status
    np.testing.assert_array_equal(model(normal(3, 33))[0], exe(normal(3, 33)))
    model.close()


def test_a_size_that_a_type_does_not_hold_has_a_status_of_its_own(folder):
    exe = hlo_disc.compile(lambda x: x.sum() + jnp.int8(x.shape[0]), "f32[n, 3]")
    model = Model(Library(written(exe, folder, "overflow")))
    assert model(np.zeros((127, 3), np.float32))[0] == 127
    with pytest.raises(Failed, match="128 for the size n at .*: int8 does not hold it") as info:
        model(np.zeros((128, 3), np.float32))
    assert info.value.status == OVERFLOW


def test_pointers_that_are_null_and_numbers_that_mean_nothing(library):
    model = Model(library)
    handle, good = model._model, Tensor.of(normal(3, 33))
    output = Tensor()

    def status(model, inputs, outputs) -> tuple[int, str]:
        return library.run(model, inputs, outputs), library.error().decode()

    ref = ctypes.byref
    assert status(None, ref(good), ref(output)) == (ARGUMENT, "there is no model: the pointer is null")
    assert status(handle, None, ref(output))[0] == ARGUMENT
    assert status(handle, ref(good), None)[0] == ARGUMENT
    for field, value, message in (
        ("data", None, "argument 'x' has no data: the pointer is null"),
        ("dtype", 99, "argument 'x' has dtype number 99, of which there is none"),
        ("dtype", -1, f"argument 'x' has dtype number {2**32 - 1}, of which there is none"),
        ("rank", 17, "argument 'x' has rank 17, and ranks are from 0 to 16"),
        ("rank", -1, "argument 'x' has rank -1, and ranks are from 0 to 16"),
    ):
        bad = Tensor.of(normal(3, 33))
        setattr(bad, field, value)
        code, text = status(handle, ref(bad), ref(output))
        assert (code, text) == (ARGUMENT, message)
    bad = Tensor.of(normal(3, 33))
    bad.shape[0] = -3
    assert status(handle, ref(bad), ref(output))[0] == SHAPE
    assert not library.input(-1)
    assert not library.input(1)
    assert not library.output(1)
    library.close(None)
    library.release(handle, None)
    library.release(handle, ref(output))
    model.close()


def test_types_and_the_log(library, exe):
    row, said = library.input(0).contents, []
    assert (row.name, row.text, row.rank, list(row.shape[:2])) == (b"x", b"float32 (n, 33)", 2, [-1, 33])
    assert library.output(0).contents.text == b"float32 (n, 33)"
    log = LOG(lambda context, severity, text: said.append((context, severity, text.decode())))
    Model(library, log=log, context=7, threads=3).close()
    aligned = sum(-(-x.nbytes // ALIGNMENT) * ALIGNMENT for x in (*exe.program.constants, *exe.program.forms))
    assert said == [(7, 0, f"layer: code for cpu, 3 threads, {aligned} bytes of weights from the library")]


def test_settings_and_versions_that_cannot_be(library):
    with pytest.raises(Failed, match="version 2 of the interface, the library layer of version 1") as info:
        Model(library, version=2)
    assert info.value.status == OPEN
    with pytest.raises(Failed, match="-1 threads"):
        Model(library, threads=-1)
    with pytest.raises(Failed, match="one of allocate and release is missing"):
        Model(library, allocate=ALLOCATE(lambda context, size, alignment: None))


class Heap:
    """Memory that counts what is out, and fails from the n-th allocation on."""

    def __init__(self) -> None:
        self.fail_at, self.count, self.out, self.wrong = -1, 0, {}, []
        self.lock = threading.Lock()
        self.allocate, self.release = ALLOCATE(self._allocate), RELEASE(self._release)

    def _allocate(self, context, size, alignment):
        with self.lock:
            self.count += 1
            if self.count == self.fail_at:
                return None
            buffer = ctypes.create_string_buffer(size + alignment)
            address = -(-ctypes.addressof(buffer) // alignment) * alignment
            self.out[address] = (buffer, size)
            return address

    def _release(self, context, block, size):
        with self.lock:
            if self.out.pop(block, (None, -1))[1] != size:
                self.wrong.append((block, size))


def test_memory_comes_from_the_user_and_goes_back(library, exe):
    heap = Heap()
    model = Model(library, allocate=heap.allocate, release=heap.release)
    x = normal(40, 33)
    for _ in range(3):
        np.testing.assert_array_equal(model(x)[0], exe(x))
    needed = heap.count // 3
    assert needed >= 2
    for n in range(1, needed + 1):
        heap.count, heap.fail_at = 0, n
        with pytest.raises(Failed, match="cannot allocate") as info:
            model(x)
        assert info.value.status == OUT_OF_MEMORY
        assert not heap.out
    heap.fail_at = -1
    np.testing.assert_array_equal(model(x)[0], exe(x))
    assert (heap.out, heap.wrong) == ({}, [])
    model.close()


def test_several_levels_and_the_machines_choice(exe, folder):
    levels = kernel_runner.levels()[::-1]
    text = hlo_disc.stablehlo(layer, "f32[n, 33]", constraints=["n <= 500"])
    (folder / "levels.mlir").write_text(text)
    arguments = [option for level in levels for option in ("--level", level)]
    command = ["compile", str(folder / "levels.mlir"), "-o", str(folder / "levels"), "--emit", "library", *arguments]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    said: list[bytes] = []
    log = LOG(lambda context, severity, text: said.append(text))
    model = Model(Library(folder / "levels" / "liblevels.so"), log=log)
    assert f"code for {levels[0]}".encode() in said[0]
    np.testing.assert_allclose(model(normal(7, 33))[0], exe(normal(7, 33)), rtol=1e-5, atol=1e-5)
    model.close()


def test_a_cpu_without_the_features(exe, folder):
    other = exe.program._replace(features=(*exe.program.features, "avx9000"))
    emit([("avx9000", other)], folder / "none", "none", {})
    with pytest.raises(
        Failed, match="none is compiled for a CPU with avx9000, which this machine does not have"
    ) as info:
        Model(Library(folder / "none" / "libnone.so"))
    assert info.value.status == OPEN
    emit([("avx9000", other), ("host", exe.program)], folder / "both", "both", {})
    model = Model(Library(folder / "both" / "libboth.so"))
    np.testing.assert_array_equal(model(normal(2, 33))[0], exe(normal(2, 33)))


def test_weights_in_a_file_of_their_own(exe, folder):
    path = written(exe, folder, "beside", "--weights-beside")
    weights = path.with_name("beside.weights")
    library = Library(path)
    np.testing.assert_array_equal(Model(library)(normal(2, 33))[0], exe(normal(2, 33)))
    moved = folder / "elsewhere.bin"
    weights.rename(moved)
    with pytest.raises(Failed, match=r"beside.weights cannot be read: No such file") as info:
        Model(library)
    assert info.value.status == OPEN
    Model(library, weights=str(moved).encode()).close()
    content = moved.read_bytes()
    for damaged, message in (
        (b"", "is truncated"),
        (content[:-1], "is truncated"),
        (content[:4000] + bytes([content[4000] ^ 1]) + content[4001:], "is damaged: its digest is another one"),
    ):
        moved.write_bytes(damaged)
        with pytest.raises(Failed, match=f"(constant|weight) .* of .*elsewhere.bin {message}") as info:
            Model(library, weights=str(moved).encode())
        assert info.value.status == OPEN


def test_libraries_keep_to_themselves_and_the_same_input_gives_the_same_bytes(exe, library, folder):
    other = hlo_disc.compile(lambda x: x + 1, "f32[n]")
    both = [Model(library), Model(Library(written(other, folder, "plus")))]
    np.testing.assert_array_equal(both[1](normal(3))[0], normal(3) + 1)
    np.testing.assert_array_equal(both[0](normal(3, 33))[0], exe(normal(3, 33)))
    path = Path(library._library._name)
    names = child.printed("nm", "-D", "--defined-only", path)
    assert {line.split()[2].partition("_")[0] for line in names.splitlines()} == {"layer"}
    again = folder / "again"
    again.mkdir()
    assert written(exe, again, "layer").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("target", ["emulated-cuda", "emulated-rocm"])
def test_a_library_with_kernels_of_a_gpu(folder, target, emulated_targets):
    """A library runs on the stand-in for a GPU's driver. The image is in the code; arguments travel there and back."""
    ctypes.CDLL(emulated.emulator()._name, ctypes.RTLD_GLOBAL)  # its kernels call the emulator
    exe = hlo_disc.compile(lambda x: (layer(x), x.sum()), "f32[n, 33]", target=target)
    name = target.replace("-", "_")
    model = Model(Library(written(exe, folder, name)))
    for n in (1, 9):
        for got, want in zip(model(normal(n, 33)), exe.native(normal(n, 33)), strict=True):
            np.testing.assert_array_equal(got, want)
        place = np.zeros((n, 33), np.float32)
        model(normal(n, 33), into=[place])
        np.testing.assert_array_equal(place, exe.native(normal(n, 33))[0])
    model.close()


def test_what_a_library_cannot_hold(tmp_path):
    exe = hlo_disc.compile(lambda x: jax.pure_callback(np.sin, x, x), "f32[n]")
    with pytest.raises(UnsupportedOpError, match=r"test_library.py:\d+.*a library cannot call hlo_disc.callback"):
        emit([("cpu", exe.program)], tmp_path / "x", "x", {})
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread", ""])
def test_calls_of_all_kinds_under_sanitizers(exe, folder, monkeypatch, sanitizers):
    exercise(exe, folder, monkeypatch, sanitizers, depth.examples(300, 10_000))


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["--name", "hlo_disc_x"], {}, "a library cannot be called 'hlo_disc_x'"),
        (["--name", "3d"], {}, "a library cannot be called '3d'"),
        ([], {"CXX": "no-such-compiler -O9"}, "there is no no-such-compiler: install one"),
        ([], {"CXXFLAGS": "-no-such-flag"}, "the C\\+\\+ compiler failed .*\n.*no-such-flag"),
        (["--emit", "disc"], {}, "--name has no effect on --emit disc"),
    ],
)
def test_commands_that_fail(exe, tmp_path, monkeypatch, arguments, environment, message):
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    exe.save(tmp_path / "a.disc")
    command = ["compile", str(tmp_path / "a.disc"), "-o", str(tmp_path / "out"), "--emit", "library", "--name", "a"]
    done = CliRunner().invoke(main, [*command, *arguments])
    assert done.exit_code == 1
    assert re.search(message, done.output), done.output
    assert not (tmp_path / "out").exists()


def test_many_threads(library, exe):
    model = Model(library)
    inputs = [normal(n, 33) for n in (1, 2, 8, 70)]
    wanted = [exe(x) for x in inputs]
    wrong = []

    def work(seed: int) -> None:
        for i in range(60):
            k = (seed + i) % len(inputs)
            if not np.array_equal(model(inputs[k])[0], wanted[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    model.close()


def test_the_header_is_plain_c(library, folder):
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I", folder / "layer"]
    link = ["-L", folder / "layer", "-llayer", f"-Wl,-rpath,{folder / 'layer'}"]
    run("cc", *flags, FILES / "call.c", "-o", folder / "call", *link)
    assert run(folder / "call") == "2 x 33, 1.0000\nargument 'x' has size 32 in dimension 1\n"


@pytest.mark.skipif(shutil.which("rustc") is None, reason="needs rustc")
def test_rust_calls_it(library, folder):
    command = ["rustc", "-O", "-L", folder / "layer", "-C", f"link-arg=-Wl,-rpath,{folder / 'layer'}"]
    run(*command, "-o", folder / "call_rs", FILES / "call.rs")
    assert run(folder / "call_rs") == "2 x 33, 1.0000\n"


def test_cmake_finds_it(library, folder):
    source, build = folder / "cmake", folder / "build"
    source.mkdir()
    shutil.copy(FILES / "call.c", source)
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(call C)\nfind_package(layer CONFIG REQUIRED)\n"
        "add_executable(call call.c)\ntarget_link_libraries(call PRIVATE layer::layer)\n"
    )
    run("cmake", "-S", source, "-B", build, f"-Dlayer_DIR={folder / 'layer'}")
    run("cmake", "--build", build)
    assert run(build / "call").startswith("2 x 33, 1.0000\n")
