"""The shared parts of commands: options, a program's file, and files that are written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

import click

from hlo_disc import errors, pipeline, sources
from hlo_disc.cli.inputs import pairs
from hlo_disc.compiled.program import Program
from hlo_disc.compiled.saved import read
from hlo_disc.display import progress
from hlo_disc.errors import ArgumentError, HloDiscError, ParseError
from hlo_disc.executable import Executable, load, runs_here
from hlo_disc.import_.stablehlo.source import is_bytecode
from hlo_disc.options import MOST_THREADS, Options
from hlo_disc.targets import registry

C = TypeVar("C", bound=Callable[..., object])


class Settings(TypedDict):
    """The values of the options that every command takes."""

    dims: Sequence[str]
    constraints: Sequence[str]
    target: str | None
    threads: int | None
    dump: str | None
    trusted: bool
    signature: str


class Reading(TypedDict):
    """The way to read a file, as `sources.program` takes it."""

    dims: Mapping[str, str] | None
    constraints: Sequence[str]
    trusted: bool
    signature: str


err = progress.console()
_DAY = 24 * 60 * 60
_SHOWN = 500  # characters of a message
THREADS = click.IntRange(0, MOST_THREADS)


def program_options(command: C) -> C:
    """Add the options that every command takes."""
    for option in (
        click.option("--dump", metavar="DIR", help="Write what each stage makes into this directory."),
        click.option("--trusted", is_flag=True, help="Let PyTorch load a .pt2 file, which runs what is in it."),
        click.option("--signature", default="", metavar="NAME", help="Which function of a SavedModel to take."),
        click.option(
            "--target", metavar="NAME", help="The machine to compile for: cpu, aarch64, cuda, cuda:sm_90, rocm …"
        ),
        click.option("--threads", type=THREADS, help="Threads of a run; 0 is one a core."),
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


def open_program(file: Path, **settings: Unpack[Settings]) -> Executable:
    """Open the executable of a saved file, or compile a program."""
    options, reading = checked(file, settings)
    if is_compiled(file):
        return load(file, options)
    return Executable(sources.program(file, options=options, **reading), options)


def open_for_any_machine(file: Path, **settings: Unpack[Settings]) -> Program:
    """Open the program of a file. It is linked, with packed weights, if this machine can run it; otherwise it stays
    unlinked."""
    options, reading = checked(file, settings)
    if is_compiled(file):
        program = read(file)
        return load(file, options).program if runs_here(program) else program
    program = sources.program(file, options=options, **reading)
    return Executable(program, options).program if runs_here(program) else program


def compiled_for(file: Path, levels: Sequence[str], **settings: Unpack[Settings]) -> list[tuple[str, Program]]:
    """Compile a program for each of several levels of features, without packing. Raises ArgumentError."""
    options, reading = checked(file, settings)
    if is_compiled(file):
        raise ArgumentError(f"{file} is compiled already: --level has no effect on it")
    kind, _ = registry.split(options.target)
    return [
        (level, sources.program(file, options=pipeline.merge(options, {"target": f"{kind}:{level}"}), **reading))
        for level in levels
    ]


# What another process may take to read a program: so many bytes of memory and seconds of CPU time, which a busy machine
# does not shorten, and more by its bytes; and of its stack half of what we have, so that what is read there is read
# here.
_MEMORY, _MEMORY_BY_SIZE = 4 << 30, 64
_SECONDS, _BYTES_A_SECOND = 120, 20_000
_STACK = 4 << 20
# argv: a file, how to read it as JSON, bytes of memory and of stack, seconds. A user's mistake is a line on stderr,
# among what libraries say there: its class and its message, as JSON.
_READ = """
import json, resource, sys
from pathlib import Path
from hlo_disc import errors, sources
source, reading, memory, stack, seconds = sys.argv[1:]
begins_with = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limits = {
    resource.RLIMIT_AS: begins_with + int(memory), resource.RLIMIT_STACK: int(stack), resource.RLIMIT_CPU: int(seconds)
}
for kind, limit in limits.items():
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit if soft == resource.RLIM_INFINITY else min(limit, soft), hard))
try:
    sources.graph(source, **json.loads(reading))
except errors.HloDiscError as error:
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
    sys.exit(json.dumps([kind.__name__, str(error)]))
except MemoryError:
    text = f"{source} cannot be read: it takes more than {int(memory) >> 20} MiB of memory"
    sys.exit(json.dumps(["ParseError", text]))
