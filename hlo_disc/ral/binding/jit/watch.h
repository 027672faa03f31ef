// Whether settings are what they were, in one call from Python: comparing the tuple there takes as long as making it.
#pragma once

#include <Python.h>

namespace ral {

// A function without arguments (new reference; null with a Python exception set): whether `function()` still returns a
// tuple of the very objects in the tuple `was`, and the attribute `name` of `holder` still is `value`.
PyObject* make_watch(PyObject* function, PyObject* was, PyObject* holder, PyObject* name, PyObject* value);

}  // namespace ral
