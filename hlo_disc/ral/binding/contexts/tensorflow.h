// The TensorFlow context: executables as an op of TensorFlow's, through its C API.
#pragma once

#include <Python.h>

#include <string>

namespace ral {

// Registers the op HloDiscCall and its kernel for the CPU with the TensorFlow that is in the library at `path`.
// load(number, program): publishes the executable of a program, bytes as an attribute of the op has them, of which this
// process has none; it is kept for good. Empty, or what is wrong.
std::string register_tensorflow_op(const std::string& path, PyObject* load);

// Registers the handler hlo_disc_alone with the XLA of the TensorFlow in the library at `path`. Empty, or what is wrong.
std::string register_tensorflow_ffi(const std::string& path);

}  // namespace ral
