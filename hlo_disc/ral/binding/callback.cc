#include "callback.h"

#include <cstring>
#include <memory>
#include <string>

#include "interpreter.h"
#include "library/library.h"
#include "tensors/numpy_api.h"

namespace ral {
namespace {

struct Decref {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
using Owned = std::unique_ptr<PyObject, Decref>;

PyArray_Descr* descriptor_of(const XLA_FFI_Buffer& buffer) {
  for (const DType& dtype : kDTypes) {
    if (dtype.xla == static_cast<int32_t>(buffer.dtype)) return descriptor(dtype);
  }
  PyErr_Format(PyExc_TypeError, "a callback takes or makes XLA's type %d, which numpy has not", buffer.dtype);
  return nullptr;
}

// An array of its own with the contents of a buffer, which the function may keep.
PyObject* copy_of(const XLA_FFI_Buffer& buffer) {
  PyArray_Descr* dtype = descriptor_of(buffer);
  if (!dtype) return nullptr;
  Py_INCREF(dtype);
  PyObject* array = PyArray_NewFromDescr(&PyArray_Type, dtype, static_cast<int>(buffer.rank),
                                         reinterpret_cast<const npy_intp*>(buffer.dims), nullptr, nullptr, 0, nullptr);
  if (array && PyArray_NBYTES(as_array(array)))
    std::memcpy(PyArray_DATA(as_array(array)), buffer.data, static_cast<size_t>(PyArray_NBYTES(as_array(array))));
  return array;
}

PyObject* shape_of(const XLA_FFI_Buffer& buffer) {
  PyObject* shape = PyTuple_New(buffer.rank);
  for (int64_t i = 0; shape && i < buffer.rank; i++) {
    PyObject* size = PyLong_FromLongLong(buffer.dims[i]);
    if (!size) {
      Py_DECREF(shape);
      return nullptr;
    }
    PyTuple_SET_ITEM(shape, i, size);
  }
  return shape;
}

// A list of what `make` makes of each buffer.
Owned list_of(void** buffers, int64_t count, PyObject* (*make)(const XLA_FFI_Buffer&)) {
  Owned list(PyList_New(count));
  for (int64_t i = 0; list && i < count; i++) {
    PyObject* item = make(*static_cast<const XLA_FFI_Buffer*>(buffers[i]));
    if (!item) return nullptr;
    PyList_SET_ITEM(list.get(), i, item);
  }
  return list;
}

bool take(PyObject* result, const XLA_FFI_Buffer& buffer) {
  PyArray_Descr* dtype = descriptor_of(buffer);
  if (!dtype) return false;
  int64_t elements = 1;
  for (int64_t i = 0; i < buffer.rank; i++) elements *= buffer.dims[i];
  if (!PyArray_Check(result) || !PyArray_ISCARRAY_RO(as_array(result)) ||
      PyArray_DESCR(as_array(result))->type_num != dtype->type_num || PyArray_SIZE(as_array(result)) != elements) {
    PyErr_SetString(PyExc_TypeError, "the result of a callback is not what was made of it");
    return false;
  }
  if (elements)
    std::memcpy(buffer.data, PyArray_DATA(as_array(result)), static_cast<size_t>(PyArray_NBYTES(as_array(result))));
  return true;
}

bool call(PyObject* function, const XLA_FFI_CallFrame& frame) {
  Owned operands = list_of(frame.args.args, frame.args.size, copy_of);
  Owned shapes = operands ? list_of(frame.rets.rets, frame.rets.size, shape_of) : nullptr;
  if (!shapes) return false;
  PyObject* const arguments[] = {operands.get(), shapes.get()};
  Owned made(PyObject_Vectorcall(function, arguments, 2, nullptr));
  Owned results(made ? PySequence_Fast(made.get(), "a callback gives back a sequence") : nullptr);
  if (!results) return false;
  if (PySequence_Fast_GET_SIZE(results.get()) != frame.rets.size) {
    PyErr_SetString(PyExc_TypeError, "a callback gave back another number of results");
    return false;
  }
  for (int64_t k = 0; k < frame.rets.size; k++) {
    if (!take(PySequence_Fast_GET_ITEM(results.get(), k), *static_cast<const XLA_FFI_Buffer*>(frame.rets.rets[k])))
      return false;
  }
  return true;
}

XLA_FFI_Error* failed() {
  Error error = taken_exception();
  return new XLA_FFI_Error{XLA_FFI_Error_Code_INTERNAL, error.what(), error.cause};
}

}  // namespace

Error taken_exception() {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace) PyException_SetTraceback(value, trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  Owned text(PyObject_Str(value));
  const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  std::string message = utf8 ? utf8 : "?";
  PyErr_Clear();
  std::shared_ptr<void> cause(value, [](void* object) { drop(static_cast<PyObject*>(object)); });
  return Error(Error::kCall, message, XLA_FFI_Error_Code_INTERNAL, cause);
}

XLA_FFI_Error* callback_handler(XLA_FFI_CallFrame* frame) {
  if (tells_version(frame)) return nullptr;
  const auto* address = static_cast<const XLA_FFI_Scalar*>(frame->attrs.attrs[0]);  // its only attribute
  auto* function = reinterpret_cast<PyObject*>(*static_cast<const uintptr_t*>(address->value));
  return with_interpreter([&] { return call(function, *frame) ? nullptr : failed(); });
}

}  // namespace ral
