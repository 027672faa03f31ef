// The native part of `hlo_disc.jit`: a call that a program is known to serve needs no Python in between.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

namespace ral {

// Tables in which calls of a function look up what serves them, under some settings. unchanged: () -> whether the settings
// are these still. by_jax, plain: records of `hlo_disc/ral/entries.py` by the types of the arguments. paths: functions of
// the leaves, by the tree, () and their types, where `flatten`, or None, gives leaves and tree of (arguments, {}).
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

// A function of a list of arrays: `taken` and `given`, tuples of `ConversionAt`, make of arguments what `run` takes, and of
// its results what the call gives back; `unflatten` nests them, None stands for the only one. Null with an exception.
PyObject* make_path(PyObject* run, PyObject* unflatten, PyObject* taken, PyObject* given);

}  // namespace ral
