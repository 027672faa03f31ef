"""The comparison of results: with the numpy reference, with XLA, and with exact values."""
