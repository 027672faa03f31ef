"""Scatters: updates at positions from data."""
