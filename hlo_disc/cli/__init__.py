"""The commands `hlo-disc compile | explain | profile | run | bench | conformance | cache`.

Results go to stdout, everything else to stderr. The user's mistakes are one message and exit code 1, never a traceback.
"""

from hlo_disc.cli import cache, compile, conformance, profile, run
from hlo_disc.cli.group import main

for _command in (
    cache.cache_commands, compile.compile_command, compile.explain, conformance.conformance, profile.profile,
    run.bench, run.run,
):  # fmt: skip
    main.add_command(_command)

__all__ = ["main"]
