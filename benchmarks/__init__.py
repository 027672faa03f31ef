"""hlo_disc against its peers: `python -m benchmarks.run`."""

import os

os.environ["HLO_DISC_CACHE"] = ""  # what compiles is measured
