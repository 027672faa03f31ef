"""The targets of CPUs: x86-64 and AArch64, from LLVM IR to code that is linked into the process."""
