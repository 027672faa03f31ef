"""Two dots and the ops between them in one kernel."""
