"""Dots whose tiles are shared by teams of threads."""
