"""This checkout against another one, each in a process of its own, taking turns: what a change costs or gains.

    python -m benchmarks.against ../before        # a checkout that has been set up (make demo)

Ratios are this checkout's time over the other's, the median of pairs of turns.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

HERE = Path(__file__).parent.parent
COMPILED = ("BERT-base", "GPT-2 prefill", "GPT-2 decode")
# Calls of a turn take about so many seconds.
TURN = 0.1
LIMITS = {"compile": 1.05, "steady": 1 / 0.98, "kernels": 1 / 0.98}
CALL_LIMIT = 0.4  # µs


class Worker:
    """The process of one checkout. It answers a line with a line: [what, ...] with seconds."""

    def __init__(self, checkout: Path):
        python = checkout / ".venv" / "bin" / "python"
        if not python.exists():
            raise click.ClickException(f"{checkout} has no .venv: run `make demo` there first")
        # The modules of benchmarks are this checkout's, those of hlo_disc the ones that its environment has.
        self._process = subprocess.Popen(
            [str(python), "-m", "benchmarks.against", "--worker"],
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        shown = Path(self.ask("where"))
        if checkout.resolve() not in shown.parents:
            raise click.ClickException(f"{python} imports hlo_disc from {shown}: run `make demo` in {checkout}")

    def ask(self, *request: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise click.ClickException(f"the process of {self._process.args!r} ended")
        return json.loads(answer)


def serve() -> None:
    """The worker's side."""
    import jax.numpy as jnp

    import hlo_disc

    hlo_disc.__path__.append(
        str(HERE / "hlo_disc")
    )  # where the other state lacks hlo_disc.benchmark, it has this one's
    from benchmarks import cases, sections
    from benchmarks.measure import elapsed, first_call, per_call

    # Only answers may go where the other side reads them.
    answers, sys.stdout = sys.stdout, sys.stderr
    bench = sections.Bench(None, False, 0.0)  # type: ignore[arg-type]  # nobody asks for the machine's limits
    families = {f.name: f for f, _ in (*cases.model_shapes(False), *cases.kernel_families())}
    calls: dict[str, Callable[[], Any]] = {}
    sections.warm_up()
    x, add = jnp.ones(8, jnp.float32), hlo_disc.jit(lambda x: x + 1, dims={"x": "(n)"})
    add(x)

    def compile_(name: str) -> float:
        family, args = families[name], bench.arguments(families[name], 1, 17)
        f = family.fn
        untraced = types.FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__)
        return first_call(lambda: hlo_disc.jit(untraced, dims=family.dims).lower(*args).compile())

    def prepare(name: str, sizes: Any) -> None:
        family = families[name]
        args = bench.arguments(family, **sizes) if isinstance(sizes, dict) else bench.arguments(family, *sizes)
        fn = sections.compiled(family)
        calls["now"] = lambda: fn(*args)
        elapsed(calls["now"])

    def turn() -> float:
        count = max(1, round(TURN / min(elapsed(calls["now"]) for _ in range(2))))
        return statistics.median(elapsed(calls["now"]) for _ in range(count))

    def add_one() -> float:
        return per_call(lambda: add(x), 20000, 1)

    does = {"compile": compile_, "prepare": prepare, "turn": turn, "call": add_one}
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        answer = hlo_disc.__file__ if what == "where" else does[what](*arguments)
        print(json.dumps(answer), file=answers, flush=True)


def pairs(ours: Worker, theirs: Worker, count: int, *request: Any) -> tuple[list[float], list[float]]:
    """The answers of both to the same request, one after the other, the first to ask alternating."""
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(count):
        order = (0, 1) if number % 2 else (1, 0)
        for side in order:
            found[side].append((ours, theirs)[side].ask(*request))
    return found


def measure(ours: Worker, theirs: Worker, count: int, only: tuple[str, ...]) -> Iterator[tuple[str, str, Any, Any]]:
    from benchmarks import cases

    if "compile" in only:
        for name in COMPILED:
            pairs(ours, theirs, 1, "compile", name)
            yield "compile", name, *pairs(ours, theirs, count, "compile", name)
    shapes = [(f.name, s) for f, all_ in cases.model_shapes(False)[:3] for s in all_] if "steady" in only else []
    kernels = [(f.name, s) for f, all_ in cases.kernel_families() for s in all_] if "kernels" in only else []
    for what, chosen in (("steady", shapes), ("kernels", kernels)):
        for name, sizes in chosen:
            pairs(ours, theirs, 1, "prepare", name, sizes)
            shown = tuple(sizes.values()) if isinstance(sizes, dict) else sizes
            yield what, f"{name} {shown}", *pairs(ours, theirs, count, "turn")
    if "call" in only:
        pairs(ours, theirs, 1, "call")
        yield "call", "x + 1", *pairs(ours, theirs, count, "call")


@click.command()
@click.argument("checkout", type=click.Path(exists=True, file_okay=False, path_type=Path), required=False)
@click.option("--pairs", "count", default=15, show_default=True, help="Turns of each side.")
@click.option("--only", multiple=True, type=click.Choice([*LIMITS, "call"]), help="Measure these only.")
@click.option("--worker", is_flag=True, hidden=True)
def main(checkout: Path | None, count: int, only: tuple[str, ...], worker: bool) -> None:
    """Compare this checkout's times with those of CHECKOUT."""
    if worker:
        return serve()
    if checkout is None:
        raise click.UsageError("which checkout shall this one be compared with?")
    ours, theirs = Worker(HERE), Worker(checkout)
    start = time.perf_counter()
    ratios: dict[str, list[float]] = {}
    for what, name, mine, other in measure(ours, theirs, count, only or (*LIMITS, "call")):
        ratio = statistics.median(a / b for a, b in zip(mine, other, strict=True))
        ratios.setdefault(what, []).append(ratio)
        a, b = statistics.median(mine), statistics.median(other)
        print(f"{what:8} {name:34} {1e3 * a:10.4f} ms {1e3 * b:10.4f} ms  {ratio:.3f}", flush=True)
        if what == "call":
            more = 1e6 * statistics.median(a - b for a, b in zip(mine, other, strict=True))
            print(f"call     {more:+.2f} µs, must be at most +{CALL_LIMIT}")
    for what, limit in LIMITS.items():
        if what in ratios:
            found = ratios[what]
            print(
                f"{what}: geometric mean {statistics.geometric_mean(found):.3f}, worst {max(found):.3f}; <= {limit:.3f}"
            )
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.against")
