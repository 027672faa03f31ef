// References to Python objects, and their texts, where a failure is Raised.
#pragma once

#include <Python.h>

#include <string>
#include <utility>

#include "tensors/tensor.h"

namespace ral {

// A new reference, or Raised.
inline PyObject* checked(PyObject* object) {
  if (!object) throw Raised();
  return object;
}

class Owned {
 public:
  explicit Owned(PyObject* object) : object_(checked(object)) {}
  Owned(const Owned&) = delete;
  ~Owned() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* detach() { return std::exchange(object_, nullptr); }

 private:
  PyObject* object_;
};

// str(object), "?" where it has none.
std::string text_of(PyObject* object);

}  // namespace ral
