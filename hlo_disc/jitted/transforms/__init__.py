"""Calls with arrays that JAX traces: for its transformations, in `jax.jit`, on each device of a mesh."""

from hlo_disc.jitted.transforms.collectives import call

__all__ = ["call"]
