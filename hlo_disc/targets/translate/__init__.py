"""Translation of MLIR to LLVM IR, for any machine: a table of ops, and their types, memory and control flow."""
