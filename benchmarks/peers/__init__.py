"""hlo_disc beside other compilers and runtimes on the same programs: `make peers`.

program.py     what a program is            programs/     a file each: shapes, weights, and the program once for all
frameworks/    what programs are written in, for JAX, PyTorch and TensorFlow
runners/       who runs them: a file an environment, with the peers that it has
worker.py      the process of one peer      harness.py    the processes' turns
results.py     the figures as JSON          page.py, tables.py, compare.py    what is made of them
"""
