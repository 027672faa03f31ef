"""Handlers of reductions, windows and scans."""
