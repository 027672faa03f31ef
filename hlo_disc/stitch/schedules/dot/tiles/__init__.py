"""Dots as register tiles of one thread, with vectors: packed panels, micro-kernels, and the forms that use them."""
