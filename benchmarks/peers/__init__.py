"""hlo_disc beside other compilers and runtimes on the same programs: `make peers`.

runners/        who runs them: a file an environment, with its peers; runner.py, reader.py    what they share
export.py       programs as ONNX files, for those who read them
worker.py       the process of one peer     processes.py    such processes, and the environments
harness.py      their turns                 load.py    what else runs meanwhile
cold.py         `make cold`: in fresh processes, until the first result
report/         results.py, first.py: the figures as JSON; page.py, tables.py, compare.py: what is made of them
"""
