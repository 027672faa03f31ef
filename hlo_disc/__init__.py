"""hlo_disc: compile a StableHLO or JAX program once, run it at every shape.

```python
f = hlo_disc.jit(fn)                       # a drop-in for jax.jit
exe = hlo_disc.compile("model.mlir")       # or a function with specs, or what a framework exports
exe(x); exe.save("model.disc"); hlo_disc.load("model.disc")
hlo_disc.stablehlo("model.mlir")           # any of them as StableHLO text
hlo_disc.bench(exe, sizes={"b": (1, 64)})  # how fast it is, next to jax.jit and what the machine can do
exe.explain(html="model.html", profile=exe.profile(x))  # what was compiled, and what each kernel takes, as a page
```

`docs/guide.md` explains what is here by examples.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlo_disc.benchmark import Benchmark, bench
    from hlo_disc.display.stats import Compilation, Fallback, Stats
    from hlo_disc.errors import (
        ArgumentError,
        CallError,
        CompileError,
        DeviceError,
        FallbackWarning,
        FormatError,
        HloDiscError,
        OutOfMemoryError,
        ParseError,
        ShapeError,
        SizeOverflowError,
        UnsupportedOpError,
    )
    from hlo_disc.executable import Executable, Memory, load, register_ffi_target, register_ffi_type
    from hlo_disc.jitted import JitFunction, Lowered, jit
    from hlo_disc.options import Options
    from hlo_disc.profile import Profile
    from hlo_disc.sources import compile, stablehlo

# Where the names are. A module is loaded when one of its names is asked for: to run a saved program needs few.
_MODULES = {
    "benchmark": ("Benchmark", "bench"),
    "errors": (
        "ArgumentError", "CallError", "CompileError", "DeviceError", "FallbackWarning", "FormatError", "HloDiscError",
        "OutOfMemoryError", "ParseError", "ShapeError", "SizeOverflowError", "UnsupportedOpError",
    ),
    "executable": ("Executable", "Memory", "load", "register_ffi_target", "register_ffi_type"),
    "jitted": ("JitFunction", "Lowered", "jit"),
    "options": ("Options",),
    "profile": ("Profile",),
    "sources": ("compile", "stablehlo"),
    "display.stats": ("Compilation", "Fallback", "Stats"),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "ArgumentError",
    "Benchmark",
    "CallError",
    "DeviceError",
    "Compilation",
    "CompileError",
    "Executable",
    "Fallback",
    "FallbackWarning",
    "FormatError",
    "HloDiscError",
    "JitFunction",
    "Lowered",
    "Memory",
    "Options",
    "OutOfMemoryError",
    "ParseError",
    "Profile",
    "ShapeError",
    "SizeOverflowError",
    "Stats",
    "UnsupportedOpError",
    "bench",
    "compile",
    "jit",
    "load",
    "register_ffi_target",
    "register_ffi_type",
    "stablehlo",
]

__version__ = "0.1.0"


def __dir__() -> list[str]:
    """List the public names; the modules behind them are no part of the interface."""
    return [*__all__, "__version__"]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'hlo_disc' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"hlo_disc.{_MODULE_OF[name]}"), name)
    return found
