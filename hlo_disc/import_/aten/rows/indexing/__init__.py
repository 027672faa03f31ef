"""Rows of ops with indices that are data, and of ops whose sizes are data."""
