"""Tests of TensorFlow's programs, which `make test-frameworks` runs: elsewhere there is no TensorFlow."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("tensorflow") else ["*"]
