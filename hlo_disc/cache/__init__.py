"""Results of earlier compilations on disk: whole programs, and single kernels for new programs."""
