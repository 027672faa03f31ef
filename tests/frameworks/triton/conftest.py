"""Triton is not among what other tests need: `make test-triton` has it."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("triton") else ["*"]
