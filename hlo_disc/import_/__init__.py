"""Importers to DHLO graphs: StableHLO text, bytecode and artifacts, and functions of JAX, PyTorch and TensorFlow."""
