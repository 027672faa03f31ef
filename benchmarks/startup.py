"""`make bench-startup`: the time of a process until the first result of a compiled program, and its memory.

It runs saved programs of MiniLM and BERT-base with their weights, MiniLM as a C library, and a jitted BERT-base. The
jitted program takes its weights as arguments and is in the cache: its first process compiles, and does not count.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
ROUNDS = 9

NUMPY = "import numpy"
# argv: a saved program with inputs ids and mask (b, s).
LOADED = """
import json, sys, time
import numpy as np
import hlo_disc
start = time.perf_counter()
run = hlo_disc.load(sys.argv[1])
load = time.perf_counter() - start
ids = np.ones((2, 9), np.int32)
run(ids, ids)
if len(sys.argv) > 2:
    for _ in range(4):
        run(ids, ids)
    rows = dict(line.split(":") for line in open("/proc/self/status") if line.startswith(("Rss", "VmRSS")))
    print(json.dumps({"load": load, **{name: int(text.split()[0]) * 1024 for name, text in rows.items()}}))
"""
# argv: the cache.
JITTED = """
import json, sys, time
import jax
import hlo_disc
from benchmarks import in_jax
from benchmarks.program import named
from hlo_disc import executable
from hlo_disc.import_ import jax as importing

taken = {}

def timed(holder, name):
    function = getattr(holder, name)
    def call(*args, **settings):
        start = time.perf_counter()
        try:
            return function(*args, **settings)
        finally:
            taken[name] = taken.get(name, 0.0) + time.perf_counter() - start
    setattr(holder, name, call)

timed(importing, "read_module")
timed(executable.Executable, "__init__")
bert = named("BERT-base")
weights, inputs = in_jax.weights(bert), in_jax.inputs(bert, bert.sizes(2, 9))
f = hlo_disc.jit(in_jax.function(bert), cache=sys.argv[1])
jax.block_until_ready(f(weights, inputs))
stages = f.stats().records[0].stages_ms
print(json.dumps({"compiled": "codegen" in stages, "ready": sum(taken.values()) + stages["cache"] / 1e3}))
"""

# argv: what jits BERT-base, whose weights are arguments: "jax", or bytes of packed weights. Prints bytes, and seconds.
RESIDENT = """
import json, statistics, sys, time
import jax
import hlo_disc
from benchmarks import in_jax
from benchmarks.program import named

bert = named("BERT-base")
weights, inputs = in_jax.weights(bert), in_jax.inputs(bert, bert.sizes(4, 128))
if sys.argv[1] == "jax":
    f = jax.jit(in_jax.function(bert))
else:
    f = hlo_disc.jit(in_jax.function(bert), packed_bytes=int(sys.argv[1]), cache="")
times = []
for _ in range(12):
    start = time.perf_counter()
    jax.block_until_ready(f(weights, inputs))
    times.append(time.perf_counter() - start)
size = sum(x.nbytes for x in jax.tree.leaves(weights))
status = dict(line.split(":") for line in open("/proc/self/status") if line.startswith("VmRSS"))
print(json.dumps([int(status["VmRSS"].split()[0]) * 1024, statistics.median(times[4:]), size]))
"""


def child(code: str, *arguments: str) -> tuple[float, Any]:
    """Return the seconds of a process, and the JSON that it prints."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code, *arguments]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    seconds = time.perf_counter() - start
    return seconds, json.loads(done.stdout) if done.stdout else None


def save(folder: Path) -> dict[str, Path]:
    """Save the programs of MiniLM and BERT. Return their files by name."""
    import jax

    import hlo_disc
    from benchmarks import in_jax
    from benchmarks.program import named

    sys.path.insert(0, str(ROOT / "examples"))
    import minilm

    params, bert = minilm.load_params(), named("BERT-base")
    weights, fn = in_jax.weights(bert), in_jax.function(bert)
    programs: dict[str, Callable[..., Any]] = {
        "MiniLM": lambda ids, mask: minilm.embed(params, ids, mask),
        "BERT-base": lambda ids, mask: fn(weights, [ids, mask]),
    }
    paths = {}
    for name, program in programs.items():
        paths[name] = folder / f"{name}.disc"
        spec = jax.ShapeDtypeStruct((2, 9), "int32")
        dims = {"ids": "(b, s)", "mask": "(b, s)"}
        hlo_disc.compile(program, spec, spec, dims=dims, constraints="s <= 512", cache="").save(paths[name])
    return paths


