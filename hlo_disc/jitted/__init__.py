"""`hlo_disc.jit`: which compiled program serves a call of a Python function, and what happens when none can."""

from hlo_disc.jitted.function import JitFunction, jit
from hlo_disc.jitted.lowered import Lowered

__all__ = ["JitFunction", "Lowered", "jit"]
