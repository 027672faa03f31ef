"""What ops are: one file a family holds its rows, what their results are, and what they compute in numpy."""
