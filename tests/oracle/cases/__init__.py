"""Programs that tests compile: functions of JAX, and LLVM IR for the runtime."""
