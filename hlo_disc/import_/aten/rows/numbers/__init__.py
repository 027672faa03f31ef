"""Rows of ops on single elements: arithmetic, functions, complex numbers, random numbers."""
