"""Rows of products of matrices, attention, linear algebra and transforms."""
