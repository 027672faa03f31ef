"""What earlier compilations made, on disk: whole programs, and single kernels for programs that are new."""
