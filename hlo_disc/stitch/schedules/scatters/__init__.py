"""Updates at places that are data."""
