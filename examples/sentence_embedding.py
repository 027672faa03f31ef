"""Embeds sentences at their natural lengths with all-MiniLM-L6-v2: hlo_disc compiles once, `jax.jit` once a shape.

Texts go through in batches of changing size, so that almost every batch has a (batch, length) shape of its own. Prints
what each way cost, how far the results are apart, and the nearest neighbours of three sentences.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
import jax
import numpy as np
from minilm import ModelMissingError, embed, load_params, load_tokenizer, tokenize
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import hlo_disc

SENTENCES = Path(__file__).with_name("sentences.txt")
DIMS = {"ids": "(b, s)", "mask": "(b, s)"}
QUERIES = ("A man is playing the guitar", "The car will not start", "Rain is expected tonight")

Batch = tuple[np.ndarray, np.ndarray]


@dataclass
class Run:
    """What one way of running the model did. Times in seconds; `latency` holds the calls that compiled nothing."""

    name: str
    rows: dict[int, np.ndarray] = field(default_factory=dict)
    latency: dict[int, float] = field(default_factory=dict)
    compilations: int = 0
    compile_time: float = 0.0
    total: float = 0.0


def batches(texts: list[str], largest: int, seed: int) -> Iterator[list[str]]:
    """Shuffled texts in batches of 1 to `largest`."""
    order = random.Random(seed)
    texts = order.sample(texts, len(texts))
    while texts:
        size = order.randint(1, largest)
        yield texts[:size]
        texts = texts[size:]


def run_hlo_disc(run: Run, params, work: list[Batch], step: Callable[[], None], **options) -> None:
    """All batches through one `hlo_disc.jit`."""
    compiled = hlo_disc.jit(embed, **options)
    for i, (ids, mask) in enumerate(work):
        before = run.compilations
        start = time.perf_counter()
        run.rows[i] = np.asarray(compiled(params, ids, mask))
        elapsed = time.perf_counter() - start
        run.total += elapsed
        stats = compiled.stats()
        run.compilations, run.compile_time = stats.compilations, stats.compile_seconds
        if run.compilations == before:
            run.latency[i] = elapsed
        step()


def run_jax(run: Run, params, work: list[Batch], chosen: list[int], step: Callable[[], None]) -> None:
    """The chosen batches through `jax.jit`, compiled ahead of each call so that compile and run are timed apart."""
    executables: dict[tuple[int, ...], Callable] = {}
    for i in chosen:
        ids, mask = work[i]
        if ids.shape not in executables:
            start = time.perf_counter()
            executables[ids.shape] = jax.jit(embed).lower(params, ids, mask).compile()
            elapsed = time.perf_counter() - start
            run.compilations += 1
            run.compile_time += elapsed
            run.total += elapsed
        start = time.perf_counter()
        run.rows[i] = np.asarray(executables[ids.shape](params, ids, mask))
        run.latency[i] = time.perf_counter() - start
        run.total += run.latency[i]
        step()


def summary(runs: list[Run], work: list[Batch]) -> Table:
    """One column a run. Mean latency is over the batches that every run timed without compiling."""
    shapes = [ids.shape for ids, _ in work]
    common = set.intersection(*(set(run.latency) for run in runs))
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
    row("mean latency", lambda run: f"{1e3 * np.mean([run.latency[i] for i in common]):.1f} ms" if common else "-")
    table.caption = f"mean latency is over the {len(common)} batches that nothing was compiled for in any column"
    return table


def neighbours(texts: list[str], vectors: np.ndarray) -> Table:
    """The three nearest texts of each query, by cosine."""
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
    given, found, static = Run("hlo_disc, dims given"), Run("hlo_disc, dims found"), Run(f"jax.jit{share}")

    bar = (TextColumn("{task.description:<36}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*bar, console=console) as progress:

        def step_of(run: Run, count: int) -> Callable[[], None]:
            task = progress.add_task(run.name, total=count)
            return lambda: progress.advance(task)

        run_hlo_disc(given, params, work, step_of(given, len(work)), dims=DIMS, constraints=["s <= 512"])
        run_hlo_disc(found, params, work, step_of(found, len(work)))
        run_jax(static, params, work, chosen, step_of(static, len(chosen)))

    console.print(summary([given, found, static], work))
    console.print(
        f"largest difference from jax.jit: {largest_difference(given, static):.1e} (dims given), "
        f"{largest_difference(found, static):.1e} (dims found)"
    )
    texts = [text for group in groups for text in group]
    console.print(neighbours(texts, np.concatenate([given.rows[i] for i in range(len(work))])))


if __name__ == "__main__":
    main()
