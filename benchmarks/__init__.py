"""hlo_disc against its peers: `python -m benchmarks.run`."""
