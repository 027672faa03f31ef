"""The rows of the op table, a file for each family, with inference rules and meanings in numpy."""
