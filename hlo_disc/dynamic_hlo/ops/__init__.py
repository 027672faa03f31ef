"""The definitions of ops: a file for each family has its rows, inference rules, and meanings in numpy."""
