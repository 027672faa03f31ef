"""The only code that replaces or reads names inside of JAX. The table of these names is `jax_names.py`."""
