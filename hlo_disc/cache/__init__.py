"""Results of earlier compilations on disk: whole programs, single kernels, and kernels that come with the package."""
