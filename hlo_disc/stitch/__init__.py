"""Stitch: fusion, schedules and the host flow. From a DHLO graph and a `Device` to MLIR."""
