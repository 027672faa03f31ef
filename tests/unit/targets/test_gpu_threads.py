"""The data that threads of a GPU exchange, by kernels of a few lines, for GPUs of all vendors."""

from __future__ import annotations

import emulated
import numpy as np
import pytest
from small_kernels import run

from hlo_disc.targets.gpu.cuda import NVIDIA
from hlo_disc.targets.gpu.rocm import AMD

VENDORS = {"NVIDIA": NVIDIA, "AMD": AMD}
THREADS = 64
DISTANCES = {
    "xor": lambda width: [d for d in (1, 2, 4, 8, 16, 32) if d < width],
    "up": lambda width: [1, 3, width // 2, width - 1],
    "down": lambda width: [1, 3, width // 2, width - 1],
    "idx": lambda width: [0, 1, 5, width - 1],
}


def source(mode: str, distance: int, width: int) -> np.ndarray:
    """Return the thread whose value each thread gets: -1 where there is none, and it may get any."""
    threads = np.arange(THREADS)
    team = threads // width * width
    other = {
        "xor": threads ^ distance, "up": threads - distance, "down": threads + distance, "idx": team + distance
    }[mode]  # fmt: skip
    return np.where(other // width * width == team, other, -1)


@pytest.fixture(params=[0, -1, 7])
def order(request):
    emulated.emulator().simt_order(request.param)
    yield
    emulated.emulator().simt_order(0)


def values(dtype: type) -> np.ndarray:
    """Return values whose bits are all random."""
    words = np.random.default_rng(1).integers(0, 2**31, THREADS * np.dtype(dtype).itemsize // 4, np.uint32)
    return words.view(dtype)


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.int64, np.float64])
@pytest.mark.parametrize("vendor", VENDORS)
def test_exchanges(vendor, dtype, order):
    """Teams of all sizes that schedules know exchange values, in all modes and of all types."""
    element = {np.int32: "i32", np.float32: "f32", np.int64: "i64", np.float64: "f64"}[dtype]
    warp = {"NVIDIA": 32, "AMD": 64}[vendor]
    cases = [(m, d, w) for w in (8, 16, warp) for m, distances in DISTANCES.items() for d in distances(w)]
    x, out = values(dtype), np.zeros(len(cases) * THREADS, dtype)
    lines = [f"%x = memref.load %a0[%t] : memref<?x{element}>"]
    for k, (mode, distance, width) in enumerate(cases):
        lines += [
            f"%d{k} = arith.constant {distance} : i32",
            f"%w{k} = arith.constant {width} : i32",
            f"%y{k}, %valid{k} = gpu.shuffle {mode} %x, %d{k}, %w{k} : {element}",
            f"%from{k} = arith.constant {k * THREADS} : index",
            f"%at{k} = arith.addi %t, %from{k} : index",
            f"memref.store %y{k}, %a1[%at{k}] : memref<?x{element}>",
        ]
    run(VENDORS[vendor], "\n".join(lines), x, out)
    for (mode, distance, width), row in zip(cases, out.reshape(len(cases), THREADS), strict=True):
        other = source(mode, distance, width)
        message = f"{mode} {distance} of {width}"
        np.testing.assert_array_equal(row[other >= 0], x[other[other >= 0]], err_msg=message)


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_team_exchanges_while_the_others_of_its_warp_are_elsewhere(vendor, order):
    x, out = values(np.int32), np.zeros(THREADS, np.int32)
    body = """
      %x = memref.load %a0[%t] : memref<?xi32>
      %first = arith.constant 8 : index
      %end = arith.constant 16 : index
      %behind = arith.cmpi uge, %t, %first : index
      %before = arith.cmpi ult, %t, %end : index
      %second = arith.andi %behind, %before : i1
      scf.if %second {
        %d = arith.constant 4 : i32
        %w = arith.constant 8 : i32
        %y, %valid = gpu.shuffle xor %x, %d, %w : i32
        memref.store %y, %a1[%t] : memref<?xi32>
      }"""
    run(VENDORS[vendor], body, x, out)
    expected = np.zeros_like(out)
    expected[8:16] = x[np.arange(8, 16) ^ 4]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("vendor", VENDORS)
def test_numbers_shared_memory_and_barriers(vendor, order):
    """Each block reverses its part in memory of its own, all of which it may read behind a barrier."""
    x = np.arange(3 * THREADS, dtype=np.float32)
    out = np.zeros_like(x)
    head = f"""
      memref.global "private" @other : memref<48xi8, #gpu.address_space<workgroup>>
      memref.global "private" @held : memref<{4 * THREADS}xi8, #gpu.address_space<workgroup>>"""
    body = f"""
      %zero = arith.constant 0 : index
      %last = arith.constant {THREADS - 1} : index
      %count = arith.constant {THREADS} : index
      %bytes = memref.get_global @held : memref<{4 * THREADS}xi8, #gpu.address_space<workgroup>>
      %held = memref.view %bytes[%zero][%count] : memref<{4 * THREADS}xi8, #gpu.address_space<workgroup>>
        to memref<?xf32, #gpu.address_space<workgroup>>
      %start = arith.muli %block, %count : index
      %at = arith.addi %start, %t : index
      %x = memref.load %a0[%at] : memref<?xf32>
      memref.store %x, %held[%t] : memref<?xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %turned = arith.subi %last, %t : index
      %y = memref.load %held[%turned] : memref<?xf32, #gpu.address_space<workgroup>>
      memref.store %y, %a1[%at] : memref<?xf32>"""
    run(VENDORS[vendor], body, x, out, blocks=3, head=head)
    np.testing.assert_array_equal(out, x.reshape(3, THREADS)[:, ::-1].ravel())


@pytest.mark.parametrize("vendor", VENDORS)
def test_updates_of_memory(vendor, order):
    """All threads of all blocks update memory. Signed and unsigned extremes are of numbers of both signs."""
    kinds = {
        "addi": np.add, "andi": np.bitwise_and, "maxs": np.maximum, "maxu": np.maximum, "mins": np.minimum,
        "minu": np.minimum, "ori": np.bitwise_or, "xori": np.bitwise_xor,
    }  # fmt: skip
    x = np.random.default_rng(2).integers(-(2**31), 2**31, 3 * THREADS, np.int32)
    start = np.int32(0x5A5A5A5A)
    out = np.full(len(kinds), start)
    lines = [f"%count = arith.constant {THREADS} : index", "%start = arith.muli %block, %count : index"]
    lines += ["%at = arith.addi %start, %t : index", "%x = memref.load %a0[%at] : memref<?xi32>"]
    for k, kind in enumerate(kinds):
        lines.append(f"%k{k} = arith.constant {k} : index")
        lines.append(f"%old{k} = memref.atomic_rmw {kind} %x, %a1[%k{k}] : (i32, memref<?xi32>) -> i32")
    run(VENDORS[vendor], "\n".join(lines), x, out, blocks=3)
    all_ = np.append(x, start)
    for (kind, reduce), found in zip(kinds.items(), out, strict=True):
        given = all_.view(np.uint32) if kind.endswith("u") else all_
        assert np.array(reduce.reduce(given, dtype=given.dtype)).view(np.int32) == found, kind
