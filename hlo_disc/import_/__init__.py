"""Everything that a user has becomes one DHLO graph: StableHLO text, bytecode and artifacts, JAX functions."""
