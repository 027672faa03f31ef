"""Handlers of dots and convolutions."""
