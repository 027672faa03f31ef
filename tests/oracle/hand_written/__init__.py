"""Kernels that are written by hand, and run without the native runtime."""
