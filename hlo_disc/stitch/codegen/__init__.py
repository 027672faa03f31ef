"""Kernels and host code under construction: values, indices, elements, and the lazy body of a group."""
