"""A script that writes docs/tensorflow_ops.md from TensorFlow's registry and the import handlers.

Run as `.venv-tensorflow/bin/python tools/tensorflow_ops.py`; a test checks that the file is current.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

import tensorflow as tf
from tensorflow.python.framework import kernels

from hlo_disc.import_.tensorflow import table
from hlo_disc.import_.tensorflow.refused import REASONS
from hlo_disc.tensorflow import effects

TARGET = Path(__file__).parent.parent / "docs" / "tensorflow_ops.md"


def registered() -> set[str]:
    """Return the ops for which TensorFlow's XLA has a kernel on a CPU. It registers them at its first compilation."""
    tf.function(tf.identity, jit_compile=True)(0.0)
    return {k.op for k in kernels.get_all_registered_kernels().kernel if k.device_type == "XLA_CPU_JIT"}


def handled() -> dict[str, Iterable[str]]:
    """Return the ops by how the importer treats them."""
    families = {f.__doc__.split("\n")[0].rstrip("."): f.HANDLERS for f in table.FAMILIES}
    return {**families, "Handed on": effects.HANDED_ON, "Left out": effects.LEFT_OUT}


def unexplained() -> set[str]:
    """Return the registered ops that are neither handled nor have a reason why not."""
    return registered() - REASONS.keys() - {name for names in handled().values() for name in names}


def stale() -> set[str]:
    """Return the ops that have a reason, but are handled, or that TensorFlow does not know."""
    known = {name for names in handled().values() for name in names}
    return {name for name in REASONS if name in known or name not in registered()}


def _listed(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in sorted(names))


def document() -> str:
    """Return the text of docs/tensorflow_ops.md."""
    xla, groups = registered(), handled()
    count = len(xla & {name for names in groups.values() for name in names})
    rows = []
    for what, names in sorted(groups.items()):
        rows.append(f"| {what} | {_listed(xla.intersection(names))} | {_listed(set(names) - xla)} |")
    reasons: dict[str, list[str]] = {}
    for name in sorted(xla & REASONS.keys()):
        reasons.setdefault(REASONS[name], []).append(name)
    lines = [f"| {reason} | {_listed(names)} |" for reason, names in sorted(reasons.items())]
    intro = textwrap.fill(
        f"Made by `tools/tensorflow_ops.py` from TensorFlow's registry and the handlers in "
        f"`hlo_disc/import_/tensorflow`; a test checks that it is current. XLA registers {len(xla)} types of ops for "
        f"a CPU in TensorFlow {tf.__version__}, of which {count} are handled. An attribute or an element type of one "
        f"that is not supported is an error that names the op and the line, when a function is compiled.",
        120,
    )
    return "\n".join(
        [
            "# Ops of TensorFlow's",
            "",
            intro,
            "",
            "## Handled",
            "",
            "| what | of those that XLA registers | others |",
            "| --- | --- | --- |",
            *rows,
            "",
            "## Refused",
            "",
            "| why | of those that XLA registers |",
            "| --- | --- |",
            *lines,
            "",
        ]
    )


if __name__ == "__main__":
    TARGET.write_text(document())
