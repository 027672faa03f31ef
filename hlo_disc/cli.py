"""The commands `hlo-disc compile | run | explain | conformance`.

Results go to stdout, everything else to stderr. The user's mistakes are one message and exit code 1, never a traceback.
"""

from __future__ import annotations

import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from hlo_disc import __version__, pipeline
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import ArgumentError, HloDiscError, ShapeError
from hlo_disc.executable import Executable, load
from hlo_disc.program import Program, dtype_named

err = Console(stderr=True)
_RANDOM_BELOW = 100  # random integers are often indices: small ones


class _Commands(click.Group):
    """A group whose errors are messages on stderr and exit code 1."""

    def main(self, *args: Any, **settings: Any) -> Any:
        settings["standalone_mode"] = False
        try:
            code = super().main(*args, **settings)
        except click.ClickException as error:
            error.show()
            code = 1
        except click.Abort:
            code = 130
        except HloDiscError as error:
            code = _fail(str(error))
        except OSError as error:
            code = _fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> int:
    click.echo(f"error: {message}", err=True)
    return 1


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hlo-disc")
def main() -> None:
    """Compile StableHLO programs once and run them at every shape.

    FILE is a StableHLO module (text, MLIR bytecode or portable artifact) or what `hlo-disc compile` wrote.
    """


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that every command takes."""
    for option in (
        click.option("--dump", metavar="DIR", help="Write what each stage makes into this directory."),
        click.option("--target", metavar="NAME", help="The kind of machine to compile for."),
        click.option("--features", metavar="LEVEL", help='Its level of features; "host" is all of this machine.'),
        click.option("--threads", type=click.IntRange(min=0), help="Threads of a run; 0 is one a core."),
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
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The file to write.")
def compile_command(file: Path, output: Path, **settings: Any) -> None:
    """Compile FILE to an executable file.

    `hlo-disc run` and `hlo_disc.load` take it; it needs a CPU with the same features.
    """
    executable = _open(file, **settings)
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
@click.option("--seed", default=0, show_default=True, help="Seed of the random inputs.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the results to this .npz, as out0, out1 …")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(min=1), help="Run this many times.")
def run(
    file: Path, inputs: Sequence[str], sizes: Sequence[str], seed: int, out: Path | None, repeat: int, **settings: Any
) -> None:
    """Run FILE on arrays or random inputs.

    Inputs come from files (--input); the others are random, of the sizes given with --dim.
    """
    executable = _open(file, **settings)
    given = _read_inputs(executable.program, inputs)
    dims = _sizes(executable, sizes, given)
    filled = _fill(executable.program, given, dims, seed)
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
            f"out{i}": r.astype(np.float32) if r.dtype.kind == "V" else r for i, r in enumerate(results)
        }
        np.savez(out, **saved)


@main.command()
@click.argument("paths", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--filter", "filters", multiple=True, metavar="GLOB", help="Only cases whose name or path fits.")
@click.option("--jobs", type=click.IntRange(min=1), help="Worker processes; by default one a core.")
@click.option("--timeout", default=120.0, show_default=True, help="Seconds that a case may take.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(min=0), help="Threads of each run.")
@click.option("--reopen", is_flag=True, help="Make the inputs' dims symbols wherever the sizes of the rest follow.")
@click.option("--junit", type=click.Path(path_type=Path), help="Write the results to this file as JUnit XML.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the results to this file as JSON.")
@click.option("--dump", default="", metavar="DIR", help="Write what each stage makes into DIR, a directory a case.")
def conformance(
    paths: Sequence[Path],
    filters: Sequence[str],
    jobs: int | None,
    timeout: float,
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

    tasks = command.find(paths, filters)
    settings = Settings(threads=threads, reopen=reopen, dump=dump)
    results = command.conformance(tasks, settings, jobs or command.cores(), timeout, Console(), err)
    if junit:
        report.write_junit(results, junit)
    if json_file:
        report.write_json(results, json_file)
    return int(any(map(report.has_failed, results)))


def _open(
    file: Path,
    dims: Sequence[str],
    constraints: Sequence[str],
    target: str | None,
    features: str | None,
    threads: int | None,
    dump: str | None,
) -> Executable:
    """The executable of a saved file, or of a module that is compiled now."""
    given = {"target": target, "features": features, "threads": threads, "dump": dump}
    options = pipeline.merge(None, {name: value for name, value in given.items() if value is not None})
    if not file.is_file():
        raise ArgumentError(f"{file}: {'is a directory' if file.is_dir() else 'no such file'}")
    if zipfile.is_zipfile(file) or file.suffix == ".disc":
        for option, value in (
            ("--dims", dims),
            ("--constraint", constraints),
            ("--target", target),
            ("--features", features),
            ("--dump", dump),
        ):
            if value:
                raise ArgumentError(f"{file} is compiled already: {option} has no effect on it")
        return load(file, options)
    shapes = dict(_pair(text, "--dims", "NAME=SHAPE") for text in dims)
    with err.status(f"compiling {file.name}"):
        return pipeline.compile_source(file, dims=shapes, constraints=constraints, options=options)


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise ArgumentError(f"{option} {text!r} is not of the form {form}")
    return name.strip(), value.strip()


def _read_inputs(program: Program, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Arrays by input name. Raises ArgumentError for a name that is none, or more arrays than inputs."""
    names = [x.name for x in program.inputs]
    given: dict[str, np.ndarray] = {}

    def put(name: str, array: np.ndarray, origin: str) -> None:
        if name not in names:
            raise ArgumentError(f"{origin}: the program has no input {name!r}; its inputs are {', '.join(names)}")
        dtype = next(x.dtype for x in program.inputs if x.name == name)
        # npy writes bfloat16 and its like as bytes without a name.
        given[name] = array.view(dtype_named(dtype)) if array.dtype.kind == "V" else array

    for text in texts:
        name, equals, path = text.rpartition("=")
        array = _load(path)
        if isinstance(array, dict):
            for key, value in array.items():
                put(names[int(key[4:])] if key not in names and _is_position(key, names) else key, value, path)
            continue
        if not equals:
            free = [n for n in names if n not in given]
            if not free:
                raise ArgumentError(f"{path}: the program has only {len(names)} inputs")
            name = free[0]
        put(name, array, path)
    return given


