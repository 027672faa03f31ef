"""The tables of a C library: their source has every field of the records that `model.h` declares, by its name."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np

from hlo_disc import ral
from hlo_disc.abi import EnvLayout
from hlo_disc.compiled.program import (
    Alias,
    Attribute,
    BufferType,
    GuardRow,
    InputRow,
    LibraryCall,
    OutputRow,
    PackRow,
    Program,
)
from hlo_disc.library.tables import Source

HEADERS = ("c_api/model.h", "core/program/env.h")

CALL = LibraryCall(
    "hlo_disc.fft",
    "line 1",
    (Attribute("kinds", "array", "int64", "0000000000000000"),),
    (BufferType("float32", 1),),
    (BufferType("complex64", 1),),
    (Alias(0, 0),),
)
# One row of each kind.
PROGRAM = Program(
    object=struct.pack("<18xH", 62),
    target="cuda",
    features=("avx2",),
    inputs=(InputRow("x", "float32", ("n",)),),
    outputs=(OutputRow("float32", ("n",)),),
    symbols=("n",),
    guards=(GuardRow("n", "<=", "5", "too long", ("n",)),),
    asked=(),
    constants=(np.ones(3, np.float32),),
    packs=(PackRow("input", 0, 4, "pack0"),),
    calls=(CALL,),
    env=EnvLayout.of(symbols=1, sizes=1, message=1),
)


def declared() -> set[tuple[str, ...]]:
    """Return the fields of each record, in order."""
    text = "".join((Path(ral.__file__).parent / header).read_text() for header in HEADERS)
    bodies = re.findall(r"(?<!typename T>)\nstruct \w+ {\n(.*?)^};", re.sub(" *//.*", "", text), re.S | re.M)
    return {tuple(re.findall(r"(\w+)(?:\)\(\))?[,;]", body)) for body in bodies}


def test_every_field_of_every_record_is_written():
    source = Source("library")
    source.add(PROGRAM, "v3", b"")
    text, written = source.text(beside=False), set()
    while record := re.search("{[^{}]*}", text):
        written.add(tuple(re.findall(r"\.(\w+) = ", record[0])))
        text = text.replace(record[0], "")
    assert written - {()} == declared()
    assert len(declared()) == 12
