"""The results of earlier compilations, on disk: whole programs, and single kernels for programs that are new."""
