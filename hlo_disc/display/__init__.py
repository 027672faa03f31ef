"""The display of objects to a user: a bar on stderr, lines and tables at a prompt and in a notebook."""