def _is_position(key: str, names: Sequence[str]) -> bool:
    """Whether an npz key is numpy's own name for an array without one, arr_0, arr_1 …"""
    return key.startswith("arr_") and key[4:].isdigit() and int(key[4:]) < len(names)


def _load(path: str) -> Any:
    try:
        loaded = np.load(path, allow_pickle=False)
        return dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else loaded
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ArgumentError(f"{path}: no .npy or .npz file ({error})") from None


def _sizes(executable: Executable, texts: Sequence[str], given: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The size of each dim: as the user says, else as a given array has it."""
    dims: dict[str, int] = {}
    for text in texts:
        name, value = _pair(text, "--dim", "NAME=SIZE")
        if name not in executable.dims:
            raise ShapeError(f"--dim {text}: the program's dims are {', '.join(executable.dims) or 'all fixed'}")
        if not value.isdigit():
            raise ShapeError(f"--dim {text}: {value!r} is no size")
        dims[name] = int(value)
    for x in executable.program.inputs:
        for dim, size in zip(x.shape, given[x.name].shape if x.name in given else (), strict=False):
            if dim in executable.dims:
                dims.setdefault(dim, size)
    return dims


def _fill(program: Program, given: Mapping[str, np.ndarray], dims: Mapping[str, int], seed: int) -> list[np.ndarray]:
    """All inputs in order; those that are not given are random. Raises ShapeError for a dim without a size."""
    random = np.random.default_rng(seed)
    arrays = []
    for x in program.inputs:
        if x.name in given:
            arrays.append(given[x.name])
            continue
        missing = sorted({s for d in x.shape for s in Dim.parse(d).symbols} - dims.keys())
        if missing:
            needed = " ".join(f"--dim {symbol}=…" for symbol in missing)
            raise ShapeError(
                f"the input {x.name} is {x.dtype}[{', '.join(x.shape)}]: give {needed}, or the array itself"
            )
        sizes = [Dim.parse(d).evaluate(dims) for d in x.shape]
        dtype = dtype_named(x.dtype)
        array: np.ndarray
        if dtype.kind == "b":
            array = np.asarray(random.random(sizes) < 0.5)
        elif dtype.kind in "iu":
            array = np.asarray(random.integers(0, _RANDOM_BELOW, sizes))
        else:
            array = np.asarray(random.standard_normal(sizes))
        arrays.append(array.astype(dtype))
    return arrays


def _show(results: Sequence[np.ndarray]) -> None:
    table = Table("result", "dtype", "shape", "min", "mean", "max")
    for i, result in enumerate(results):
        wide = result.astype(np.float64) if result.dtype.kind != "c" else np.abs(result)
        with np.errstate(all="ignore"):
            numbers = [f"{f(wide):.6g}" for f in (np.min, np.mean, np.max)] if wide.size else ["", "", ""]
        table.add_row(f"out{i}", str(result.dtype), str(result.shape), *numbers)
    Console().print(table)


def _signature(program: Program) -> list[str]:
    return [f"{x.name}: {x.dtype}[{', '.join(x.shape)}]" for x in program.inputs] + [
        f"-> {x.dtype}[{', '.join(x.shape)}]" for x in program.outputs
    ]
