"""The generator that compiles for AArch64."""

from __future__ import annotations

import functools
from typing import ClassVar

from hlo_disc.device import Device
from hlo_disc.frozen import frozen
from hlo_disc.targets.cpu.native_generator import NativeGenerator
from hlo_disc.targets.machine import Machine


@frozen
class Aarch64Generator(NativeGenerator):
    """Implements `hlo_disc.targets.target.Generator`."""

    triple: ClassVar[str] = "aarch64-unknown-linux-gnu"

    @property
    def device(self) -> Device:
        """The schedules' record of the machine. Its tile of 24 sums leaves 4 registers for columns, and 4 for rows."""
        return Device(simd_bytes=16, registers=32, tile_rows=6, tile_vectors=4)

    @functools.cached_property
    def machine(self) -> Machine:
        """The translator's record of the machine."""
        return Machine(
            triple=self.triple, layout=self.layout, attributes=f'nounwind "tune-cpu"="{self.tune}"', minimum=True,
            passes_nan_on=True,
        )  # fmt: skip
