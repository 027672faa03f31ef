"""Re-opens a static module: chosen sizes become symbols."""

from __future__ import annotations


def reopen(values, read):
    raise NotImplementedError
