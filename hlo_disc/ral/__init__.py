"""The runtime abstraction layer: runs machine code on tensors. It does not know how the code was compiled.

`core/ral.h` is the contract with generated code. `Executable` is the standalone context (own threads and memory);
`contexts` adapts frameworks. The native module `_ral` is `core`, which knows no Python, and `binding`, which does.
"""

import atexit

from ._ral import (
    Code,
    Executable,
    FastTables,
    Gate,
    LateModules,
    Launch,
    OwnFloats,
    cpu_features,
    device_blocks,
    digest,
    end_drops,
    fail_next_allocation,
    fast_path,
    fill,
    kept_bytes,
    live_bytes,
    nested,
    pack,
    path,
    pool_threads,
    recorded_symbols,
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
    "FastTables",
    "Gate",
    "LateModules",
    "Launch",
    "OwnFloats",
    "cpu_features",
    "device_blocks",
    "digest",
    "fail_next_allocation",
    "fill",
    "fast_path",
    "kept_bytes",
    "live_bytes",
    "nested",
    "pack",
    "path",
    "pool_threads",
    "recorded_symbols",
    "repeated",
    "stop_pool",
    "symbols",
    "trim",
    "usable_cores",
    "watch",
]
