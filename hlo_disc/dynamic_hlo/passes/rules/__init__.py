"""The rewrite engine, its rules, and their vocabulary."""
