"""The examples with TensorFlow: one program for all shapes, with the results of TensorFlow and of the JAX model."""

from __future__ import annotations

import re
from pathlib import Path

import child

EXAMPLES = Path(__file__).parents[3] / "examples"
NUMBER = r"(\d\.\de[-+]\d+)"


def lines(name: str) -> list[str]:
    """Return the lines that an example prints."""
    return child.python(EXAMPLES / name).splitlines()


def test_sentence_embeddings() -> None:
    *batches, programs = lines("sentence_embedding_tensorflow.py")
    assert len(batches) == 5 and programs == "1 program"
    for line in batches:
        (apart,) = re.findall(rf"apart from the JAX model {NUMBER}, from eager mode {NUMBER}$", line)
        assert max(map(float, apart)) <= 1e-6, line


def test_images_in_keras() -> None:
    first, *shapes = lines("keras_images.py")
    assert first.endswith(" s for images: float32[n, h, w, 3]") and len(shapes) == 5
    for line in shapes:
        apart, loaded = re.findall(rf"apart {NUMBER}, loaded {NUMBER}$", line)[0]
        assert float(apart) <= 1e-6 and float(loaded) == 0, line
