"""`make ecosystem`: programs of the libraries that people use with JAX, through `hlo_disc.jit` next to `jax.jit`."""
