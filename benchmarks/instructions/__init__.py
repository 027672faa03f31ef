"""Instructions that kernels take for each element, next to Triton's: assembled for a GPU, so that none is needed."""
