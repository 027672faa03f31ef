"""A comparison of hlo_disc with other compilers and runtimes on the same programs: `make peers`.

runners/        the peers: a file for each environment; runner.py, reader.py: what they share.
export.py       programs as ONNX files, for the peers that read them.
worker.py       the process of one peer.
processes.py    the processes of all peers, and the environments.
harness.py      the measurement, in which peers take turns.
load.py         a check of what else runs meanwhile.
cold.py         `make cold`: in fresh processes, until the first result.
report/         results.py, first.py: the figures as JSON; page.py, tables.py, compare.py: what is made of them.
"""
