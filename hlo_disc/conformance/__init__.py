"""Conformance: StableHLO cases with known results, or another implementation's, against what hlo_disc compiles."""
