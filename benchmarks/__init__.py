"""hlo_disc next to others, on one set of programs.

program.py      what a program is           programs/    a file each: sizes, weights, inputs, the program once for all
frameworks/     what programs are written in, for JAX, PyTorch and TensorFlow
in_jax.py       programs as functions of JAX             cost.py    their least work
sections.py     `python -m benchmarks`: next to `jax.jit`, in one process, as `hlo_disc.bench` measures
peers/          `make peers`: next to every peer, each in a process of its own
against.py      next to another checkout, by the processes of peers

Beside these, files that have programs of their own: startup.py, rounding.py, gpu.py, jagged.py, tensorflow.py,
ecosystem/ and instructions/. Each says what it measures.
"""

import os

os.environ["HLO_DISC_CACHE"] = ""  # what compiles is measured
