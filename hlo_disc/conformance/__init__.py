"""Conformance: runs StableHLO cases whose results are known, or given by another implementation."""
