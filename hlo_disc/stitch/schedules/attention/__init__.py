"""Two dots and what is between them in one kernel."""
