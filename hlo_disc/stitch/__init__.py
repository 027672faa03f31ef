"""Stitch: fusion, schedules and the host flow. From a DHLO graph and a `Device` to MLIR."""

from hlo_disc.device import Device
from hlo_disc.stitch.lower import Lowered, lower

__all__ = ["Device", "Lowered", "lower"]
