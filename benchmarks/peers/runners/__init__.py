"""The peers: a module for each environment `.venv-NAME`, with its RUNNERS; that of `jax` is `.venv`."""
