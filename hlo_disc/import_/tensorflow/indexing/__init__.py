"""Slices, gathers, scatters, and different elements."""
