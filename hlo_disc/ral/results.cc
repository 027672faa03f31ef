#include "numpy_api.h"
#include "tensor.h"

namespace ral {
namespace {

constexpr const char* kCapsule = "hlo_disc.block";

// A capsule that owns the block. Takes it over in any case.
PyObject* block_capsule(Block block) {
  auto bytes = reinterpret_cast<void*>(static_cast<intptr_t>(block.bytes()));
  PyObject* capsule = PyCapsule_New(block.data(), kCapsule, [](PyObject* self) {
    release(PyCapsule_GetPointer(self, kCapsule),
            static_cast<int64_t>(reinterpret_cast<intptr_t>(PyCapsule_GetContext(self))));
  });
  if (!capsule) throw Raised();
  PyCapsule_SetContext(capsule, bytes);
  block.detach();
  return capsule;
}

// A numpy array that owns the block.
PyObject* numpy_array(Block block, const TensorType& type, const int64_t* sizes) {
  void* data = block.data();
  PyObject* capsule = block_capsule(std::move(block));
  PyArray_Descr* dtype = descriptor(*type.dtype);
  Py_INCREF(dtype);
  PyObject* array = PyArray_NewFromDescr(&PyArray_Type, dtype, type.rank(), reinterpret_cast<const npy_intp*>(sizes),
                                         nullptr, data, NPY_ARRAY_CARRAY, nullptr);
  if (!array) {
    Py_DECREF(capsule);
    throw Raised();
  }
  if (PyArray_SetBaseObject(as_array(array), capsule) < 0) {  // takes the capsule in any case
    Py_DECREF(array);
    throw Raised();
  }
  return array;
}

}  // namespace

PyObject* results(Call& call, const Arguments& arguments) {
  int count = static_cast<int>(call.program.outputs.size());
  PyObject* tuple = PyTuple_New(count);
  if (!tuple) throw Raised();
  try {
    const int64_t* sizes = call.output_sizes(0);
    for (int k = 0; k < count; k++) {
      const TensorType& type = call.program.outputs[k];
      PyObject* result = numpy_array(std::move(call.outputs[k]), type, sizes);
      if (arguments.adapter()) {
        PyObject* array = result;
        PyObject* wrap_arguments[] = {array, arguments.adapted(), type.weak == TensorType::kWeak ? Py_True : Py_False};
        result = PyObject_Vectorcall(arguments.adapter()->wrap, wrap_arguments, 3, nullptr);
        Py_DECREF(array);
        if (!result) throw Raised();
      }
      PyTuple_SET_ITEM(tuple, k, result);
      sizes += type.rank();
    }
  } catch (...) {
    Py_DECREF(tuple);
    throw;
  }
  return tuple;
}

}  // namespace ral
