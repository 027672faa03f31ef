"""Triton is not among what other tests need: `make test-triton` has it."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("triton") else ["test_triton_kernels.py"]
