"""Linear algebra in libraries with a C interface: the system's LAPACK is linked, or the op is refused."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import depth
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from c_library import Library, Model, exercise, run, written
from click.testing import CliRunner
from jax import lax

import hlo_disc
from hlo_disc import sources
from hlo_disc.cli import main
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.library.emit import emit
from hlo_disc.library.toolchain import needed
from hlo_disc.options import Options

HAS_LAPACK = not subprocess.run(
    [*"c++ -x c++ - -o /dev/null -llapack -lblas".split()], input=b"int main() {}", capture_output=True, check=False
).returncode
needs_lapack = pytest.mark.skipif(not HAS_LAPACK, reason="needs a LAPACK to link with: apt install liblapack-dev")


def hermitian(x):
    return x + jnp.swapaxes(x, -1, -2).conj()


def turned(x):
    return jnp.swapaxes(x, -1, -2)


def solved(x, y):
    """Return a Cholesky factor, and what is solved with it from both sides."""
    factor = jnp.linalg.cholesky(x @ turned(x).conj() + 4 * jnp.eye(x.shape[-1], dtype=x.dtype))
    solve = lax.linalg.triangular_solve
    return factor, solve(factor, y, left_side=True, lower=True), solve(factor, turned(y), transpose_a=True, lower=True)


def spectrum(x, y):
    """Return what does not depend on the vectors that a LAPACK takes: eigenvalues, and the matrix that they make."""
    values, vectors = jnp.linalg.eigh(hermitian(x))
    left, singular, right = jnp.linalg.svd(y, full_matrices=False)
    return (
        values,
        (vectors * values[..., None, :]) @ turned(vectors).conj(),
        singular,
        (left * singular[..., None, :]) @ right,
    )


def factors(x, y):
    lu, pivots, _ = lax.linalg.lu(x)
    q, r = jnp.linalg.qr(jnp.concatenate([x, y], -1) @ turned(jnp.concatenate([x, y], -1)))
    return lu, pivots, q @ r, abs(r), jnp.linalg.solve(x, y)


def rest(x, y):
    """Return results of each other routine of the table."""
    values, vectors = jnp.linalg.eig(x)
    form, basis = lax.linalg.schur(x)
    d = abs(lax.linalg.tridiagonal(hermitian(x))[1])
    singular = lax.linalg.svd(y, compute_uv=False, algorithm=lax.linalg.SvdAlgorithm.QR)
    q, r, order = lax.linalg.qr(x, pivoting=True)
    made = vectors * values[..., None, :] - x @ vectors  # zero, in whatever order
    stripes = lax.linalg.tridiagonal_solve(x[..., 0] / 9, x[..., 0] / 9 + 4, x[..., 0] / 9, y)
    return abs(made), basis @ form @ turned(basis).conj(), d, singular, q @ r, order, stripes


PROGRAMS = {"solved": solved, "spectrum": spectrum, "factors": factors, "rest": rest}
SIZES = [(2, 5, 3), (0, 4, 3), (1, 1, 1), (3, 0, 2), (2, 3, 0), (1, 40, 17), (2, 3, 7)]


@depth.sampled(2)
@needs_lapack
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_computes_what_the_executable_does(tmp_path, name, dtype):
    with jax.enable_x64(True):
        specs = [jax.ShapeDtypeStruct((2, 5, width), dtype) for width in (5, 3)]
        exe = hlo_disc.compile(PROGRAMS[name], *specs, dims={"x": "(b, n, n)", "y": "(b, n, m)"})
    model = Model(Library(written(exe, tmp_path, "algebra")))
    tolerance = 1e-3 if dtype == "float32" else 1e-10
    for b, n, m in SIZES:
        if n == 0 and name == "rest":  # a tridiagonal matrix has n - 1 numbers beside its diagonal
            continue
        rng = np.random.default_rng(n)
        x, y = (np.asarray(rng.standard_normal((b, n, k, 2)) @ [1, 1j]) for k in (n, m))
        x, y = ((v if dtype == "complex128" else v.real).astype(dtype) for v in (x, y))
        got, want = model(x, y), exe.native(x, y)
        assert len(got) == len(want)
        for found, expected in zip(got, want, strict=True):
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * 10)
    model.close()


@pytest.fixture(scope="module")
def exe():
    """A program with three routines."""

    def f(x):
        factor = jnp.linalg.cholesky(x @ x.T + 3 * jnp.eye(3))
        return jax.scipy.linalg.solve_triangular(factor, x, lower=True), jnp.linalg.eigh(factor @ factor.T)[0]

    return hlo_disc.compile(f, "f32[3, n]")


@needs_lapack
def test_what_it_is_linked_with_and_exports(exe, tmp_path):
    path = written(exe, tmp_path, "one")
    lapack = [name for name in needed(path.read_bytes()) if "lapack" in name or "blas" in name]
    printed = run("readelf", "-d", path)
    assert lapack and all(f"[{name}]" in printed for name in lapack)
    assert f"linear algebra by the machine's LAPACK: {', '.join(lapack)}" in path.with_name("one.h").read_text()
    names = run("nm", "-D", "--defined-only", path)
    assert {line.split()[2].partition("_")[0] for line in names.splitlines()} == {"one"}
    (tmp_path / "again").mkdir()
    assert written(exe, tmp_path / "again", "one").read_bytes() == path.read_bytes()
    # Where the user's flags have it already, nothing is added; and without linear algebra nothing is linked.
    emit([("cpu", exe.program)], tmp_path / "two", "two", {"LDFLAGS": "-llapack -lblas"})
    assert set(lapack) <= set(needed((tmp_path / "two" / "libtwo.so").read_bytes()))
    plain = hlo_disc.compile(lambda x: jnp.fft.rfft(x).real, "f32[3, n]", constraints=["n >= 1"])
    path = written(plain, tmp_path, "plain")
    assert not set(lapack) & set(needed(path.read_bytes()))
    assert "LAPACK" not in path.with_name("plain.h").read_text() + path.with_name("plainConfig.cmake").read_text()


CALLER = """
#include <stdio.h>
#include "one.h"
int main(void) {
  hlo_disc_model* model;
  float x[] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  hlo_disc_tensor input = {HLO_DISC_FLOAT32, 2, {3, 3}, x}, outputs[ONE_OUTPUTS] = {{0}};
  if (one_open(NULL, HLO_DISC_API_VERSION, &model) || one_run(model, &input, outputs)) return 1;
  printf("%.2f %.2f\\n", ((float*)outputs[0].data)[0], ((float*)outputs[1].data)[2]);
  return 0;
}
""".replace("ONE_OUTPUTS", "one_OUTPUTS")


@needs_lapack
def test_cmake_brings_what_a_program_is_linked_with(exe, tmp_path):
    written(exe, tmp_path, "one")
    config = tmp_path / "one" / "oneConfig.cmake"
    (tmp_path / "call.c").write_text(CALLER)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(call C)\nfind_package(one CONFIG REQUIRED)\n"
        "add_executable(call call.c)\ntarget_link_libraries(call PRIVATE one::one)\n"
        'get_target_property(others one::one IMPORTED_LINK_DEPENDENT_LIBRARIES)\nmessage(STATUS "needs ${others}")\n'
    )
    configure = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-Done_DIR={tmp_path / 'one'}"]
    said = run(*configure)
    assert all(f"/{name}" in said for name in needed((tmp_path / "one" / "libone.so").read_bytes()) if "lapack" in name)
    run("cmake", "--build", tmp_path / "build")
    assert run(tmp_path / "build" / "call") == "0.50 4.00\n"
    config.write_text(config.read_text().replace("liblapack.so", "libnowhere.so"))
    done = subprocess.run(configure, capture_output=True, text=True, check=False)
    assert "libone.so needs libnowhere.so.3, which is not here: install" in " ".join(done.stderr.split())


@needs_lapack
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread", ""])
def test_calls_of_all_kinds_under_sanitizers(tmp_path, monkeypatch, sanitizers):
    """The memory that a routine works in comes from the user, too, and runs out."""
    exe = hlo_disc.compile(lambda x: x @ jnp.linalg.eigh(x.T @ x)[1], "f32[n, 33]")
    exercise(exe, tmp_path, monkeypatch, sanitizers, depth.examples(100, 1000))


def wrapper(folder: Path, compiler: str) -> str:
    """Write a compiler that finds no LAPACK, and return its path."""
    path = folder / "without"
    path.write_text(
        '#!/bin/sh\ncase " $* " in\n'
        '*" -lblas "*) echo "ld: cannot find -llapack, -lblas" >&2; exit 1;;\n'
        '*" -llapack "*) echo "ld: cannot find -llapack" >&2; exit 1;;\nesac\n'
        f'exec {shlex.quote(shutil.which(compiler) or compiler)} "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


def test_without_a_lapack_it_is_refused(exe, tmp_path, monkeypatch):
    message = r"test_library_lapack.py:\d+.*apt install liblapack-dev.*LDFLAGS.*\n.*cannot find -llapack"
    settings = {"CXX": wrapper(tmp_path, "c++")}
    with pytest.raises(UnsupportedOpError, match=message) as info:
        emit([("cpu", exe.program)], tmp_path / "x", "x", settings)
    assert "custom_call @lapack_" in str(info.value) and "-lblas" not in str(info.value)
    assert not (tmp_path / "x").exists()
    monkeypatch.setenv("CXX", settings["CXX"])
    exe.save(tmp_path / "a.disc")
    done = CliRunner().invoke(main, ["compile", f"{tmp_path}/a.disc", "-o", f"{tmp_path}/a", "--emit", "library"])
    assert done.exit_code == 1
    assert "liblapack-dev" in done.output


CROSS = "aarch64-linux-gnu-g++"


@pytest.fixture
def for_another_machine():
    if shutil.which(CROSS) is None:
        pytest.skip(f"needs {CROSS}")
    return sources.program(jnp.linalg.cholesky, "f32[n, n]", options=Options(target="aarch64"))


def test_a_cross_compiler_is_asked_for_its_own(for_another_machine, tmp_path):
    """A cross-compiler is asked for its own LAPACK, not for this machine's."""
    with pytest.raises(UnsupportedOpError, match=r"LAPACK.*\n.*-llapack") as refused:
        emit([("aarch64", for_another_machine)], tmp_path / "x", "x", {"CXX": wrapper(tmp_path, CROSS)})
    assert "-lblas" not in str(refused.value)


@pytest.mark.skipif(not depth.full, reason="compiles all of the runtime for another machine, twice")
def test_the_lapack_of_another_machine_is_taken(for_another_machine, tmp_path):
    """Here a LAPACK of AArch64 is made up, with one function."""
    made = ["-shared", "-fPIC", "-Wl,-soname,liblapack.so.3", "-o", tmp_path / "liblapack.so", tmp_path / "lapack.cc"]
    settings = {"CXX": CROSS, "LDFLAGS": f"-L{tmp_path}"}
    (tmp_path / "lapack.cc").write_text('extern "C" void dpotrf_() {}\n')
    run(CROSS, *made)
    with pytest.raises(UnsupportedOpError, match="undefined reference to `spotrf_'"):
        emit([("aarch64", for_another_machine)], tmp_path / "x", "x", settings)
    (tmp_path / "lapack.cc").write_text('extern "C" void spotrf_() {}\n')
    run(CROSS, *made)
    emit([("aarch64", for_another_machine)], tmp_path / "y", "y", settings)
    library = (tmp_path / "y" / "liby.so").read_bytes()
    assert int.from_bytes(library[18:20], "little") == 183
    assert "liblapack.so.3" in needed(library)
