"""The result of compilation as plain data: the program, its file, and the account of decisions."""
