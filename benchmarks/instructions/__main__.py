"""`make instructions`: instructions for each element in innermost loops, for aligned rows of some thousand columns."""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import triton
from rich.console import Console
from rich.table import Table

import hlo_disc
from benchmarks.frameworks import jax as ops
from benchmarks.instructions import by_triton, sass

LEVELS = ("sm_80", "sm_90")


@dataclass(frozen=True)
class Row:
    """A kernel of ours and Triton's counterpart.

    kernel: the end of the name of our kernel for 4 096 columns. loops: the number of its loops over whole vectors,
    which run one after the other. block, warps: Triton's block size and number of warps.
    """

    function: Callable
    specs: tuple[str, ...]
    kernel: str
    loops: int
    triton: triton.JITFunction
    block: int
    warps: int


ROWS = {
    "softmax": Row(jax.nn.softmax, ("f32[m, n]",), "reduce_256_aligned", 3, by_triton.softmax, 4096, 8),
    "layer norm": Row(
        lambda x, scale, bias: ops.layer_norm({"scale": scale, "bias": bias}, x, 1e-5),
        *(("f32[m, n]", "f32[n]", "f32[n]"), "reduce_256_aligned", 3, by_triton.layer_norm, 4096, 8),
    ),
    "GELU": Row(jax.nn.gelu, ("f32[m, n]",), "map_256_aligned", 1, by_triton.gelu, 1024, 4),
    "column sum": Row(lambda x: x.sum(0), ("f32[m, n]",), "reduce_8_across_aligned", 1, by_triton.column_sum, 32, 8),
}


def ours(row: Row, level: str) -> float:
    with tempfile.TemporaryDirectory() as directory:
        hlo_disc.compile(row.function, *row.specs, target=f"cuda:{level}", dump=directory)
        (ptx,) = Path(directory).rglob(f"*{level}.s")
        codes = sass.kernels(sass.assembled(ptx.read_text(), level))
    (code,) = (code for name, code in codes.items() if re.fullmatch(rf"k\d+_{row.kernel}", name))
    return code.each(row.loops)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--level", choices=LEVELS, default=LEVELS[0])
    level = parser.parse_args().level
    table = Table("instructions an element", "hlo_disc", "Triton", "as exact", "ours ÷ as exact", title=level)
    for name, row in ROWS.items():
        mine = ours(row, level)
        usual, exact = (by_triton.each(row.triton, level, exact, row.block, row.warps) for exact in (False, True))
        table.add_row(name, *(f"{n:.1f}" for n in (mine, usual, exact)), f"{mine / exact:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
