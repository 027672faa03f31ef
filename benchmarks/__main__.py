"""`python -m benchmarks`."""

from benchmarks.run import main

main(prog_name="python -m benchmarks")
