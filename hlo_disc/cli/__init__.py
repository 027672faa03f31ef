"""The commands `hlo-disc compile | explain | profile | run | bench | conformance | cache`.

Results go to stdout, everything else to stderr. The user's mistakes are one message and exit code 1, never a traceback.
"""

from hlo_disc.cli import cache, compile, conformance, profile, run  # noqa: F401, each adds its commands
from hlo_disc.cli.group import main

__all__ = ["main"]
