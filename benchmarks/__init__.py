"""hlo_disc next to others: `python -m benchmarks` next to `jax.jit`, `benchmarks.peers` next to every peer.

program.py      what a program is           programs/    a file each: sizes, weights, inputs, the program once for all
frameworks/     what programs are written in, for JAX, PyTorch and TensorFlow
cost.py         the least work of a program
"""

import os

os.environ["HLO_DISC_CACHE"] = ""  # what compiles is measured
