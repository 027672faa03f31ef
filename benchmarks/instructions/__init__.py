"""The number of instructions of kernels for each element, next to Triton's. They are only assembled, without a GPU."""
