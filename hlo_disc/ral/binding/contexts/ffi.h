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

// The executable with a number that publish returned; null for none.
const Executable* published(int64_t number);

// The address of the handler, for jax.ffi.register_ffi_target. Operands are the inputs, results the outputs and one u8
// buffer for intermediate values; the i64 attribute `executable` is what publish returned.
void* ffi_handler();

// A handler for XLA's platforms "CUDA" and "ROCM" and executables for their GPUs: arguments and results are the GPU's
// memory, and all is put into XLA's stream.
void* device_ffi_handler();

// A handler for executables that are `recordable`, and for the stage "initialize" besides: XLA may record the stream.
void* recordable_ffi_handler();

// Lets XLA programs that are compiled until `withdraw` keep an executable: each of them does for as long as it lives or
// runs. The number is for the attribute `executable` of `held_handler`, and like that of publish.
int64_t offer(PyObject* self, const Executable* executable, int64_t content);
void withdraw(int64_t number);

// The address of the handler of such programs, for the stages "instantiate" and "execute", and those of its state's type
// id and type info. Results are the program's alone; they are computed as in a call from Python, which is not counted.
void* held_handler();
void* held_type_id();
void* held_type_info();

// The address of a handler for XLAs that are older than jaxlib's: results are the program's alone, computed on our threads
// in memory of ours; the attribute `executable` is what publish returned.
void* alone_handler();

// Size of the u8 buffer of `ffi_handler`.
int64_t ffi_temporary_bytes(const Executable& executable, const int64_t* env);

}  // namespace ral
