"""The notes of `explain` on a GPU's kernels: they say what the kernels' code says."""

from __future__ import annotations

import re

import jax
import pytest

import hlo_disc
from hlo_disc.targets.gpu.cuda import NVIDIA
from hlo_disc.targets.gpu.kernel_notes import Note, _unpacked, occupancy, of_ptx
from hlo_disc.targets.gpu.rocm import AMD

SPECS = ("f32[m, k]", "f32[k, n]")


def program(x, w):
    return jax.nn.softmax(x @ w)


def test_amd(tmp_path):
    executable = hlo_disc.compile(program, *SPECS, target="rocm", dump=str(tmp_path))
    notes = AMD.notes(executable.program.object)
    assert list(notes) == ["gfx90a", "gfx942"]
    for level, own in notes.items():
        (listing,) = tmp_path.glob(f"*.{level}.s")
        parts = re.split("amdhsa.kernels:|amdhsa.target:", listing.read_text())[1::2]
        kernels = [kernel for part in parts for kernel in part.split("\n  - ")[1:]]
        fields = [dict(re.findall(r"\.(\w+): +(\S+)$", kernel, re.M)) for kernel in kernels]
        names = ("max_flat_workgroup_size", "group_segment_fixed_size", "vgpr_count")
        assert [(n.threads, n.shared, n.registers) for n in own] == [tuple(int(f[x]) for x in names) for f in fields]
        assert len({n.name for n in own}) == len(own) == len(kernels) > 10
        assert {n.threads for n in own} == {128, 256} and {n.shared for n in own} == {0, 256}
        assert f"kernels for {level} ({AMD.roofs[level]}):\n  {own[0]}\n" in executable.explain(full=True)


@pytest.mark.parametrize("target", ["cuda", "cuda:sm_90"])
def test_nvidia(target):
    executable = hlo_disc.compile(program, *SPECS, target=target)
    ((level, own),) = NVIDIA.notes(executable.program.object).items()
    assert level == {"cuda": "sm_80"}.get(target, "sm_90")
    by_name = {n.name: n for n in own}
    assert not any(n.registers for n in own)
    (tile,) = [n for name, n in by_name.items() if name.endswith("_dot_mma_128x128")]
    assert (tile.threads, tile.shared, tile.most) == (256, 0, 255)
    (wide,) = [n for name, n in by_name.items() if name.endswith("_reduce_256")]
    assert (wide.threads, wide.most) == (256, 0) and wide.shared > 0
    assert f"{tile.name}: 256 threads, 0 bytes of shared memory, at most 255 registers\n" in executable.explain(
        full=True
    )
    assert "occupancy" not in executable.explain(full=True)


def test_a_kernel_has_the_shared_memory_that_it_names():
    """A module may declare more shared memory, for other kernels of the same text."""
    entry = ".visible .entry {0}(.param .u64 a)\n.reqntid 64, 1, 1\n{{\n  mov.u64 %rd1, {1};\n  ret;\n}}\n"
    declared = ".shared .align 16 .b8 one[40];\n.shared .align 16 .b8 two[100];\n"
    text = declared + entry.format("first", "one") + entry.format("second", "two")
    assert of_ptx(text.encode()) == [Note("first", 64, 40), Note("second", 64, 100)]


def test_rooflines():
    """The bytes and operations of a launch stand in symbols beside the machine's numbers that decide about it."""
    text = hlo_disc.compile(program, *SPECS, target="cuda:sm_90").explain(full=True)
    where = "an H100 waits for its memory below 20 operations a byte, in matrices of bf16 295"
    assert f"kernels for sm_90 ({where}):\n" in text
    work = text.split("and compute:\n")[1].split("fast memory")[0].split("\n")
    assert work[:2] == [
        "     0  4*k*m + 4*k*n + 4*m*n bytes, 2*k*m*n operations",
        "     1  8*m*n bytes, 5*m*n operations",
    ]


def test_what_launches_ask_for_is_told(tmp_path):
    text = hlo_disc.compile(program, *SPECS, target="cuda").explain(full=True)
    asked = text.split("which launches ask for:\n")[1].split("\narena")[0]
    assert re.search(r"_reduce_256: 4\*n$", asked, re.M) and "_reduce_8" not in asked
    assert "fast memory of a block" not in hlo_disc.compile(program, *SPECS).explain(full=True)


@pytest.mark.parametrize(
    ("threads", "shared", "registers", "share"),
    [
        (256, 0, 64, 1), (256, 0, 65, 7 / 8), (256, 0, 128, 1 / 2), (256, 0, 129, 3 / 8), (1024, 0, 128, 1 / 2),
        (1024, 0, 136, 0), (64, 64 << 10, 8, 1 / 32), (64, (32 << 10) + 1, 8, 1 / 32), (64, 32 << 10, 8, 2 / 32),
        (65, 0, 8, 1), (256, 0, 512, 1 / 8), (256, 0, 170, 1 / 4),
    ],
)  # fmt: skip
def test_occupancy(threads, shared, registers, share):
    assert occupancy(Note("k", threads, shared, registers)) == share


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("81a1610f", {"a": 15}), ("92c2c3", [False, True]), ("ffe0", -1), ("cd0100", 256), ("ce00010000", 65536),
        ("d080", -128), ("d90161", "a"), ("dc0002aa" + "62" * 10 + "00", ["b" * 10, 0]), ("de000101cc80", {1: 128}),
        ("7f", 127), ("90", []), ("80", {}), ("a0", ""), ("bf" + "61" * 31, "a" * 31), ("cf" + "00" * 7 + "01", 1),
    ],
)  # fmt: skip
def test_messagepack(data, value):
    assert _unpacked(bytes.fromhex(data), 0)[0] == value
