"""Calls, loops, branches, variables, and modules inside of graphs."""
