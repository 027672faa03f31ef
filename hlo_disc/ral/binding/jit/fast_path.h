// What `hlo_disc.jit` does for a call that a program is known to serve, without Python in between.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

namespace ral {

// What calls of a function look up, under some settings. unchanged: () -> whether the settings are these still. By the types
// of the arguments, by_jax: (function, what counts its calls, types of which one must be seen or None), and plain: (how to
// run, how to nest the results or None). paths: functions of the leaves, by the tree, () and their types, where
// `flatten`, or None, gives leaves and tree of (arguments, {}).
struct FastTables {
  nanobind::callable unchanged;
  nanobind::dict by_jax, plain, paths;
  nanobind::object flatten;
};

// Must succeed before any other function here. False with a Python exception set.
bool initialize_fast_path();

// A method in place of `slow`, which it calls where there is no fast path. The tables are an attribute of the instance with
// this name; renew(instance) gives those for other settings, or None. Null with a Python exception set.
PyObject* make_fast_path(PyObject* slow, PyObject* name, PyObject* renew);

// A function of a list of arrays: `taken` and `given`, tuples of (index, function), make of arguments what `run` takes, and
// of its results what the call gives back; `unflatten` nests them, None stands for the only one. Null with an exception.
PyObject* make_path(PyObject* run, PyObject* unflatten, PyObject* taken, PyObject* given);

}  // namespace ral
