"""MLIR (host functions and kernels, upstream dialects) to machine code: one translator to LLVM IR, one file per target."""
