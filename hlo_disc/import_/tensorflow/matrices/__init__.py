"""Products and factors of matrices, and their diagonals."""
