// The parts of the Python module _ral, each of which adds its functions and classes.
#pragma once

#include <nanobind/nanobind.h>

namespace ral {

void add_runtime(nanobind::module_& m);
void add_handlers(nanobind::module_& m);
void add_jit(nanobind::module_& m);
void add_device_tensor(nanobind::module_& m);
void add_executable(nanobind::module_& m);

// Takes a new reference over. Raises the Python exception that is set where it is null.
inline nanobind::object owned(PyObject* made) {
  if (!made) throw nanobind::python_error();
  return nanobind::steal(made);
}

}  // namespace ral
