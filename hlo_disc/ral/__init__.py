"""The runtime abstraction layer: runs machine code on tensors, and knows nothing of how the code was made.

`ral.h` is the contract with generated code. `Executable` is the standalone context (own threads and memory);
`contexts` adapts frameworks. The native module `_ral` is built from the `.cc` files here.
"""

import atexit

from ._ral import (
    Code,
    Executable,
    cpu_features,
    device_blocks,
    end_drops,
    fail_next_allocation,
    fast_path,
    kept_bytes,
    live_bytes,
    nested,
    path,
    pool_threads,
    repeated,
    stop_pool,
    symbols,
    trim,
    usable_cores,
    watch,
)

atexit.register(end_drops)
atexit.register(stop_pool)

__all__ = [
    "Code",
    "Executable",
    "cpu_features",
    "device_blocks",
    "fail_next_allocation",
    "fast_path",
    "kept_bytes",
    "live_bytes",
    "nested",
    "path",
    "pool_threads",
    "repeated",
    "stop_pool",
    "symbols",
    "trim",
    "usable_cores",
    "watch",
]
