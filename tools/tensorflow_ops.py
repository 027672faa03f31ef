"""Writes docs/tensorflow_ops.md from TensorFlow's registry and the import handlers.

Run as `.venv-tensorflow/bin/python tools/tensorflow_ops.py`; a test checks that the file is what this makes.
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
    """The ops that TensorFlow's XLA has a kernel for on a CPU, which it registers when it first compiles."""
    tf.function(tf.identity, jit_compile=True)(0.0)
    return {k.op for k in kernels.get_all_registered_kernels().kernel if k.device_type == "XLA_CPU_JIT"}


def handled() -> dict[str, Iterable[str]]:
    """Ops by what becomes of them."""
    families = {f.__doc__.split("\n")[0].rstrip("."): f.HANDLERS for f in table.FAMILIES}
    return {**families, "Handed on": effects.HANDED_ON, "Left out": effects.LEFT_OUT}


def unexplained() -> set[str]:
    """Ops that are registered, and of which nothing is said."""
    return registered() - REASONS.keys() - {name for names in handled().values() for name in names}


def stale() -> set[str]:
    """Reasons for ops that are handled, or that TensorFlow does not know."""
    known = {name for names in handled().values() for name in names}
    return {name for name in REASONS if name in known or name not in registered()}


def _listed(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in sorted(names))


def document() -> str:
    """The text of docs/tensorflow_ops.md."""
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
