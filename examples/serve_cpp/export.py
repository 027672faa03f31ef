"""An export for the C++ program in this folder: MiniLM as a C library, sentences as tokens, and Python's vectors.

    python examples/serve_cpp/export.py DIR

After this no Python is needed: a C++ compiler and CMake build and run the rest (see CMakeLists.txt).
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from minilm import SENTENCES, embed, load_params, load_tokenizer, tokenize  # noqa: E402

import hlo_disc  # noqa: E402
from hlo_disc.cli import main as hlo_disc_command  # noqa: E402


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
def main(folder: Path) -> None:
    """Write MiniLM/ (the library), tokens.txt (a sentence a line) and expected.bin (float32) into FOLDER."""
    params = load_params()
    spec = jax.ShapeDtypeStruct((2, 9), "int32")

    def program(ids: jax.Array, mask: jax.Array) -> jax.Array:
        return embed(params, ids, mask)

    executable = hlo_disc.compile(program, spec, spec, dims={"ids": "(b, s)", "mask": "(b, s)"})
    folder.mkdir(parents=True, exist_ok=True)
    executable.save(folder / "MiniLM.disc")
    texts = SENTENCES.read_text().splitlines()[:64]
    ids, mask = tokenize(load_tokenizer(), texts)
    rows = (" ".join(map(str, row[:length])) for row, length in zip(ids, mask.sum(1), strict=True))
    (folder / "tokens.txt").write_text("".join(f"{row}\n" for row in rows))
    np.asarray(executable(ids, mask)).tofile(folder / "expected.bin")
    arguments = ["compile", str(folder / "MiniLM.disc"), "-o", str(folder / "MiniLM"), "--emit", "library"]
    hlo_disc_command(arguments)


if __name__ == "__main__":
    main()