"""


def check_module(file: Path, reading: Reading) -> None:
    """Read a program in another process first, with bounds on memory and time, before it is read in this one.

    Some files (deeply nested text, damaged bytecode) crash jaxlib's parser or corrupt its memory. Raises the errors of
    reading, and ParseError for a file that ends the process or exceeds the bounds.
    """
    if sources.is_saved_model(file):
        return
    size = file.stat().st_size
    seconds = _SECONDS + size // _BYTES_A_SECOND
    bounds = (str(_MEMORY + _MEMORY_BY_SIZE * size), str(_STACK), str(seconds))
    command = [sys.executable, "-c", _READ, str(file), json.dumps(reading), *bounds]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == -signal.SIGXCPU:
        raise ParseError(f"{file} cannot be read: it takes more than {seconds} s of CPU time")
    if done.returncode < 0:
        ended = signal.Signals(-done.returncode).name
        what = "damaged MLIR bytecode" if is_bytecode(file) else "damaged, or nested too deeply"
        raise ParseError(f"{file} is {what}: the process that read it has ended by {ended}")
    if done.returncode:
        raise _mistake(done.stderr.splitlines(), file)


def _mistake(said: Sequence[str], file: Path) -> HloDiscError:
    """Return the error that _READ wrote among these lines; a ParseError with the last line if there is none."""
    for line in reversed(said):
        if line.startswith('["'):
            with suppress(ValueError):
                name, message = json.loads(line)
                mistake: HloDiscError = getattr(errors, name)(message)
                return mistake
    return ParseError(f"{file} cannot be read: {said[-1][:_SHOWN] if said else 'no reason is given'}")


def checked(file: Path, settings: Settings) -> tuple[Options, Reading]:
    """Return the options, and how to read the file, as arguments of `sources.program`.

    Raises ArgumentError for options without effect on a compiled file, and the errors of `check_module`.
    """
    chosen = {"target": settings["target"], "threads": settings["threads"], "dump": settings["dump"]}
    options = pipeline.merge(None, {name: value for name, value in chosen.items() if value is not None})
    check_dump(settings["dump"] or "")
    if is_compiled(file):
        given = {name.replace("constraints", "constraint"): value for name, value in settings.items()}
        without = {f"--{name}": value for name, value in given.items() if name != "threads"}
        refuse(without, f"{file} is compiled already: {{}} has no effect on it")
    reading = how_to_read(settings)
    if not is_compiled(file):
        check_module(file, reading)
    return options, reading


def how_to_read(settings: Settings) -> Reading:
    """Return the options of a command as arguments of `sources.program`. Raises ArgumentError."""
    return {
        "dims": pairs("--dims", settings["dims"], "NAME=SHAPE") or None,
        "constraints": list(settings["constraints"]),
        "trusted": settings["trusted"],
        "signature": settings["signature"],
    }


def is_compiled(file: Path) -> bool:
    """Whether it is an executable file, not a program. Raises ArgumentError if it is neither."""
    if sources.is_saved_model(file):
        return False
    if not file.is_file():
        what = "is a directory" if file.is_dir() else "is no regular file" if file.exists() else "no such file"
        raise ArgumentError(f"{file}: {what}; give a program, or what 'hlo-disc compile' wrote")
    return sources.is_compiled(file)


def refuse(options: Mapping[str, object], message: str) -> None:
    """Raise ArgumentError for options that are given; `{}` in the message is the first."""
    for option, value in options.items():
        if value:
            raise ArgumentError(message.format(option))


def check_output(option: str, path: Path | None) -> None:
    """Raise ArgumentError for a file that cannot be written, before any work is done for it."""
    if path is not None and path.is_dir():
        raise ArgumentError(f"{option} {path}: is a directory; give the name of a file")
    if path is not None and not path.parent.is_dir():
        raise ArgumentError(f"{option} {path}: there is no directory {path.parent}")


def check_seconds(option: str, seconds: float) -> None:
    """Raise ArgumentError for a time that is not positive, or above a day."""
    if not 0 < seconds <= _DAY:
        raise ArgumentError(f"{option} {seconds}: give a number of seconds above 0, up to {_DAY}")


def check_dump(directory: str) -> None:
    if directory and Path(directory).exists() and not Path(directory).is_dir():
        raise ArgumentError(f"--dump {directory}: is a file; give the name of a directory")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror or error}") from None
