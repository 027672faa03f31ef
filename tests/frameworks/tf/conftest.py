"""Tests of TensorFlow's programs, which `make test-frameworks` runs: elsewhere there is no TensorFlow."""

import os
from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("tensorflow") else ["*"]
# oneDNN's convolutions give images without any the wrong number of channels.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
