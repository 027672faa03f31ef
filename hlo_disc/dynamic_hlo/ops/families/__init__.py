"""The rows of the op table, a file for each family: inference rules, and meanings in numpy."""
