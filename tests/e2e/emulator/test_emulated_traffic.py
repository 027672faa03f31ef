"""The memory traffic of GPU kernels: small ones with known answers, and how close rows come to the minimum."""

from __future__ import annotations

from collections.abc import Iterator

import emulated
import pytest
import traffic
from small_kernels import BARRIER, block_of_memory, launch

# What each of 64 threads does, and where; then sectors and bytes loaded, sectors that both warps ask for, requests to
# shared memory, conflicts.
WORD = "%x = load i32, ptr %at, align 4"
KERNELS = {
    "neighbours": ("i32, ptr %p, i64 %tid", WORD, (8, 256, 8, 0, 0)),
    "every second": ("[2 x i32], ptr %p, i64 %half", WORD, (8, 128, 16, 0, 0)),
    "one word": ("i32, ptr %p, i64 0", WORD, (1, 4, 2, 0, 0)),
    "between two sectors": ("i8, ptr %p, i64 30", "%x = load i32, ptr %at, align 2", (2, 4, 4, 0, 0)),
    "bytes": ("i8, ptr %p, i64 %tid", "%x = load i8, ptr %at, align 1", (2, 64, 2, 0, 0)),
    "vectors": ("[4 x i32], ptr %p, i64 %low", "%x = load <4 x i32>, ptr %at, align 16", (8, 256, 16, 0, 0)),
    "vectors by elements": (
        "[4 x i32], ptr %p, i64 %low", "%x = load <4 x i32>, ptr %at, align 4", (8, 256, 64, 0, 0)),
    "a vector of two instructions": ("i32, ptr %p, i64 0", "%x = load <8 x i32>, ptr %at, align 32", (1, 32, 4, 0, 0)),
    "shared neighbours": ("i32, ptr %fast, i64 %tid", WORD, (0, 0, 0, 2, 0)),
    "one bank": ("[32 x i32], ptr %fast, i64 %tid", WORD, (0, 0, 0, 2, 62)),
    "two banks": ("[16 x i32], ptr %fast, i64 %tid", WORD, (0, 0, 0, 2, 30)),
    "padded": ("[33 x i32], ptr %fast, i64 %tid", WORD, (0, 0, 0, 2, 0)),
    "one shared word": ("i32, ptr %fast, i64 7", WORD, (0, 0, 0, 2, 0)),
    "shared vectors": (
        "[4 x i32], ptr %fast, i64 %tid", "%x = load <4 x i32>, ptr %at, align 16", (0, 0, 0, 2, 0)),
    "shared vectors by elements": (
        "[4 x i32], ptr %fast, i64 %tid", "%x = load <4 x i32>, ptr %at, align 4", (0, 0, 0, 8, 24)),
    "shared vectors in a bank": (
        "[32 x i32], ptr %fast, i64 %tid", "%x = load <4 x i32>, ptr %at, align 16", (0, 0, 0, 2, 56)),
    "shared doubles": ("double, ptr %fast, i64 %tid", "%x = load double, ptr %at, align 8", (0, 0, 0, 2, 0)),
    "shared bytes of words": ("i8, ptr %fast, i64 %tid", "%x = load i8, ptr %at, align 1", (0, 0, 0, 2, 0)),
}  # fmt: skip


@pytest.fixture
def memory() -> Iterator[int]:
    with block_of_memory() as address:
        yield address


@pytest.mark.parametrize("name", KERNELS)
def test_counts(name, memory):
    address, access, expected = KERNELS[name]
    body = f"""
        %half = and i64 %tid, 31
        %low = and i64 %tid, 15
        %at = getelementptr {address}
        {access}
        {BARRIER}"""
    counts = traffic.counted(lambda: launch(body, memory, shared=64 * 33 * 4))
    block, whole = counts
    assert (block.block, whole.block, block.barriers) == (0, -1, 1)
    for c in counts:
        assert (c.sectors[0], c.bytes[0], c.asked, c.shared, c.conflicts) == expected
        assert c.sectors[1] == c.bytes[1] == 0


def test_stores_and_blocks(memory):
    """Three blocks store a word each in one sector, of which all load another word."""
    body = """
        %at = getelementptr i32, ptr %p, i64 %block
        store i32 1, ptr %at, align 4
        %other = getelementptr i32, ptr %p, i64 5
        %x = load i32, ptr %other, align 4"""
    *blocks, whole = traffic.counted(lambda: launch(body, memory, blocks=3, threads=1))
    assert [(tuple(c.sectors), tuple(c.bytes)) for c in blocks] == [((1, 1), (4, 4))] * 3
    assert (tuple(whole.sectors), tuple(whole.bytes), whole.asked) == ((1, 1), (4, 12), 6)


# Of rows of a multiple of four: what warps ask for, over arguments and results. Softmax and layer norm read rows three
# times unless they stay in fast memory; of a gather every thread reads the number of its row.
ASKED = {
    "map": 1.05,
    "softmax": 2.05,
    "layer norm": 3.05,
    "column sum": 1.05,
    "transpose": 1.15,
    "gather of rows": 1.95,
}


@pytest.mark.parametrize("name", traffic.PROGRAMS)
def test_rows_move_little_more_than_they_must(name, emulated_targets):
    program = traffic.compiled(name)
    for rows, cols in traffic.SHAPES:
        found = traffic.of_shape(name, program, rows, cols)
        aligned = cols % 4 == 0
        where = f"{rows} x {cols}: {found}"
        assert 1 <= found.blocks <= (1.10 if aligned else 1.25), where
        # What 128 blocks have added up of a column goes through memory, too.
        shared = 2 * 128 / rows if name == "column sum" and rows > 256 else 0
        assert 1 <= found.total <= (1.10 if aligned else 1.25) + shared, where
        assert found.conflicts == 0, where
        whole = aligned and (name != "transpose" or (rows % 4 == 0 and min(rows, cols) >= 8))
        assert found.asked <= ASKED[name] + shared or not whole, where


# How many blocks of 128 or 256 threads the launches of a call have. Small programs are spread over the machine: teams
# have a row or a register of a thread each; more from a million elements on.
BLOCKS = {
    "map": {(17, 768): [13], (512, 768): [384]},
    "softmax": {(17, 768): [5], (300, 17): [19], (8, 4096): [8], (4096, 64): [256]},
    "layer norm": {(17, 768): [5], (300, 17): [19], (8, 4096): [8], (4096, 64): [256]},
    "column sum": {(17, 768): [2], (300, 768): [192, 2], (8, 4096): [8]},
    "transpose": {(17, 768): [24], (512, 768): [384]},
    "gather of rows": {(17, 768): [13], (1024, 4096): [1024]},
}


@pytest.mark.parametrize("name", BLOCKS)
def test_small_programs_are_spread_over_the_machine(name, emulated_targets):
    emulated.register_large()
    program = traffic.compiled(name, "large-cuda")
    found = {(rows, cols): traffic.grids(program, traffic.drawn(name, rows, cols)) for rows, cols in BLOCKS[name]}
    assert found == BLOCKS[name]
