"""Tests of PyTorch's programs, which `make test-frameworks` runs: elsewhere there is no PyTorch."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["*"]
