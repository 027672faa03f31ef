"""Sentence embeddings at natural lengths with all-MiniLM-L6-v2: hlo_disc compiles once, `jax.jit` once a shape.

Texts run in batches of changing size, so that almost every batch has its own shape (batch, length). The program prints
the cost of each way to run the model, the largest difference of the results, and the nearest neighbours of three
sentences.
"""

from __future__ import annotations

import functools
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
import jax
import numpy as np
from minilm import SENTENCES, ModelMissingError, embed, load_params, load_tokenizer, tokenize
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import hlo_disc

DIMS = {"ids": "(b, s)", "mask": "(b, s)"}
QUERIES = ("A man is playing the guitar", "The car will not start", "Rain is expected tonight")

Batch = tuple[np.ndarray, np.ndarray]


@dataclass
class Run:
    """The figures of one way to run the model. Times are seconds; `latency` is that of a call without compilation."""

    name: str
    call: Callable[[int], np.ndarray]
    rows: dict[int, np.ndarray] = field(default_factory=dict)
    latency: dict[int, float] = field(default_factory=dict)
    compilations: int = 0
    compile_time: float = 0.0
    total: float = 0.0


def batches(texts: list[str], largest: int, seed: int) -> Iterator[list[str]]:
    """Yield shuffled texts in batches of 1 to `largest`."""
    order = random.Random(seed)
    texts = order.sample(texts, len(texts))
    while texts:
        size = order.randint(1, largest)
        yield texts[:size]
        texts = texts[size:]


def with_hlo_disc(name: str, params, work: list[Batch], **options) -> Run:
    """Return a run that calls one `hlo_disc.jit` for all batches."""
    compiled = hlo_disc.jit(embed, **options)

    def call(i: int) -> np.ndarray:
        result = np.asarray(compiled(params, *work[i]))
        stats = compiled.stats()
        run.compilations, run.compile_time = stats.compilations, stats.compile_seconds
        return result

    run = Run(name, call)
    return run


def with_jax(name: str, params, work: list[Batch]) -> Run:
    """Return a run by `jax.jit`, compiled ahead of a shape's first call, so that compilation is timed separately."""
    executables: dict[tuple[int, ...], Callable] = {}

    def call(i: int) -> np.ndarray:
        ids, mask = work[i]
        if ids.shape not in executables:
            start = time.perf_counter()
            executables[ids.shape] = jax.jit(embed).lower(params, ids, mask).compile()
            run.compilations += 1
            run.compile_time += time.perf_counter() - start
        return np.asarray(executables[ids.shape](params, ids, mask))

    run = Run(name, call)
    return run


def first_pass(run: Run, batches: list[int], step: Callable[[], None]) -> None:
    """Run all batches and compile as needed: `run.total` is the time that a user waits."""
    for i in batches:
        start = time.perf_counter()
        run.rows[i] = run.call(i)
        run.total += time.perf_counter() - start
        step()


def second_pass(runs: list[Run], batches: list[int], step: Callable[[], None]) -> None:
    """Run the same batches again, each by all runs in turn, to time calls that compile nothing."""
    for i in batches:
        for run in runs:
            start = time.perf_counter()
            run.call(i)
            run.latency[i] = time.perf_counter() - start
        step()


def summary(runs: list[Run], work: list[Batch]) -> Table:
    """Return a table with a column for each run."""
    shapes = [ids.shape for ids, _ in work]
    table = Table(title=f"{len(set(shapes))} distinct (batch, length) shapes in {len(work)} batches")
    table.add_column("")
    for run in runs:
        table.add_column(run.name, justify="right")

    def row(label: str, cell: Callable[[Run], str]) -> None:
        table.add_row(label, *(cell(run) for run in runs))

    row("distinct shapes run", lambda run: str(len({shapes[i] for i in run.rows})))
    row("compilations", lambda run: str(run.compilations))
    row("compile time", lambda run: f"{run.compile_time:.2f} s")
    row("total time", lambda run: f"{run.total:.2f} s")
    row("mean latency", lambda run: f"{1e3 * np.mean(list(run.latency.values())):.1f} ms")
    table.caption = f"mean latency: {len(runs[0].latency)} batches once more, in turns, nothing left to compile"
    return table


def neighbours(texts: list[str], vectors: np.ndarray) -> Table:
    """Return a table of the three nearest texts of each query, by cosine."""
    table = Table(title="nearest neighbours (cosine)", show_lines=True)
    table.add_column("sentence", ratio=2)
    table.add_column("nearest", ratio=3)
    for query in QUERIES:
        i = next(i for i, text in enumerate(texts) if text.startswith(query))
        scores = vectors @ vectors[i]
        scores[i] = -np.inf
        best = np.argsort(-scores)[:3]
        table.add_row(texts[i], "\n".join(f"{scores[j]:.2f}  {shorten(texts[j])}" for j in best))
    return table


def shorten(text: str, width: int = 90) -> str:
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def largest_difference(run: Run, reference: Run) -> float:
    return max(float(np.abs(run.rows[i] - reference.rows[i]).max()) for i in reference.rows)


@click.command()
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=SENTENCES,
    show_default="sentences.txt",
)
@click.option("--largest", default=8, show_default=True, type=click.IntRange(1), help="Largest batch.")
@click.option("--sample", default=0, show_default=True, help="Run only so many batches with jax.jit; 0 runs all.")
@click.option("--seed", default=1, show_default=True, help="Order of the sentences and sizes of the batches.")
def main(file: Path, largest: int, sample: int, seed: int) -> None:
    """Embed the sentences in FILE (one a line) and compare hlo_disc with jax.jit."""
    console = Console()
    try:
        params, tokenizer = load_params(), load_tokenizer()
    except ModelMissingError as error:
        console.print(f"[red]{error}", highlight=False)
        sys.exit(1)
    groups = list(batches([line for line in file.read_text().splitlines() if line.strip()], largest, seed))
    work = [tokenize(tokenizer, group) for group in groups]
    chosen = sorted(random.Random(seed).sample(range(len(work)), min(sample or len(work), len(work))))
    share = "" if len(chosen) == len(work) else f", {len(chosen)} of {len(work)} batches"
    given = with_hlo_disc("hlo_disc, dims given", params, work, dims=DIMS, constraints=["s <= 512"])
    found = with_hlo_disc("hlo_disc, dims found", params, work)
    static = with_jax(f"jax.jit{share}", params, work)
    runs = [given, found, static]

    bar = (TextColumn("{task.description:<36}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*bar, console=console) as progress:
        for run in runs:
            part = chosen if run is static else list(range(len(work)))
            task = progress.add_task(run.name, total=len(part))
            first_pass(run, part, functools.partial(progress.advance, task))
        task = progress.add_task("once more, in turns", total=len(chosen))
        second_pass(runs, chosen, functools.partial(progress.advance, task))

    console.print(summary(runs, work))
    console.print(
        f"largest difference from jax.jit: {largest_difference(given, static):.1e} (dims given), "
        f"{largest_difference(found, static):.1e} (dims found)"
    )
    texts = [text for group in groups for text in group]
    console.print(neighbours(texts, np.concatenate([given.rows[i] for i in range(len(work))])))


if __name__ == "__main__":
    main()
