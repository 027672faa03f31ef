"""The last rewrites before fusion: ops with a second meaning become ops that schedules know."""
