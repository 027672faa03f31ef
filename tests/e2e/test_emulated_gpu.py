"""Row kernels of a GPU, thread by thread: results in three orders of threads, and faults planted in their code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

import emulated
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import hlo_disc
from hlo_disc.targets import nvptx, registry, x86

ORDERS = (0, -1, 7)
SIZES = (
    (1, 1), (3, 7), (33, 32), (4, 129), (7, 257), (2, 4099), (300, 17), (1100, 3), (0, 5), (5, 0),
    (3, 4), (36, 132), (3, 260), (8, 1028), (2, 4100),
)  # fmt: skip
TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "i32": np.int32, "c64": np.complex64}


@pytest.fixture(autouse=True)
def registered(monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_TARGETS", dict(registry._TARGETS))  # other tests name all targets
    emulated.register()
    yield
    emulated.emulator().simt_order(0)


def layer_norm(x, scale, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + bias


def last_affine(x, y):
    """Maps t -> x t + y, one after another: a region that does not commute."""
    return jax.lax.reduce((x, y), (np.float32(1), np.float32(0)), lambda f, g: (f[0] * g[0], g[0] * f[1] + g[1]), (1,))


PROGRAMS: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "map": (lambda x: jax.nn.gelu(x) + 1, ("f32[m, n]",)),
    "softmax": (jax.nn.softmax, ("f32[m, n]",)),
    "layer norm": (layer_norm, ("f32[m, n]", "f32[n]", "f32[n]")),
    "column sum": (lambda x: x.sum(0), ("f32[m, n]",)),
    "all in one": (lambda x: x.astype(np.float32).sum(), ("bf16[m, n]",)),
    "argmax": (lambda x: jnp.argmax(x, -1), ("i32[m, n]",)),
    "region": (last_affine, ("f32[m, n]", "f32[m, n]")),
    "cumulative sum": (lambda x: jnp.cumsum(x, -1), ("f32[m, n]",)),
    "reverse maximum": (lambda x: jax.lax.cummax(x, 1, reverse=True), ("bf16[m, n]",)),
    "cumulative log of a sum": (lambda x: jax.lax.cumlogsumexp(x, 1), ("f32[m, n]",)),
    "transpose": (lambda x: x.T * 2, ("f32[m, n]",)),
    "complex": (lambda x, y: (x * y).sum(-1), ("c64[m, n]", "c64[m, n]")),
    "pad and stride": (lambda x: jnp.pad(x, ((1, 2), (0, 3)))[:, ::2], ("f32[m, n]",)),
    "random bits": (lambda x: jax.random.bits(jax.random.key(1), x.shape) + x.astype(np.uint32), ("i32[m, n]",)),
}  # fmt: skip


def arrays(specs: tuple[str, ...], m: int, n: int) -> list[np.ndarray]:
    rng, made = np.random.default_rng(m + n), []
    for spec in specs:
        name, shape = spec.rstrip("]").split("[")
        x = rng.standard_normal([{"m": m, "n": n}[dim] for dim in shape.split(", ")]) * (4 if name == "i32" else 0.7)
        made.append((x + 1j * x[::-1] if name == "c64" else x).astype(TYPES[name]))
    return made


@pytest.mark.parametrize("name", PROGRAMS)
def test_row_kernels(name):
    function, specs = PROGRAMS[name]
    executable = hlo_disc.compile(function, *specs, target="emulated-cuda")
    for m, n in SIZES:
        if name == "argmax" and n == 0:
            continue
        xs = arrays(specs, m, n)
        expected = jax.tree.leaves(jax.jit(function)(*xs))
        for order in ORDERS:
            emulated.emulator().simt_order(order)
            results = jax.tree.leaves(executable(*xs))
            emulated.check()
            for result, right in zip(results, expected, strict=True):
                assert result.dtype == right.dtype
                np.testing.assert_allclose(result, right, rtol=2e-5, atol=1e-5, err_msg=f"{m} x {n}, order {order}")


def softmax_with(monkeypatch, change: Callable[[str], str]) -> Callable[[], bool]:
    """Whether softmax, its code changed, is found wrong in some order of threads."""
    whole = emulated.for_cpu
    monkeypatch.setattr(emulated, "for_cpu", lambda text: whole(change(text)))
    executable = hlo_disc.compile(lambda x: jax.nn.softmax(x) + 0, "f32[m, n]", target="emulated-cuda")

    def found(m: int, n: int) -> bool:
        x = arrays(("f32[m, n]",), m, n)[0]
        right = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
        for order in ORDERS:
            emulated.emulator().simt_order(order)
            result = executable(x)
            try:
                emulated.check()
            except emulated.SimtError:
                return True
            if not np.allclose(result, right, rtol=1e-4):
                return True
        return False

    return found


BARRIER = "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n"


def test_no_fault_is_found_where_none_is(monkeypatch):
    found = softmax_with(monkeypatch, lambda text: text)
    assert not any(found(m, n) for m, n in ((3, 31), (2, 300), (2, 2000)))


@pytest.mark.parametrize("which", range(8))
def test_missing_barriers_are_found(monkeypatch, which):
    """Of a maximum and a sum across warps, each has one before memory is written and one behind, in both forms."""

    def without(text: str) -> str:
        parts = text.split(BARRIER)
        assert len(parts) == 9
        return BARRIER.join([*parts[:which], parts[which] + parts[which + 1], *parts[which + 2 :]])

    # The first one is for blocks of several rows: it keeps what the row before has left until all have read it.
    assert softmax_with(monkeypatch, without)(10, 1100 if which < 4 else 1101)


DIVERGENT = f"""
target triple = "{nvptx.TRIPLE}"
target datalayout = "{nvptx.LAYOUT}"
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
define ptx_kernel void @kernel(i64 %limit) {{
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %wide = zext i32 %tid to i64
  %low = icmp slt i64 %wide, %limit
  br i1 %low, label %one, label %other
one:
{BARRIER}  br label %done
other:
  CALL
  br label %done
done:
  ret void
}}
"""


@pytest.mark.parametrize(
    ("planted", "message"), [(BARRIER.strip(), "different barriers"), ("; none", "have left")], ids=["two", "one"]
)
def test_divergent_barriers_are_found(planted, message):
    object_ = x86.generator("host").compile_llvm(emulated.for_cpu(DIVERGENT.replace("CALL", planted)))
    library = emulated.Emulated(nvptx.DEVICE).link(object_, {})
    for limit in (64, 0, 17):
        record = np.array([limit], np.int64)
        kernel, data = map(ctypes.c_void_p, (library.address("kernel"), record.ctypes.data))
        emulated.emulator().simt_launch(kernel, ctypes.c_int64(2), ctypes.c_int64(64), ctypes.c_int64(0), data)
        if limit == 17:
            with pytest.raises(emulated.SimtError, match=message):
                emulated.check()
        else:
            emulated.check()


@pytest.mark.parametrize(
    ("written", "planted", "columns"),
    [
        ("shl i32 255,", "shl i32 127,", 31),
        ("i32 -1, i32 %", "i32 65535, i32 %", 300),
        ("i32 1, i32 31)", "i32 2, i32 31)", 300),
    ],
    ids=["members of a team", "members of a warp", "distance"],
)
def test_wrong_exchanges_are_found(monkeypatch, written, planted, columns):
    def change(text: str) -> str:
        assert written in text
        return text.replace(written, planted)

    assert softmax_with(monkeypatch, change)(3, columns)


UNALIGNED = f"""
target triple = "{nvptx.TRIPLE}"
target datalayout = "{nvptx.LAYOUT}"
declare <4 x float> @llvm.masked.load.v4f32.p0(ptr, <4 x i1>, <4 x float>)
define ptx_kernel void @kernel(i64 %at, ptr addrspace(1) %p) {{
  %q = addrspacecast ptr addrspace(1) %p to ptr
  %r = getelementptr i8, ptr %q, i64 %at
  ACCESS
  ret void
}}
"""


@pytest.mark.parametrize(
    "access",
    [
        "%x = load <4 x float>, ptr %r, align 16",
        "store <4 x float> zeroinitializer, ptr %r, align 16",
        "%x = call <4 x float> @llvm.masked.load.v4f32.p0(ptr align 16 %r, <4 x i1> zeroinitializer, "
        "<4 x float> zeroinitializer)",
    ],
    ids=["load", "store", "masked"],
)
def test_accesses_that_are_less_aligned_than_they_say_are_found(access):
    object_ = x86.generator("host").compile_llvm(emulated.for_cpu(UNALIGNED.replace("ACCESS", access)))
    library = emulated.Emulated(nvptx.DEVICE).link(object_, {})
    memory = np.zeros(64, np.uint8)
    start = memory.ctypes.data + -memory.ctypes.data % 16
    for at in (0, 16, 4):
        record = np.array([at, start], np.int64)
        kernel, data = map(ctypes.c_void_p, (library.address("kernel"), record.ctypes.data))
        emulated.emulator().simt_launch(kernel, ctypes.c_int64(1), ctypes.c_int64(1), ctypes.c_int64(0), data)
        if at == 4:
            with pytest.raises(emulated.SimtError, match="at a multiple of 16 bytes"):
                emulated.check()
        else:
            emulated.check()
