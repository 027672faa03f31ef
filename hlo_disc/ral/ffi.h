// The JAX context: an XLA FFI handler that runs an executable on XLA's buffers and XLA's threads.
#pragma once

#include <Python.h>

#include <cstdint>

#include "executable.h"

namespace ral {

// Keeps an executable for the life of the process and returns the number by which compiled XLA programs name it. XLA
// does not tell when such a program goes, so the executable cannot either. The number is `content`, a hash that other
// processes have for the same executable too, or one of the next where another executable has it.
int64_t publish(PyObject* self, const Executable* executable, int64_t content);

// The address of the handler, for jax.ffi.register_ffi_target. Operands are the inputs, results the outputs and one u8
// buffer for intermediate values; the i64 attribute `executable` is what publish returned.
void* ffi_handler();

// Size of that u8 buffer.
int64_t ffi_temporary_bytes(const Executable& executable, const int64_t* env);

}  // namespace ral
