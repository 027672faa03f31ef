"""Symbolic sizes and facts about them: integers, polynomials and proofs; nothing here knows of tensors."""
