"""The commands of hlo-disc with what is emulated among the targets: `python -m commands conformance DIR --target ...`.

Worker processes import this file as well.
"""

import emulated
import remote

from hlo_disc.cli import main

emulated.register()
remote.register()

if __name__ == "__main__":
    main()
