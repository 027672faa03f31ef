#include "jit/watch.h"

#include <algorithm>

namespace ral {
namespace {

enum { kFunction, kWas, kHolder, kName, kValue };  // in the tuple that the function is bound to

bool same_objects(PyObject* left, PyObject* right) {
  Py_ssize_t size = PyTuple_GET_SIZE(left);
  return size == PyTuple_GET_SIZE(right) &&
         std::equal(&PyTuple_GET_ITEM(left, 0), &PyTuple_GET_ITEM(left, 0) + size, &PyTuple_GET_ITEM(right, 0));
}

PyObject* unchanged(PyObject* self, PyObject*) {
  PyObject* now = PyObject_CallNoArgs(PyTuple_GET_ITEM(self, kFunction));
  if (!now) return nullptr;
  bool same = PyTuple_Check(now) && same_objects(now, PyTuple_GET_ITEM(self, kWas));
  Py_DECREF(now);
  if (!same) Py_RETURN_FALSE;
  PyObject* value = PyObject_GetAttr(PyTuple_GET_ITEM(self, kHolder), PyTuple_GET_ITEM(self, kName));
  if (!value) return nullptr;
  same = value == PyTuple_GET_ITEM(self, kValue);
  Py_DECREF(value);
  return PyBool_FromLong(same);
}

PyMethodDef unchanged_method = {"unchanged", unchanged, METH_NOARGS, "Whether nothing has changed."};

}  // namespace

PyObject* make_watch(PyObject* function, PyObject* was, PyObject* holder, PyObject* name, PyObject* value) {
  Py_INCREF(name);
  PyUnicode_InternInPlace(&name);
  PyObject* self = PyTuple_Pack(5, function, was, holder, name, value);
  Py_DECREF(name);
  PyObject* watch = self ? PyCFunction_New(&unchanged_method, self) : nullptr;
  Py_XDECREF(self);
  return watch;
}

}  // namespace ral
