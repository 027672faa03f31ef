"""The rewrite engine, its rules, and what they are written in."""
