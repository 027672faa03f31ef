"""Slices, gathers, scatters, and unique elements."""
