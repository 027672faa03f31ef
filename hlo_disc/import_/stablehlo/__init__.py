"""Modules of StableHLO as graphs: parsing, legalisation, and the reader, which frameworks' readers share."""
