// Python functions as library calls: the XLA FFI handler behind the name "hlo_disc.callback".
#pragma once

#include <cstdint>

#include "library/xla_ffi.h"
#include "program/program.h"

namespace ral {

// Any operands and results. Attribute: `function`, u64, the address of a Python object that lives as long as the program:
// (copies of the operands, a list of numpy arrays; the results' shapes) -> the results, numpy arrays of these shapes and of
// the right types, row-major. Takes the interpreter lock. What the function raises is the cause of the error.
XLA_FFI_Error* callback_handler(XLA_FFI_CallFrame* frame);

// The current Python exception, which is cleared, as the cause of an error with its text. With the interpreter lock.
Error taken_exception();

}  // namespace ral
