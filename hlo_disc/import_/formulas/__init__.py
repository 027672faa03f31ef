"""Formulas over arrays that several frameworks share: handlers adapt their arguments to them."""
