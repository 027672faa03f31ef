"""Long lists of models, which `make test-models` runs: elsewhere their libraries are not there."""

from importlib.util import find_spec

if find_spec("torchvision"):
    import torchvision_ops

    torchvision_ops.declare()
    collect_ignore_glob = []
else:
    collect_ignore_glob = ["*"]
