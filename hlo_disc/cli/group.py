"""The group of all commands of `hlo-disc`: its errors are messages on stderr and exit code 1."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import click

from hlo_disc import __version__
from hlo_disc.errors import HloDiscError


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
