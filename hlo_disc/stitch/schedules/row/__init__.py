"""Maps, reductions and prefix sums over rows and columns."""
