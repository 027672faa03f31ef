"""A graph as legal StableHLO text."""
