"""The linker: objects that are damaged in any way are refused or linked, and never end the process."""

from __future__ import annotations

import random
import struct

import depth
import pytest

import hlo_disc
from hlo_disc import ral

EXPORTED = "plan", "main"


@pytest.fixture(scope="module")
def object_() -> bytes:
    """Return object code of a program with constants, kernels, and calls of the C library and of the runtime."""
    return hlo_disc.compile(lambda x: (x @ x.T).sum(), "f32[n, m]", target="cpu:avx2").program.object


def relocations(object_: bytes) -> list[int]:
    """Return the offsets of the entries of all tables of relocations."""
    (sections,) = struct.unpack_from("<Q", object_, 0x28)
    size, count = struct.unpack_from("<HH", object_, 0x3A)
    rows = [struct.unpack_from("<IIQQQQIIQQ", object_, sections + k * size) for k in range(count)]
    return [at for row in rows if row[1] == 4 for at in range(row[4], row[4] + row[5], 24)]


def test_functions_have_addresses_and_others_have_none(object_):
    code = ral.Code(object_, ral.symbols())
    first, second = map(code.address, EXPORTED)
    assert first and second and first != second
    assert code.address("nothing") == 0
    code.close()
    code.close()
    assert code.address("main") == 0


def test_every_link_is_another_one(object_):
    codes = [ral.Code(object_, ral.symbols()) for _ in range(3)]
    assert len({code.address("main") for code in codes}) == 3


def test_a_function_that_is_nowhere_is_named(object_):
    with pytest.raises(ValueError, match="calls @ral_parallel_for, which is neither given to link nor in this process"):
        ral.Code(object_, {})


def test_code_cannot_be_written(object_):
    code = ral.Code(object_, ral.symbols())
    address = code.address("main")
    with open("/proc/self/maps") as maps:
        rows = [line.split()[:2] for line in maps]
    (protection,) = (p for area, p in rows for lo, hi in [area.split("-")] if int(lo, 16) <= address < int(hi, 16))
    assert protection == "r-xp"


def test_objects_that_end_too_early_are_refused(object_):
    step = max(len(object_) // depth.examples(200, 5000), 1)
    for size in range(0, len(object_), step):
        with pytest.raises(ValueError, match="."):
            ral.Code(object_[:size], ral.symbols())


def test_damage_ends_no_process(object_):
    """Damage is anywhere in the object code, or in the tables of offsets."""
    random_ = random.Random(0)
    (sections,) = struct.unpack_from("<Q", object_, 0x28)
    tables = [0, 0x28, 0x3A, *relocations(object_), *range(sections, len(object_), 4)]
    refused = 0
    for number in range(depth.examples(3000, 100_000)):
        data = bytearray(object_)
        for _ in range(random_.randint(1, 4)):
            at = random_.choice(tables) + random_.randrange(16) if number % 2 else random_.randrange(len(data))
            data[min(at, len(data) - 1)] = random_.choice((0, 1, 0x7F, 0x80, 0xFF, random_.randrange(256)))
        try:
            ral.Code(bytes(data), ral.symbols()).close()
        except ValueError:
            refused += 1
        except MemoryError:
            pass
    assert refused > 100


def test_a_symbol_outside_of_its_section_is_refused(object_):
    """A symbol may lie at its section's end, with nothing behind it, but not further."""
    (sections,) = struct.unpack_from("<Q", object_, 0x28)
    size, count = struct.unpack_from("<HH", object_, 0x3A)
    rows = [struct.unpack_from("<IIQQQQIIQQ", object_, sections + k * size) for k in range(count)]
    (table,) = (row for row in rows if row[1] == 2)
    at = next(
        at
        for at in range(table[4], table[4] + table[5], 24)
        if object_[at + 4] & 15 == 2 and struct.unpack_from("<H", object_, at + 6)[0]  # a function that is in it
    )
    end = rows[struct.unpack_from("<H", object_, at + 6)[0]][5]
    data = bytearray(object_)
    struct.pack_into("<Q", data, at + 8, end)
    ral.Code(bytes(data), ral.symbols()).close()
    struct.pack_into("<Q", data, at + 8, end + 1)
    with pytest.raises(ValueError, match="a symbol is outside of its section"):
        ral.Code(bytes(data), ral.symbols())


@pytest.mark.parametrize("far", [2**31 + 2**20, -(2**31) - 2**30, 2**40])
def test_a_target_that_is_too_far_away_is_refused(object_, far):
    """A target that 32 bits of distance reach lies within 2 GiB."""
    for at in relocations(object_):
        kind, symbol = struct.unpack_from("<II", object_, at + 8)
        if kind not in (1, 24):  # those of 64 bits
            data = bytearray(object_)
            struct.pack_into("<q", data, at + 16, far)
            with pytest.raises(ValueError, match="@.* is too far away"):
                ral.Code(bytes(data), ral.symbols())


@pytest.mark.parametrize("kind", [10, 11, 250])
def test_other_relocations_are_refused(object_, kind):
    data = bytearray(object_)
    for at in relocations(object_):
        struct.pack_into("<I", data, at + 8, kind)
    with pytest.raises(ValueError, match=f"relocations of type {kind}"):
        ral.Code(bytes(data), ral.symbols())
