"""Damaged files for a given time: `python tests/oracle/fuzz_files.py --seconds 60`, or `make fuzz-files SECONDS=60`.

StableHLO as text, bytecode and portable artifacts, saved programs and entries of the cache, with bytes changed, cut
out, doubled and put in place of others; half of the saved programs get the digest of their damaged header. The command
line has to show what is in them or say what is wrong, within some memory and time; a program whose entry is damaged is
compiled anew, or its entry is what it was. A traceback, a process that ends and one that takes too long are failures,
and the file is kept.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from batches import batches_until

import hlo_disc
from hlo_disc import mlir, ral
from hlo_disc.abi import ALIGNMENT
from hlo_disc.compiled.saved import PREFIX, content_hash
from hlo_disc.conformance.pool import run_cases
from hlo_disc.conformance.run import Result, Settings, Stage
from hlo_disc.import_.stablehlo.source import load_module

KINDS = ("text", "bytecode", "artifact", "disc", "cache")
BATCH = {"text": 50, "bytecode": 5, "artifact": 5, "disc": 100, "cache": 20}
MEMORY = 8 << 30  # bytes of address space that a worker may have beyond what it begins with
NUMBERS = (b"0", b"-1", b"1", b"9223372036854775807", b"18446744073709551616", b"99999999999", b"1e400", b"?", b"x")
WEIGHTS = np.arange(300, dtype=np.float32)
PROGRAMS: list[tuple[Callable[..., object], tuple[str, ...]]] = [
    (lambda x, y: jax.nn.softmax(x @ y), ("f32[n, m]", "f32[m, 8]")),
    (lambda x: jnp.sort(x, axis=0)[::2], ("f32[n, 3]",)),
    (lambda x: jax.lax.while_loop(lambda s: s.sum() < 9, lambda s: s + 1, x), ("f32[n]",)),
    (lambda i: jnp.asarray(WEIGHTS)[i] * 2, ("i32[n]",)),
    (lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (2,), (1,), "VALID"), ("f32[2*n + 2]",)),
    (lambda x, i: x.at[i].add(1), ("f32[n]", "i32[m]")),
]


def write_seeds(directory: Path) -> None:
    """A file of each kind for each program, and a directory with its entry in the cache."""
    for number, (fn, specs) in enumerate(PROGRAMS):
        text = hlo_disc.stablehlo(fn, *specs)
        module = load_module(text)
        version = mlir.stablehlo.get_current_version()
        artifact = mlir.stablehlo.serialize_portable_artifact(load_module(text), version)  # which it changes
        executable = hlo_disc.compile(text, cache=str(directory / f"{number}.entry"))
        executable.save(directory / f"{number}.disc")
        (entry,) = (directory / f"{number}.entry").iterdir()
        shutil.copy(entry, directory / f"{number}.cache")
        contents = {"text": text.encode(), "bytecode": mlir.bytecode(module), "artifact": artifact}
        for kind, content in contents.items():
            (directory / f"{number}.{kind}").write_bytes(content)


def damaged(pick: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """The data with one to eight changes."""
    for _ in range(pick.choice((1, 1, 2, 4, 8))):
        at = pick.randrange(len(data) + 1)
        end = min(len(data), at + pick.choice((1, 1, 2, 4, 8, 16, 100)))
        match pick.randrange(6):
            case 0:
                data = (
                    data[:at]
                    + bytes(pick.choice((0, 1, 0x7F, 0x80, 0xFF, pick.randrange(256))) for _ in data[at:end])
                    + data[end:]
                )
            case 1:
                data = data[:at] + data[end:]
            case 2:
                data = data[:end] + data[at:]
            case 3:
                data = data[:at] + pick.choice(NUMBERS) + data[end:]
            case 4:
                other = pick.choice(others)
                start = pick.randrange(len(other) + 1)
                data = data[:at] + other[start : start + end - at] + data[end:]
            case _:
                data = data[: pick.randrange(len(data) + 1)] if pick.random() < 0.2 else data
    return data


def run_batch(directory: Path, name: str, settings: Settings, stage: Stage) -> Result:
    """Check files of the kind and seed in `name`, "text:17"."""
    kind, _, number = name.partition(":")
    pick = random.Random(name)
    seeds = [path.read_bytes() for path in sorted((directory / "seeds").glob(f"*.{kind}"))]
    file = directory / f"{kind}-{number}{'.disc' if kind in ('disc', 'cache') else '.mlir'}"
    result = Result(name, "fuzz", kind)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    for count in range(BATCH[kind]):
        chosen = pick.randrange(len(seeds))
        data = damaged(pick, seeds[chosen], seeds)
        if kind == "disc" and pick.random() < 0.5:
            data = signed(seeds[chosen], lambda header: damaged(pick, header, seeds))
        file.write_bytes(data)  # stays when the process dies
        stage(f"file {count}", "fuzz", kind)
        result.shapes += 1
        if found := from_cache(directory / "seeds", chosen, data) if kind == "cache" else outcome(file, kind):
            result.status, result.reason = "failed", found
            return result
    file.unlink()
    return result


def signed(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Return a saved program with a changed header, and the digest of that: what a forger would write."""
    kind, size, _ = PREFIX.unpack_from(data)
    end = PREFIX.size + size
    header = change(data[PREFIX.size : end])
    start = PREFIX.pack(kind, len(header), ral.digest(header)) + header
    return start + bytes(-len(start) % ALIGNMENT) + data[end + -end % ALIGNMENT :]


