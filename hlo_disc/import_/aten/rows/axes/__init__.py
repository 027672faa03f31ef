"""Rows of ops along axes: reductions, scans, sorts, views."""
