"""Kernels count in 32 bits where all that they count is below a limit, and in 64 bits elsewhere.

Sizes that no memory holds show which of both a kernel takes. With a low limit a machine shows that their results agree.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

import depth
import emulated
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc
from hlo_disc.errors import DeviceError
from hlo_disc.targets import registry
from hlo_disc.targets.gpu import nvptx
from hlo_disc.targets.gpu.cuda import NVIDIA

LIMIT = nvptx.DEVICE.narrow
LOW = 1 << 18  # above what kernels have as constants
TARGET = "low-cuda"


@pytest.fixture
def low_limit(monkeypatch, emulated_targets) -> Iterator[list[int]]:
    """Register the target TARGET, whose limit is low; yield the number of modules of each compilation.

    Host functions are one of the modules.
    """
    vendor = replace(NVIDIA, device=replace(NVIDIA.device, narrow=LOW))
    registry.register(TARGET, functools.partial(emulated.Emulated, vendor, 99 << 10))
    compiled: list[int] = []
    finish = emulated.EmulatedCompilation.finish

    def counted(self, *host):
        compiled.append(1 + len(host))
        return finish(self, *host)

    monkeypatch.setattr(emulated.EmulatedCompilation, "finish", counted)
    yield compiled
    emulated.check()


def is_wide(exe: hlo_disc.Executable, *sizes: int) -> bool:
    at = exe.program.env.wide
    assert at >= 0, "no question"
    return exe.native.plan(list(sizes))[at] != 0


# A function, its arguments, and for some sizes whether indices need 64 bits.
CASES = {
    "elements": (
        lambda x: x + 1, ("f32[n]",),
        {(0,): False, (LIMIT - 1,): False, (LIMIT,): True, (2**31 - 1,): True, (2**31,): True, (2**32 + 1,): True},
    ),
    "bytes do not count": (lambda x: x + 1, ("f64[n]",), {(LIMIT - 1,): False}),
    "products": (
        lambda x: x + 1, ("f32[m, n]",),
        {(1, LIMIT - 1): False, (2**15, 2**15 - 1): False, (2**15, 2**15): True, (2**16, 2**16): True},
    ),
    "complex numbers are two": (lambda x: x + x, ("c64[n]",), {(LIMIT // 2 - 1,): False, (LIMIT // 2,): True}),
    "what is in no memory": (
        lambda x, y: (x[:, None] + y).sum(), ("f32[m]", "f32[n]"), {(2**15, 2**15 - 1): False, (2**15, 2**15): True},
    ),
    "a result": (lambda x: jnp.pad(x, (5, 0)), ("f32[n]",), {(LIMIT - 6,): False, (LIMIT - 5,): True}),
    "an array without elements": (lambda x: x + 1, ("f32[m, n]",), {(0, LIMIT - 1): False, (0, LIMIT): True}),
    "a number made of sizes": (
        lambda x: x * (x.shape[0] * x.shape[0]), ("i32[n]",), {(2**15 - 1,): False, (2**15,): True},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_call_decides(name):
    function, specs, expected = CASES[name]
    with jax.enable_x64(True):
        exe = hlo_disc.compile(function, *specs, target="cuda")
    sizes = [len(s.split(",")) for s in specs]
    assert sum(sizes) == len(next(iter(expected)))
    assert {at: is_wide(exe, *at) for at in expected} == expected


@pytest.mark.parametrize(
    ("spec", "narrow"), [("f32[7, 100]", True), (f"f32[{LIMIT - 1}]", True), (f"f32[{LIMIT}]", False)]
)
def test_static_sizes_leave_no_question(spec, narrow, tmp_path):
    exe = hlo_disc.compile(lambda x: x + 1, spec, target="cuda", dump=tmp_path)
    assert exe.program.env.wide == -1 and not exe.program.wide_kernels
    (text,) = (path.read_text() for path in tmp_path.glob("*.gpu.ll"))
    assert (" = trunc i64 %p" in text) == narrow


def test_a_cpu_never_asks():
    exe = hlo_disc.compile(lambda x: x + 1, "f32[n]")
    assert exe.program.env.wide == -1 and not exe.program.wide_kernels


PROGRAMS = {
    "softmax": (jax.nn.softmax, ("f32[m, n]",)),
    "column sum": (lambda x: x.sum(0), ("f32[m, n]",)),
    "transposed": (lambda x: x.T + 1, ("f32[m, n]",)),
    "cumulative sum": (lambda x: jnp.cumsum(x, -1), ("f32[m, n]",)),
    "sort": (lambda x: jnp.sort(x, -1), ("f32[m, n]",)),
    "dot": (lambda x: x @ x[:2].T, ("f32[m, n]",)),
    "gather": (lambda x: x[jnp.argsort(x[:, 0])], ("f32[m, n]",)),
    "loop": (lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y * 0.5 + x.sum(0), x), ("f32[m, n]",)),
}


@depth.sampled(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_both_widths_compute_the_same(name, low_limit):
    function, specs = PROGRAMS[name]
    exe = hlo_disc.compile(function, *specs, target=TARGET)
    random = np.random.default_rng(3)
    for shape in ((3, 5), (0, 7), (64, LOW // 64 - 1), (64, LOW // 64), (513, 513), (1, LOW)):
        x = random.standard_normal(shape, np.float32)
        expected = function(x)
        tolerance = 1e-5 * max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(exe(x), expected, atol=tolerance, err_msg=str(shape))
        if shape[1] != LOW // 64 - 1:  # where it depends on what else there is
            assert is_wide(exe, *shape) == (shape[0] * shape[1] >= LOW)
    assert low_limit == [2, 1]  # the wide kernels once, when they are needed


def test_a_saved_program_makes_its_wide_kernels(low_limit, tmp_path):
    exe = hlo_disc.compile(lambda x: x.sum(0) + 1, "f32[m, n]", target=TARGET)
    exe.save(tmp_path / "x.disc")
    again = hlo_disc.load(tmp_path / "x.disc")
    x = np.ones((4097, 64), np.float32)
    np.testing.assert_array_equal(again(x), exe(x))
    np.testing.assert_array_equal(again(x[:3]), np.full(64, 4, np.float32))
    assert low_limit == [2, 1, 1]


COUNTED = """
func.func @main(%n: tensor<i32>) -> tensor<?xi32> {
  %v = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %i = stablehlo.dynamic_iota %v, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  %j = stablehlo.add %i, %i : tensor<?xi32>
  return %j : tensor<?xi32>
}"""


def test_sizes_that_the_run_finds(low_limit):
    exe = hlo_disc.compile(COUNTED, target=TARGET)
    for n, kernels in ((0, [2]), (LOW - 1, [2]), (LOW, [2, 1]), (3, [2, 1])):
        np.testing.assert_array_equal(exe(np.int32(n)), 2 * np.arange(n))
        assert low_limit == kernels


def test_wide_kernels_that_cannot_be_made(low_limit, monkeypatch):
    exe = hlo_disc.compile(lambda x: x + 1, "f32[n]", target=TARGET)

    def failing(self, *host):
        raise MemoryError("no room")

    monkeypatch.setattr(emulated.EmulatedCompilation, "finish", failing)
    with pytest.raises(DeviceError, match="kernels for arrays this large: no room"):
        exe(np.zeros(LOW, np.float32))
    np.testing.assert_array_equal(exe(np.zeros(LOW - 1, np.float32)), np.ones(LOW - 1, np.float32))


FAR = {
    "int32": (0, 5, 99, 100, 2**30 - 1, 2**30, 2**31 - 1, -1, -(2**30) - 1, -(2**31)),
    "uint32": (0, 5, 99, 100, 2**30, 2**31 - 1, 2**31, 2**32 - 1),
    "int64": (0, 99, 100, 2**31, 2**32 + 3, 2**63 - 1, -1, -(2**32) + 3, -(2**63)),
    "uint64": (0, 99, 100, 2**31, 2**32 + 3, 2**63 + 3, 2**64 - 1),
}


@pytest.mark.parametrize("dtype", FAR)
def test_places_out_of_reach_in_the_program_too(dtype, low_limit):
    """Indices out of reach are constants here, which MLIR turns into its type `index`."""
    with jax.enable_x64(True):
        for at in FAR[dtype]:
            place = np.array(at, dtype)

            def function(x, y, place=place):
                return jax.lax.dynamic_update_slice(x, y, (place,))

            exe = hlo_disc.compile(function, "f32[n + 2]", "f32[2]", target=TARGET)
            expected = np.arange(100, dtype=np.float32)
            first = min(max(at if at >= 0 else at + 100, 0), 98)
            expected[first : first + 2] = -1
            np.testing.assert_array_equal(exe(np.arange(100, dtype=np.float32), np.full(2, -1, np.float32)), expected)


@pytest.mark.parametrize("dtype", FAR)
def test_places_out_of_reach_stay_there(dtype, low_limit):
    """An index that is data stays out of reach, though its low 32 bits are inside."""
    table = np.arange(100, dtype=np.float32)
    places = np.array(FAR[dtype], dtype)
    with jax.enable_x64(True):

        def function(x, at):
            dims = jax.lax.GatherDimensionNumbers((), (0,), (0,))
            found = jax.lax.gather(x, at[:, None], dims, (1,), mode="clip")
            return found, x.at[at].set(-1, mode="drop", wrap_negative_indices=False)

        exe = hlo_disc.compile(function, "f32[n]", f"{dtype[0]}{dtype[-2:]}[k]", target=TARGET)
        found, changed = exe(table, places)
    assert not is_wide(exe, 100, len(places))
    np.testing.assert_array_equal(found, [table[min(max(int(at), 0), 99)] for at in places])
    expected = table.copy()
    expected[[int(at) for at in places if 0 <= at < 100]] = -1
    np.testing.assert_array_equal(changed, expected)
