"""The commands `hlo-disc compile | run | explain | bench | conformance | cache`.

Results go to stdout, everything else to stderr. The user's mistakes are one message and exit code 1, never a traceback.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hlo_disc import __version__, cache, errors, pipeline, sources
from hlo_disc.benchmark import bench as measure
from hlo_disc.benchmark.result import WIDTH
from hlo_disc.cli_inputs import inputs_of, pairs, sizes_of
from hlo_disc.errors import ArgumentError, FormatError, HloDiscError, ParseError
from hlo_disc.executable import Executable, load
from hlo_disc.import_.source import is_bytecode
from hlo_disc.options import MOST_THREADS, Options
from hlo_disc.program import Program

err = Console(stderr=True)
_DAY = 24 * 60 * 60
_THREADS = click.IntRange(0, MOST_THREADS)


class _Commands(click.Group):
    """A group whose errors are messages on stderr and exit code 1."""

    def main(self, *args: Any, **settings: Any) -> Any:
        settings["standalone_mode"] = False
        try:
            code = super().main(*args, **settings)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            code = 1
        except click.ClickException as error:
            context = error.ctx if isinstance(error, click.UsageError) else None
            more = f"; see '{context.command_path} --help'" if context else ""
            code = _fail(error.format_message().rstrip(".") + more)
        except click.Abort:
            code = 130
        except HloDiscError as error:
            code = _fail(str(error))
        except MemoryError as error:
            code = _fail(f"out of memory: {error}")
        except OSError as error:
            if error.errno == errno.EPIPE:  # whoever read the output has enough of it, as `head` does
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                code = 1
            else:
                reason = error.strerror or str(error)
                code = _fail(f"{error.filename}: {reason}" if error.filename else reason)
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> int:
    click.echo(f"error: {message}", err=True)
    return 1


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hlo-disc")
def main() -> None:
    """Compile StableHLO programs once and run them at every shape.

    FILE is a StableHLO module (text, MLIR bytecode or portable artifact), a .pt2 file of torch.export, the directory of
    a TensorFlow SavedModel, or what `hlo-disc compile` wrote.
    """


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that every command takes."""
    for option in (
        click.option("--dump", metavar="DIR", help="Write what each stage makes into this directory."),
        click.option("--target", metavar="NAME", help="The machine to compile for: cpu, cuda, cuda:sm_90, rocm …"),
        click.option("--threads", type=_THREADS, help="Threads of a run; 0 is one a core."),
        click.option(
            "--constraint", "constraints", multiple=True, metavar="TEXT", help='What holds for the dims: "s <= 512".'
        ),
        click.option(
            "--dims", multiple=True, metavar="NAME=SHAPE", help='Make dims of an input dynamic: "args[0]=(b, s, _)".'
        ),
        click.argument("file", metavar="FILE", type=click.Path(path_type=Path)),
    ):
        command = option(command)
    return command


@main.command("compile")
@_options
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The file to write; without it, text is printed.")
@click.option(
    "--emit",
    type=click.Choice(["disc", "stablehlo"]),
    default="disc",
    show_default=True,
    help="What to write: an executable, or the program as StableHLO text.",
)
def compile_command(file: Path, output: Path | None, emit: str, **settings: Any) -> None:
    """Compile FILE to an executable file, or write it as StableHLO.

    `hlo-disc run` and `hlo_disc.load` take the executable; it needs a CPU with the same features.
    """
    _check_output("--output", output)
    if emit == "stablehlo":
        text = _stablehlo(file, **settings)
        if output is None:
            click.echo(text, nl=False)
            return
        with _writing(output):
            output.write_text(text)
        click.echo(f"{output}: {len(text)} characters of StableHLO")
        return
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output'", click.get_current_context())
    executable = _open(file, **settings)
    with _writing(output):
        executable.save(output)
    total = sum(executable.program.compile_ms.values())
    click.echo(f"{output}: {output.stat().st_size} bytes, compiled in {total:.0f} ms")
    for line in _signature(executable.program):
        click.echo(f"  {line}")


