"""Sorting, and the first few of sorted rows."""
