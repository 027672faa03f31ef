"""Formulas over arrays that several frameworks have: each stands once, and handlers adapt their arguments to it."""