@main.command()
@_options
def explain(file: Path, **settings: Any) -> None:
    """Show how FILE is compiled.

    Its signature and guards, the time of each stage, the kernels with their variants, and the memory plan.
    """
    click.echo(_open(file, **settings).explain())


@main.command()
@_options
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]FILE",
    help="A .npy for the next input or the one named, or a .npz with inputs by name. Others are random.",
)
@click.option("--dim", "sizes", multiple=True, metavar="NAME=SIZE", help="The size of a dim, for random inputs.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of the random inputs.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the results to this .npz, as out0, out1 …")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(min=1), help="Run this many times.")
def run(
    file: Path, inputs: Sequence[str], sizes: Sequence[str], seed: int, out: Path | None, repeat: int, **settings: Any
) -> None:
    """Run FILE on arrays or random inputs.

    Inputs come from files (--input); the others are random, of the sizes given with --dim.
    """
    _check_output("--out", out)
    executable = _open(file, **settings)
    filled, dims = inputs_of(executable, inputs, sizes, seed)
    times = []
    results: tuple[np.ndarray, ...] = ()
    for _ in range(repeat):
        start = time.perf_counter()
        results = executable.native(*filled)
        times.append(time.perf_counter() - start)
    _show(results)
    shown = ", ".join(f"{name}={size}" for name, size in dims.items())
    best = f", best {min(times) * 1e3:.3f} ms of {repeat}" if repeat > 1 else ""
    click.echo(f"{shown + ': ' if shown else ''}{sorted(times)[repeat // 2] * 1e3:.3f} ms{best}")
    if out:
        # npz has no bfloat16 and its like.
        saved: dict[str, Any] = {
            f"out{i}": r if r.dtype.isbuiltin == 1 else r.astype(np.float32) for i, r in enumerate(results)
        }
        with _writing(out), out.open("wb") as stream:
            np.savez(stream, **saved)


@main.command()
@_options
@click.option(
    "--dim", "sizes", multiple=True, metavar="NAME=SIZE,…", help="Sizes of a dim; a row for each combination."
)
@click.option("--seconds", default=5.0, show_default=True, help="Time for each combination of sizes.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of the random inputs.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures to this file as JSON.")
def bench(file: Path, sizes: Sequence[str], seconds: float, seed: int, json_file: Path | None, **settings: Any) -> None:
    """Time FILE against jax.jit and the machine's limit.

    It is compiled once and run on random inputs at all sizes; jax.jit compiles for each. The limit is the least time
    that the machine takes for the products of matrices and the bytes of inputs and results.
    """
    _check_output("--json", json_file)
    if not 0 < seconds <= _DAY:
        raise ArgumentError(f"--seconds {seconds}: give a number of seconds above 0, up to {_DAY}")
    options, dims, constraints = _checked(file, **settings)
    with err.status("") as status:
        found = measure(
            file,
            sizes=sizes_of(sizes),
            dims=dims,
            constraints=constraints,
            seconds=seconds,
            seed=seed,
            report=status.update,
            options=options,
        )
    console = Console()
    console.width = max(console.width, WIDTH)
    console.print(found)
    if json_file:
        with _writing(json_file):
            json_file.write_text(json.dumps(found.as_dict(), indent=1, ensure_ascii=False) + "\n")


