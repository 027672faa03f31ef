// What `hlo_disc.jit` does for a call that a program is known to serve, without Python in between.
#pragma once

#include <Python.h>

namespace ral {

// Must succeed before any other function here. False with a Python exception set.
bool initialize_fast_path();

// A method in place of `slow`, which it calls where there is no fast path. Null with a Python exception set.
PyObject* make_fast_path(PyObject* slow);

// A function of a list of arrays: `taken` and `given`, tuples of (index, function), make of arguments what `run` takes, and
// of its results what the call gives back; `unflatten` nests them, None stands for the only one. Null with an exception.
PyObject* make_path(PyObject* run, PyObject* unflatten, PyObject* taken, PyObject* given);

}  // namespace ral
