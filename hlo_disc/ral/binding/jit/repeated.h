// Calls of one program with arguments of the same types, again and again.
#pragma once

#include <Python.h>

#include "executable.h"

namespace ral {

// Must succeed before `make_repeated`. False with a Python exception set.
bool initialize_repeated();

// A function that calls `program`, which is `executable` (new reference, null with a Python exception set). What comes
// so often with the same types, all arrays of `kind`, is called by what `compile` makes of such arguments, a function or
// None; what that refuses goes to the program.
PyObject* make_repeated(PyObject* program, const Executable* executable, PyObject* kind, int often, PyObject* compile);

}  // namespace ral