def c_program(saved: Path, folder: Path) -> Path:
    """Build a C program that calls a saved MiniLM once, as a library. Return its path."""
    from hlo_disc.executable import load
    from hlo_disc.library.emit import emit

    emit([("cpu", load(saved).program)], folder, "MiniLM", {})
    made = folder / "first_result"
    link = ["-L", folder, "-lMiniLM", f"-Wl,-rpath,{folder}"]
    subprocess.run(["cc", "-I", folder, ROOT / "benchmarks" / "first_result.c", "-o", made, *link], check=True)
    return made


def seconds_of(program: Path) -> float:
    start = time.perf_counter()
    subprocess.run([program], check=True)
    return time.perf_counter() - start


def main() -> None:
    console = Console()
    table = Table("what", "median", "")
    with tempfile.TemporaryDirectory() as name, console.status("saving programs"):
        folder = Path(name)
        paths = save(folder)
        in_c = c_program(paths["MiniLM"], folder / "MiniLM")
        turns: dict[str, list[float]] = {}
        found: dict[str, list[Any]] = {}
        for _ in range(ROUNDS):
            turns.setdefault("numpy", []).append(child(NUMPY)[0])
            turns.setdefault("C", []).append(seconds_of(in_c))
            for program, path in paths.items():
                turns.setdefault(program, []).append(child(LOADED, str(path))[0])
                found.setdefault(program, []).append(child(LOADED, str(path), "memory")[1])
            found.setdefault("jit", []).append(child(JITTED, str(folder / "cache"))[1])
        for most in ("jax", str(4 << 30), "0"):
            found[most] = [child(RESIDENT, most)[1] for _ in range(3)]
        numpy = statistics.median(turns["numpy"])
        table.add_row("process that imports numpy", f"{numpy * 1e3:.0f} ms", "")
        in_ms = statistics.median(turns["C"]) * 1e3
        table.add_row("C program until MiniLM's first result", f"{in_ms:.1f} ms", "with the process itself")
        for program, path in paths.items():
            whole = statistics.median(turns[program])
            load = statistics.median(one["load"] for one in found[program])
            weights = path.stat().st_size
            resident = statistics.median(one["VmRSS"] for one in found[program])
            shared = statistics.median(one["RssFile"] for one in found[program])
            table.add_row(
                f"process until {program}'s first result",
                f"{whole * 1e3:.0f} ms",
                f"{(whole - numpy) * 1e3:.0f} ms more; load {load * 1e3:.1f} ms",
            )
            table.add_row(
                f"{program}'s memory after 5 calls",
                f"{resident / 2**20:.0f} MiB",
                f"{resident / weights:.2f} of its file of {weights / 2**20:.0f} MiB; {shared / 2**20:.0f} MiB of files",
            )
        ready = [one["ready"] for one in found["jit"] if not one["compiled"]]
        table.add_row(
            "jitted BERT-base from the cache, without tracing",
            f"{statistics.median(ready) * 1e3:.0f} ms",
            f"{len(ready)} processes",
        )
        by_jax, seconds_by_jax, weights = (statistics.median(column) for column in zip(*found["jax"], strict=True))
        for most, name in ((str(4 << 30), "jit"), ("0", "jit, packed_bytes=0")):
            resident, seconds, _ = (statistics.median(column) for column in zip(*found[most], strict=True))
            table.add_row(
                f"memory of BERT-base under {name}, over jax.jit's",
                f"{(resident - by_jax) / 2**20:.0f} MiB",
                f"{(resident - by_jax) / weights:.2f} of the weights; {seconds_by_jax / seconds:.2f} times as fast",
            )
    console.print(table)


if __name__ == "__main__":
    main()
