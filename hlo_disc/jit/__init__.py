"""`hlo_disc.jit`: which compiled program serves a call of a Python function, and what happens when none can."""

from hlo_disc.jit.function import JitFunction, jit

__all__ = ["JitFunction", "jit"]
