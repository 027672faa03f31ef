"""The emulator's errors about loads and stores: small kernels that do one thing each."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator

import emulated
import numpy as np
import pytest
from small_kernels import BARRIER, block_of_memory, launch


@pytest.fixture
def memory() -> Iterator[int]:
    with block_of_memory() as address:
        yield address


STORE_WORD = "store i32 1, ptr %at, align 4"
UPDATE_WORD = "%old = atomicrmw add ptr %at, i32 1 monotonic, align 4"
LOAD_WORD = "%word = load i32, ptr %at, align 4"
TO_OWN_WORD = "%at = getelementptr i32, ptr %p, i64 %tid"
TO_A_WORD = "%at = getelementptr i32, ptr %p, i64 3"
TO_WORD_OF_BLOCK = "%at = getelementptr i32, ptr %p, i64 %block"
TO_OWN_BYTE = "%at = getelementptr i8, ptr %p, i64 %tid"
LOAD_NEXT = (
    "%next = xor i64 %tid, 1\n%there = getelementptr i32, ptr %p, i64 %next\n%word = load i32, ptr %there, align 4"
)
SHUFFLE = "%got = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %tid32, i32 1, i32 31)"
SHARED = "%at = getelementptr i32, ptr %fast, i64 0"
FOUR = "<4 x float> zeroinitializer"

# What threads do, how many blocks of how many threads, and what is said of it.
RACES = {
    "own words": ([TO_OWN_WORD, STORE_WORD, LOAD_WORD], 1, 64, ""),
    "own bytes of a word": ([TO_OWN_BYTE, "store i8 1, ptr %at, align 1"], 1, 64, ""),
    "a word that all load": ([TO_A_WORD, LOAD_WORD], 3, 64, ""),
    "a word that all store": ([TO_A_WORD, STORE_WORD], 1, 2, "a race with a store of thread 0"),
    "a word that all update": ([TO_A_WORD, UPDATE_WORD], 3, 64, ""),
    "a load of what others update": (
        [TO_A_WORD, UPDATE_WORD, LOAD_WORD], 1, 2, "a race with a load of thread 0"),
    "a load of what a block updates": ([TO_A_WORD, UPDATE_WORD, LOAD_WORD], 2, 1, "a race with a load of another"),
    "a load behind all updates": ([TO_A_WORD, UPDATE_WORD, BARRIER, LOAD_WORD], 1, 64, ""),
    "an update of what another loads": (
        [TO_A_WORD, LOAD_WORD, SHUFFLE, UPDATE_WORD], 1, 32, "a race with a load of other threads"),
    "an update of what another stores": (
        [TO_OWN_WORD, STORE_WORD, SHUFFLE, "%n = xor i64 %tid, 1", "%to = getelementptr i32, ptr %p, i64 %n",
         "%old = atomicrmw add ptr %to, i32 1 monotonic, align 4"], 1, 32, "a race with a store of thread 1"),
    "a store of what another updates": (
        [TO_OWN_WORD, UPDATE_WORD, SHUFFLE, "%n = xor i64 %tid, 1", "%to = getelementptr i32, ptr %p, i64 %n",
         "store i32 1, ptr %to, align 4"], 1, 32, "a race with an update of thread 1"),
    "a load of another's": ([TO_OWN_WORD, STORE_WORD, LOAD_NEXT], 1, 2, "a race with a "),
    "a load of another's behind a barrier": ([TO_OWN_WORD, STORE_WORD, BARRIER, LOAD_NEXT], 1, 64, ""),
    "a store behind many loads": (
        [TO_A_WORD, LOAD_WORD, SHUFFLE, STORE_WORD], 1, 32, "a race with a load of other threads"),
    "a load of another's behind an exchange": (
        [TO_OWN_WORD, STORE_WORD, SHUFFLE, LOAD_NEXT], 1, 32, "a race with a store"),
    "a word of all blocks": ([TO_A_WORD, STORE_WORD], 2, 1, "a race with a store of another block"),
    "a load of what a block stores": (
        [TO_WORD_OF_BLOCK, STORE_WORD, "%first = load i32, ptr %p, align 4"], 2, 1,
        "a race with a store of another block"),
    "a store of what a block loads": (
        ["%first = load i32, ptr %p, align 4", "%b = sub i64 1, %block", "%at = getelementptr i32, ptr %p, i64 %b",
         STORE_WORD], 2, 1, "a race with a load of another block"),
    "a store of what both blocks load": (
        [TO_A_WORD, LOAD_WORD, "%again = load i32, ptr %at, align 4", BARRIER, "%other = sub i64 1, %block",
         "%to = getelementptr [32 x i8], ptr %at, i64 %other", "store i32 1, ptr %to, align 4"], 2, 1,
        "a race with a load of another block"),
    "shared memory, which each block has": ([SHARED, STORE_WORD, LOAD_WORD], 3, 1, ""),
    "a word of shared memory": ([SHARED, STORE_WORD], 1, 2, "a race with a store of thread 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", RACES)
def test_races(name, memory):
    lines, blocks, threads, message = RACES[name]
    for order in (0, -1) if not message else (0,):
        emulated.emulator().simt_order(order)
        launch("\n".join(lines), memory, blocks=blocks, threads=threads)
        emulated.emulator().simt_order(0)
        expect(message)


def expect(message: str) -> None:
    if message:
        with pytest.raises(emulated.SimtError, match=re.escape(message)):
            emulated.check()
    else:
        emulated.check()


def test_shared_memory_of_a_block_starts_as_nan(memory):
    lines = ["%x = load i32, ptr %own, align 4", "store i32 %x, ptr %at, align 4", "store i32 7, ptr %own, align 4"]
    launch("\n".join([TO_WORD_OF_BLOCK, *lines]), memory, blocks=3, threads=1)
    emulated.check()
    assert list((ctypes.c_int32 * 3).from_address(memory)) == [-1] * 3


def test_launches_follow_each_other(memory):
    """Threads and blocks of a launch may load what the launch before has stored."""
    for _ in range(2):
        launch(f"{TO_WORD_OF_BLOCK}\n{STORE_WORD}", memory, blocks=3, threads=1)
        launch(f"{TO_OWN_WORD}\n{LOAD_WORD}", memory, blocks=3)
        emulated.check()


def some(mask: str) -> str:
    return f"<4 x i1> <{', '.join(f'i1 {bit}' for bit in mask)}>"


# A base, an access of one thread some bytes behind it, and how many bytes: as many as are right, and as are wrong.
BOUNDS = {
    "a word": ("%p", "load i32, ptr %at, align 4", 252, 256),
    "a byte": ("%p", "load i8, ptr %at, align 1", 255, 256),
    "a store": ("%p", "store i32 1, ptr %at, align 4", 0, -4),
    "far away": ("%p", "store i32 1, ptr %at, align 4", 100, 1 << 30),
    "a vector": ("%p", "load <4 x float>, ptr %at, align 4", 240, 244),
    "the lanes of a mask": (
        "%p", f"call <4 x float> @llvm.masked.load.v4f32.p0(ptr align 4 %at, {some('0110')}, {FOUR})", 244, 248),
    "the lanes of a mask, before": (
        "%p", f"call <4 x float> @llvm.masked.load.v4f32.p0(ptr align 4 %at, {some('0110')}, {FOUR})", -4, -8),
    "no lane": (
        "%p", f"call <4 x float> @llvm.masked.load.v4f32.p0(ptr align 4 %at, {some('0000')}, {FOUR})", 4000, None),
    "a store of lanes": (
        "%p", f"call void @llvm.masked.store.v4f32.p0({FOUR}, ptr align 4 %at, {some('1101')})", 240, 244),
    "shared memory with a name": ("%own", "store i32 1, ptr %at, align 4", 36, 40),
    "shared memory of the launch": ("%fast", "store i32 1, ptr %at, align 4", 60, 64),
    "before shared memory": ("%fast", "store i32 1, ptr %at, align 4", 0, -4),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_accesses_outside_are_found(name, memory):
    base, access, right, wrong = BOUNDS[name]
    value = "" if access.startswith(("store", "call void")) else "%x = "
    body = f"%at = getelementptr i8, ptr {base}, i64 %number\n{value}{access}"
    launch(body, memory, right, threads=1)
    emulated.check()
    if wrong is not None:
        launch(body, memory, wrong, threads=1)
        expect("an access outside of its memory")


@pytest.mark.parametrize("mask", ["11", "10", "01"])
@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize(("base", "right", "wrong"), [("%p", 63, 64), ("%own", 9, 12)])  # where %fast begins
def test_each_lane_of_a_gather_is_looked_at(base, right, wrong, mask, store, memory):
    pointers = "<2 x ptr> align 4 %at, <2 x i1> " + f"<i1 {mask[0]}, i1 {mask[1]}>"
    access = (
        f"call void @llvm.masked.scatter.v2i32.v2p0(<2 x i32> zeroinitializer, {pointers})"
        if store
        else f"%x = call <2 x i32> @llvm.masked.gather.v2i32.v2p0({pointers}, <2 x i32> zeroinitializer)"
    )
    body = f"""
        %lanes = insertelement <2 x i64> zeroinitializer, i64 %number, i32 1
        %at = getelementptr i32, ptr {base}, <2 x i64> %lanes
        {access}"""
    launch(body, memory, right, threads=1)
    emulated.check()
    launch(body, memory, wrong, threads=1)
    expect("an access outside of its memory" if mask[1] == "1" else "")


def test_memory_that_is_not_the_gpus(memory):
    body = "%at = inttoptr i64 %number to ptr\n%x = load i32, ptr %at, align 4"
    elsewhere = np.zeros(4, np.int32)
    launch(body, memory, elsewhere.ctypes.data, threads=1)
    expect("an access to what is no memory of the GPU in kernel: %x = load i32")


def test_a_variable_of_a_thread_is_its_own(memory):
    launch("%at = alloca [4 x i32]\nstore i32 1, ptr %at, align 4\n%x = load i32, ptr %at, align 4", memory)
    emulated.check()


@pytest.mark.parametrize(
    "access",
    [
        "%x = load <4 x float>, ptr %at, align 16",
        "store <4 x float> zeroinitializer, ptr %at, align 16",
        f"%x = call <4 x float> @llvm.masked.load.v4f32.p0(ptr align 16 %at, <4 x i1> zeroinitializer, {FOUR})",
    ],
    ids=["load", "store", "masked"],
)
def test_accesses_that_are_less_aligned_than_they_say_are_found(access, memory):
    for at in (0, 16, 4):
        launch(f"%at = getelementptr i8, ptr %p, i64 %number\n{access}", memory, at, threads=1)
        expect("at a multiple of 16 bytes" if at == 4 else "")


def test_what_touches_memory_in_another_way_is_refused(memory):
    with pytest.raises(AssertionError, match="does not know what this touches: .*atomicrmw"):
        launch("%x = atomicrmw add ptr %p, i32 1 monotonic", memory)
