"""Symbolic sizes and what is known of them: integers, polynomials and proofs; nothing here knows of tensors."""
