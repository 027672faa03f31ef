"""The last rewrites before fusion: what has a second meaning is spelled by what schedules know."""
