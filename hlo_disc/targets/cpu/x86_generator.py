"""The generator that compiles for x86-64."""

from __future__ import annotations

import functools
from typing import ClassVar

from hlo_disc.device import Device
from hlo_disc.frozen import frozen
from hlo_disc.targets.cpu import x86_bf16, x86_tiles
from hlo_disc.targets.cpu.native_generator import NativeGenerator
from hlo_disc.targets.cpu.x86_masks import hidden
from hlo_disc.targets.cpu.x86_scale import scale
from hlo_disc.targets.machine import Machine

TRIPLE = "x86_64-unknown-linux-gnu"
# The register tiles (rows, vectors) that reach the most FLOPs with so many vector registers.
_TILES = {32: (6, 4), 16: (4, 3)}
# Bytes ahead, by those of a register: where that is a line of the cache BERT's products are 5 % faster so, with few
# rows and with many; with AVX2, where a line would be asked for twice, they are 5 % slower.
_PREFETCH = {64: 2048, 32: 0}


@frozen
class X86Generator(NativeGenerator):
    """Implements `hlo_disc.targets.target.Generator`.

    simd_bytes, registers: the vector registers. tiles: whether there are registers of small matrices.
    """

    triple: ClassVar[str] = TRIPLE
    simd_bytes: int
    registers: int
    tiles: bool

    @property
    def device(self) -> Device:
        """The schedules' record of the machine."""
        rows, vectors = _TILES[self.registers]
        return Device(
            self.simd_bytes, self.registers, tile_rows=rows, tile_vectors=vectors,
            pair_dot=self._has_pair_dot, tile_dot=self._has_tiles, prefetch=_PREFETCH[self.simd_bytes],
        )  # fmt: skip

    @functools.cached_property
    def machine(self) -> Machine:
        """The translator's record of the machine."""
        return Machine(
            triple=TRIPLE,
            layout=self.layout,
            attributes=f'nounwind "tune-cpu"="{self.tune}" "prefer-vector-width"="{self.simd_bytes * 8}"',
            pair_dot="llvm.x86.avx512bf16.dpbf16ps.512" if self._has_pair_dot else "",
            tile=x86_tiles.tile if self._has_tiles else None,
            scale=scale if self._has_masks else None,
            passes_nan_on=True,
            to_bf16=x86_bf16.narrow if self._has_pair_dot else None,
            metadata=x86_bf16.METADATA,
            mask=None if self._has_masks else hidden,
        )

    @property
    def _has_masks(self) -> bool:
        """Whether the machine has AVX-512, with mask registers, whatever the length of its vectors."""
        return "avx512vl" in self.features

    @property
    def _has_pair_dot(self) -> bool:
        return "avx512bf16" in self.features and self.simd_bytes == 64

    @property
    def _has_tiles(self) -> bool:
        return self._has_pair_dot and self.tiles
