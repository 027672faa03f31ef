"""The last rewrites before fusion: ops that no schedule computes become ops that schedules compute."""
