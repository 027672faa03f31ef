"""MLIR (host functions and kernels) to machine code: one translator to LLVM IR, one file per target."""
