"""The tests of Keras, which `make test-models` runs: elsewhere there is no Keras."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("tensorflow") else ["*"]
