"""`hlo_disc.jit`: which compiled program serves a call of a Python function, and what happens when none can."""

from hlo_disc.jitted.function import JitFunction, jit
from hlo_disc.jitted.lowered import Lowered
from hlo_disc.jitted.stats import Compilation, Fallback, Stats

__all__ = ["Compilation", "Fallback", "JitFunction", "Lowered", "Stats", "jit"]
