"""A comparison of hlo_disc with other compilers, on one set of programs.

program.py      the definition of a program
programs/       the programs, a file each: sizes, weights, inputs, and the function, written once for all frameworks
frameworks/     the ops that programs call, for JAX, PyTorch and TensorFlow
in_jax.py       programs as functions of JAX
cost.py         the least work of programs
sections.py     `python -m benchmarks`: next to `jax.jit`, in one process, as `hlo_disc.bench` measures
peers/          `make peers`: next to every peer, each in its own process
against.py      next to another checkout, by the processes of peers

Other files are programs of their own: startup.py, rounding.py, gpu.py, jagged.py, tensorflow.py, ecosystem/ and
instructions/. Each says what it measures.
"""

import os

os.environ["HLO_DISC_CACHE"] = ""  # what compiles is measured
