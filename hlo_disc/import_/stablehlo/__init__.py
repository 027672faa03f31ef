"""Modules of StableHLO as graphs: parsing, legalisation, and the reader, which other frameworks' readers share."""
