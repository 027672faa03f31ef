// numpy's C API, shared by the files that touch arrays; tensor.cc imports it.
#pragma once

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL hlo_disc_numpy
#ifndef HLO_DISC_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <Python.h>
#include <numpy/arrayobject.h>

#include "dtype.h"

namespace ral {

// numpy's descriptor for an element type; borrowed.
PyArray_Descr* descriptor(const DType& dtype);

inline PyArrayObject* as_array(PyObject* object) { return reinterpret_cast<PyArrayObject*>(object); }

}  // namespace ral
