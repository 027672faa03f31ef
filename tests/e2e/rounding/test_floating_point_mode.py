"""Programs compute in a mode of their own, whatever the caller's is, on all threads; the caller's is left as it was."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap

import float_modes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from c_library import Library, Model, written
from float_modes import MODES, control, mode, same_in_all_modes

import hlo_disc
from hlo_disc.errors import CallError, ShapeError
from hlo_disc.ral import OwnFloats

pytestmark = pytest.mark.skipif(not float_modes.SUPPORTED, reason="sets registers of x86")

N = 200_003  # so much that workers share it
TINY = np.float32(5e-40)
OWN = (0x1F80, 0x033F)


def numbers(n: int = N) -> np.ndarray:
    """Ordinary numbers, which rounding shows, and denormal ones in all parts."""
    x = np.random.default_rng(0).standard_normal(n, np.float32)
    x[::3] = TINY
    return x


def sensitive(x):
    return x * np.float32(0.7), x / 3 + 1, jnp.exp(x), x.sum(), x * np.float32(0.3) > 0


@pytest.mark.parametrize("threads", [1, 2])
def test_an_executable(threads: int) -> None:
    exe, x = hlo_disc.compile(sensitive, "f32[n]", threads=threads), numbers()
    same_in_all_modes(lambda: exe(x))
    with mode("both"):
        product = exe(x)[0]
    np.testing.assert_array_equal(product.view(np.int32), (x * np.float32(0.7)).view(np.int32))


def test_a_jitted_function() -> None:
    f, x = hlo_disc.jit(sensitive), jnp.asarray(numbers())
    same_in_all_modes(lambda: f(x), times=2)


def test_inside_of_jax_jit() -> None:
    """XLA's threads take denormal numbers for zero; a program on them does not."""
    exe, x = hlo_disc.compile(sensitive, "f32[n]", threads=2), numbers()
    inner = hlo_disc.jit(sensitive, threads=2)
    f = jax.jit(lambda x: inner(x))
    same_in_all_modes(lambda: f(x))
    want = [r.tobytes() for r in exe(x)]
    for _ in range(20):  # XLA's other threads come late, or not at all
        assert [np.asarray(r).tobytes() for r in f(x)] == want


def test_calls_that_come_often(monkeypatch: pytest.MonkeyPatch) -> None:
    repeated = importlib.import_module("hlo_disc.jitted.repeated")
    monkeypatch.setattr(repeated, "_OFTEN", 2)
    monkeypatch.setattr(repeated, "_MADE", 0)
    f, x = hlo_disc.jit(sensitive), jnp.asarray(numbers(65))
    want = [np.asarray(y).tobytes() for y in f(x)]
    for _ in range(3):
        assert [np.asarray(y).tobytes() for y in f(x)] == want
    same_in_all_modes(lambda: f(x))


def test_a_library(tmp_path) -> None:
    exe, x = hlo_disc.compile(sensitive, "f32[n]"), numbers()
    model = Model(Library(written(exe, tmp_path, "sensitive")), threads=2)
    same_in_all_modes(lambda: model(x))
    assert [y.tobytes() for y in model(x)] == [y.tobytes() for y in exe(x)]


def test_packed_weights_and_library_functions() -> None:
    rng = np.random.default_rng(1)
    w, a = rng.standard_normal((70, 70), np.float32), rng.standard_normal((70, 70), np.float32)
    w[::2] = TINY

    def f(x, weight):
        return x @ weight, jnp.fft.rfft(x).real, jnp.linalg.cholesky(x @ x.T + 99 * jnp.eye(70))

    want = [y.tobytes() for y in hlo_disc.compile(f, "f32[70, 70]", "f32[70, 70]", threads=2)(a, w)]
    for name in ("all", "up"):
        exe = hlo_disc.compile(f, "f32[70, 70]", "f32[70, 70]", threads=2)
        weight = jnp.asarray(w)
        with mode(name):  # the second and third time with a packed form that was made in this mode
            found = [exe(a, weight) for _ in range(3)]
        for results in found:
            assert [np.asarray(y).tobytes() for y in results] == want


def test_long_doubles_of_a_library_function() -> None:
    with jax.enable_x64(True):
        exe = hlo_disc.compile(jnp.fft.ifft, "c128[n]")
    x = np.random.default_rng(0).standard_normal(7) + 0j
    same_in_all_modes(lambda: [exe(x)])


def test_constants_are_folded_and_packed_in_it() -> None:
    w = np.full((40, 40), TINY)

    def f(x):
        return x + jnp.asarray(np.full(5, 1e-20, np.float32)) * np.float32(1e-20), (x[:, None] * 0 + 1) @ w[:1]

    want = [y.tobytes() for y in hlo_disc.compile(f, "f32[5]", cache="")(np.zeros(5, np.float32))]
    for name in ("all", "up"):
        with mode(name):
            made = hlo_disc.compile(f, "f32[5]", cache="")
        assert [y.tobytes() for y in made(np.zeros(5, np.float32))] == want, name


def test_a_callback_runs_in_it_and_what_it_sets_ends_with_it() -> None:
    seen = []

    def call(x):
        seen.append(control())
        left.__enter__()
        return x

    def f(x):
        y = jax.pure_callback(call, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        return sensitive(x)[:2] + sensitive(y)[:2]

    exe, x = hlo_disc.compile(f, "f32[n]", threads=1), numbers(1001)
    want = [y.tobytes() for y in hlo_disc.compile(lambda x: sensitive(x)[:2] * 2, "f32[n]")(x)]
    for name in ("both", "up"):
        left = mode("all")
        with mode(name):
            results = exe(x)
        assert [y.tobytes() for y in results] == want
    assert seen == [OWN, OWN]


def test_a_call_that_fails_leaves_the_callers_mode() -> None:
    def fails(x):
        raise ValueError("as it must")

    wrong = hlo_disc.compile(
        lambda x: jax.pure_callback(fails, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1, "f32[n]"
    )
    guarded = hlo_disc.compile(lambda x, y: x + y, "f32[n]", "f32[n]")
    for name in MODES:
        with mode(name), pytest.raises(CallError, match="as it must"):
            wrong(np.zeros(3, np.float32))
        with mode(name), pytest.raises(ShapeError):
            guarded(np.zeros(3, np.float32), np.zeros(4, np.float32))
        with mode(name), pytest.raises(ValueError, match="while tracing"):
            hlo_disc.compile(raises, "f32[n]")
    assert control() == OWN


def raises(x):
    raise ValueError("while tracing")


def test_traps_are_off_in_it() -> None:
    """A process that lets invalid operations trap is not ended by a NaN of a program's; later they trap again."""
    program = """
        import ctypes, numpy as np, hlo_disc, jax.numpy as jnp
        exe, x = hlo_disc.compile(lambda x: jnp.sqrt(x) + x / x, "f32[n]"), np.float32([-1, 0, 4])
        want = exe(x).tobytes()
        ctypes.CDLL("libm.so.6").feenableexcept(1)
        print(exe(x).tobytes() == want, ctypes.CDLL("libm.so.6").fegetexcept(), flush=True)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert done.stdout == "True 1\n", done


def test_entered_from_python() -> None:
    with mode("all"):
        with OwnFloats():
            inside = control()
        outside = control()
    assert inside == OWN != outside
