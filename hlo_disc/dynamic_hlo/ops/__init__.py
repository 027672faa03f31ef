"""The definitions of ops: each family has a file with its rows, inference rules, and meanings in numpy."""