@main.command()
@click.argument("paths", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--filter", "filters", multiple=True, metavar="GLOB", help="Only cases whose name or path fits.")
@click.option("--jobs", type=click.IntRange(min=1), help="Worker processes; by default one a core.")
@click.option("--timeout", default=120.0, show_default=True, help="Seconds that a case may take.")
@click.option("--target", default="cpu", show_default=True, help="The kind of machine to compile for.")
@click.option("--threads", default=1, show_default=True, type=_THREADS, help="Threads of each run.")
@click.option("--reopen", is_flag=True, help="Make the inputs' dims symbols wherever the sizes of the rest follow.")
@click.option("--junit", type=click.Path(path_type=Path), help="Write the results to this file as JUnit XML.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the results to this file as JSON.")
@click.option("--dump", default="", metavar="DIR", help="Write what each stage makes into DIR, a directory a case.")
def conformance(
    paths: Sequence[Path],
    filters: Sequence[str],
    jobs: int | None,
    timeout: float,
    target: str,
    threads: int,
    reopen: bool,
    junit: Path | None,
    json_file: Path | None,
    dump: str,
) -> int:
    """Run the StableHLO modules in DIR as conformance cases.

    A module that holds its own checks (custom calls check.expect_eq and its like) must pass them; any other is run at
    several sizes, from one compilation, and compared with XLA. The exit code is 1 when a case fails.
    """
    from hlo_disc.conformance import command, report
    from hlo_disc.conformance.run import Settings

    _check_output("--junit", junit)
    _check_output("--json", json_file)
    _check_dump(dump)
    if not 0 < timeout <= _DAY:
        raise ArgumentError(f"--timeout {timeout}: give a number of seconds above 0, up to {_DAY}")
    tasks = command.find(paths, filters)
    options = pipeline.merge(None, {"target": target, "threads": threads, "dump": dump})
    settings = Settings(threads=threads, reopen=reopen, dump=dump, target=options.target)
    results = command.conformance(tasks, settings, jobs or command.cores(), timeout, Console(), err)
    if junit:
        with _writing(junit):
            report.write_junit(results, junit)
    if json_file:
        with _writing(json_file):
            report.write_json(results, json_file)
    return int(any(map(report.has_failed, results)))


@main.group("cache")
def cache_commands() -> None:
    """What compiled programs are kept on disk, in the directory that HLO_DISC_CACHE names."""


@cache_commands.command("list")
def cache_list() -> None:
    """Show the entries, the last used first: when that was, their size, and what they compute."""
    place, found = _entries()
    table = Table("used", "bytes", "program", "file")
    for entry in sorted(found, key=lambda entry: -entry.used):
        try:
            shown = cache.described(entry)
        except (FormatError, OSError) as error:
            shown = f"not readable: {error}"
        when = datetime.fromtimestamp(entry.used).isoformat(" ", "seconds")
        table.add_row(when, f"{entry.size:,}", escape(shown), entry.path.name[:12])
    console = Console()
    console.width = max(console.width, WIDTH)
    console.print(table)
    click.echo(f"{len(found)} entries in {place}")


@cache_commands.command("size")
def cache_size() -> None:
    """Show how many bytes the entries have, and how many they may have."""
    place, found = _entries()
    most = Options.from_env().cache_bytes
    click.echo(f"{sum(entry.size for entry in found):,} of {most:,} bytes, {len(found)} entries in {place}")


@cache_commands.command("clear")
def cache_clear() -> None:
    """Delete all entries."""
    place, found = _entries()
    for entry in found:
        entry.path.unlink(missing_ok=True)
    click.echo(f"deleted {len(found)} entries, {sum(entry.size for entry in found):,} bytes, in {place}")


def _entries() -> tuple[Path, list[cache.Entry]]:
    """The cache of the environment's options, and what is in it."""
    place = pipeline.merge(None, {"dump": ""}).cache_directory
    if place is None:
        raise ArgumentError("there is no cache: HLO_DISC_CACHE is empty")
    return place, list(cache.entries(place))


def _open(file: Path, **settings: Any) -> Executable:
    """The executable of a saved file, or of a program that is compiled now."""
    options, dims, constraints = _checked(file, **settings)
    if _is_compiled(file):
        return load(file, options)
    with err.status(f"compiling {file.name}"):
        return sources.compile(file, dims=dims, constraints=constraints, options=options)


# argv: a file, dims and constraints as JSON. A user's mistake is its class and its message on stderr.
_READ = """
import json, sys
from hlo_disc import errors, sources
try:
    sources.graph(sys.argv[1], dims=json.loads(sys.argv[2]), constraints=json.loads(sys.argv[3]))
except errors.HloDiscError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def _check_bytecode(file: Path, dims: Mapping[str, str], constraints: Sequence[str]) -> None:
    """Read MLIR bytecode in another process first: jaxlib's parser dies of some that is damaged, or spoils its memory.

    Raises what reading it raises, and ParseError for what ends the process.
    """
    if not is_bytecode(file):
        return
    arguments = [str(file), json.dumps(dims or None), json.dumps(list(constraints))]
    done = subprocess.run([sys.executable, "-c", _READ, *arguments], capture_output=True, text=True, check=False)
    if done.returncode < 0:
        reason = f"the process that read it has ended by {signal.Signals(-done.returncode).name}"
        raise ParseError(f"{file} is damaged MLIR bytecode: {reason}")
    if done.returncode:
        name, _, message = done.stderr.rstrip().partition(": ")
        kind = getattr(errors, name, None)
        raise kind(message) if kind else ParseError(f"{file} cannot be read: {done.stderr.strip().splitlines()[-1]}")


def _checked(
    file: Path,
    dims: Sequence[str],
    constraints: Sequence[str],
    target: str | None,
    threads: int | None,
    dump: str | None,
) -> tuple[Options, dict[str, str], Sequence[str]]:
    """Options, dims and constraints.

    Raises ArgumentError for what has no effect on a file that is compiled already, and what `_check_bytecode` does.
    """
    given = {"target": target, "threads": threads, "dump": dump}
    options = pipeline.merge(None, {name: value for name, value in given.items() if value is not None})
    _check_dump(dump or "")
    if _is_compiled(file):
        without = {"--dims": dims, "--constraint": constraints, "--target": target, "--dump": dump}
        _refuse(without, f"{file} is compiled already: {{}} has no effect on it")
    shapes = pairs("--dims", dims, "NAME=SHAPE")
    _check_bytecode(file, shapes, constraints)
    return options, shapes, constraints


def _stablehlo(
    file: Path,
    dims: Sequence[str],
    constraints: Sequence[str],
    target: str | None,
    threads: int | None,
    dump: str | None,
) -> str:
    """The text of a program."""
    without = {"--target": target, "--threads": threads, "--dump": dump}
    _refuse(without, "{} has no effect on StableHLO, for which nothing is compiled")
    if _is_compiled(file):
        raise ArgumentError(f"{file} is compiled already, to machine code: give the program that it was made from")
    shapes = pairs("--dims", dims, "NAME=SHAPE")
    _check_bytecode(file, shapes, constraints)
    return sources.stablehlo(file, dims=shapes, constraints=constraints)


def _is_compiled(file: Path) -> bool:
    """Whether it is an executable file, not a program. Raises ArgumentError for what is neither."""
    if sources.is_saved_model(file):
        return False
    if not file.is_file():
        what = "is a directory" if file.is_dir() else "is no regular file" if file.exists() else "no such file"
        raise ArgumentError(f"{file}: {what}; give a program, or what 'hlo-disc compile' wrote")
    return sources.is_compiled(file)


def _refuse(options: Mapping[str, Any], message: str) -> None:
    """Raise ArgumentError for options that are given; `{}` in the message is the first."""
    for option, value in options.items():
        if value:
            raise ArgumentError(message.format(option))


def _check_output(option: str, path: Path | None) -> None:
    """Raise ArgumentError for a file that cannot be written, before any work is done for it."""
    if path is not None and path.is_dir():
        raise ArgumentError(f"{option} {path}: is a directory; give the name of a file")
    if path is not None and not path.parent.is_dir():
        raise ArgumentError(f"{option} {path}: there is no directory {path.parent}")


def _check_dump(directory: str) -> None:
    if directory and Path(directory).exists() and not Path(directory).is_dir():
        raise ArgumentError(f"--dump {directory}: is a file; give the name of a directory")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror or error}") from None


def _show(results: Sequence[np.ndarray]) -> None:
    table = Table("result", "dtype", "shape", "min", "mean", "max")
    for i, result in enumerate(results):
        wide = result.astype(np.float64) if result.dtype.kind != "c" else np.abs(result)
        with np.errstate(all="ignore"):
            numbers = [f"{f(wide):.6g}" for f in (np.min, np.mean, np.max)] if wide.size else ["", "", ""]
        table.add_row(f"out{i}", str(result.dtype), str(result.shape), *numbers)
    Console().print(table)


def _signature(program: Program) -> list[str]:
    return [*map(str, program.inputs), *(f"-> {x}" for x in program.outputs)]
