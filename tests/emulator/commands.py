"""The commands of hlo-disc with the emulated GPUs among the targets: `python -m commands conformance DIR --target ...`.

Worker processes import this file as well.
"""

import emulated

from hlo_disc.cli import main

emulated.register()

if __name__ == "__main__":
    main()
