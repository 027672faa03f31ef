"""Tests in a browser, which `make test-page` runs: elsewhere there is nothing to drive one."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("playwright") else ["*"]
