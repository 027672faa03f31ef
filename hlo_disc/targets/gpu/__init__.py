"""The targets of GPUs, NVIDIA's and AMD's, from LLVM IR to what a driver loads."""
