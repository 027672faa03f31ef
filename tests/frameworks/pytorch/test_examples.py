"""The example with PyTorch: one program for all batches, with the vectors of PyTorch and of the JAX model."""

from __future__ import annotations

import re
from pathlib import Path

import child

EXAMPLE = Path(__file__).parents[3] / "examples" / "sentence_embedding_torch.py"


def test_sentence_embeddings() -> None:
    *batches, programs = child.python(EXAMPLE).splitlines()
    assert len(batches) == 5 and programs.startswith("graph 1, inference: 1 program, 0 ops left")
    for line in batches:
        (apart,) = re.findall(r"apart from the JAX model (\S+), from eager mode (\S+)$", line)
        assert max(map(float, apart)) <= 1e-6, line
