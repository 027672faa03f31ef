"""Tracing: from a Python function and a call of it to a graph."""