def from_cache(seeds: Path, number: int, entry: bytes) -> str:
    """Return what is wrong with how a program is compiled whose entry in the cache is `entry`."""
    text = (seeds / f"{number}.text").read_text()
    with tempfile.TemporaryDirectory() as place:
        (whole,) = (seeds / f"{number}.entry").iterdir()
        path = Path(place) / whole.name
        path.write_bytes(entry)
        path.chmod(0o600)
        try:
            executable = hlo_disc.compile(text, cache=place)
        except Exception as error:
            return " ".join(f"{type(error).__name__}: {error}".split())[:300]
        if "codegen" in executable.program.compile_ms and path.read_bytes()[:8] != whole.read_bytes()[:8]:
            return "the damaged entry is not written anew"
        if content_hash(executable.program) != content_hash(hlo_disc.load(seeds / f"{number}.disc").program):
            return "another program than was compiled comes from the cache"
    return ""


def outcome(file: Path, kind: str) -> str:
    """Return what is wrong when the command line reads a file: "" where it shows it, or says why it does not."""
    from hlo_disc.cli import files, main

    # Text is read in this process alone, for there is much of it: what ends a process is found all the same.
    alone = mock.patch.object(files, "check_module") if kind == "text" else nullcontext()
    out, errors = io.StringIO(), io.StringIO()
    try:
        with alone, redirect_stdout(out), redirect_stderr(errors):
            main(["explain", str(file)])
    except SystemExit as ended:
        return "" if ended.code in (0, None) or errors.getvalue().startswith("error:") else "no message"
    except Exception as error:
        return " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return ""


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, help="the first batch's; random by default")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=120, help="seconds that a batch may take")
    parser.add_argument("--failures", type=Path, default=Path("build/fuzz-files"), help="the directory of what fails")
    given = parser.parse_args()
    os.environ["HLO_DISC_CACHE"] = ""
    first = random.randrange(10**6) if given.seed is None else given.seed
    shutil.rmtree(given.failures / "seeds", ignore_errors=True)  # what another version wrote
    (given.failures / "seeds").mkdir(parents=True)
    write_seeds(given.failures / "seeds")
    print(f"seed {first}; failures go to {given.failures}", flush=True)
    counts: Counter[str] = Counter()
    files = 0
    batches = batches_until(given.failures, given.kinds.split(","), first, time.monotonic() + given.seconds)
    for result in run_cases(batches, Settings(), given.jobs, given.timeout, run_batch):
        counts[result.status] += 1
        files += result.shapes
        if result.status != "passed":
            print(f"{result.status:<9} {result.name}: {result.reason}", flush=True)
    shown = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    print(f"{files} files in {sum(counts.values())} batches from seed {first}: {shown}")
    return int(set(counts) > {"passed"} or not counts)


if __name__ == "__main__":
    sys.exit(main())
