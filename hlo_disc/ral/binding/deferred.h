// Python functions that make deferred kernels.
#pragma once

#include <Python.h>

#include "ral.h"

namespace ral {

// The address that function(name) returns. Takes the interpreter lock. Throws Error, whose cause is what the function
// raised.
void* made_kernel(PyObject* function, const char* name);

}  // namespace ral
