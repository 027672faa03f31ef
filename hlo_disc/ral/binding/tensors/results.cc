#include <algorithm>
#include <array>

#include "tensors/numpy_api.h"
#include "tensors/tensor.h"

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

// Makes a framework's arrays of numpy's. The last type for each place of a table is kept, by dtype, weakness and sizes.
struct Wrapper {
  struct Type {
    int dtype = -1;
    bool weak = false;
    std::vector<npy_intp> sizes;
    PyObject* type = nullptr;
  };
  PyObject *put, *type_of, *where, *devices, *otherwise;
  std::array<Type, 256> types;

  ~Wrapper() {
    for (PyObject* object : {put, type_of, where, devices, otherwise}) Py_DECREF(object);
    for (Type& type : types) Py_XDECREF(type.type);
  }

  // The type of such an array (new reference), null with a Python exception set.
  PyObject* type(PyArrayObject* array, PyObject* weak) {
    int dtype = PyArray_DESCR(array)->type_num, rank = PyArray_NDIM(array);
    const npy_intp* sizes = PyArray_DIMS(array);
    size_t place = static_cast<size_t>(dtype) * 2 + (weak == Py_True);
    for (int i = 0; i < rank; i++) place = place * 31 + static_cast<size_t>(sizes[i]);
    Type& known = types[place % types.size()];
    if (known.dtype == dtype && known.weak == (weak == Py_True) &&
        std::equal(sizes, sizes + rank, known.sizes.begin(), known.sizes.end())) {
      return Py_NewRef(known.type);
    }
    PyObject* shape = PyObject_GetAttrString(reinterpret_cast<PyObject*>(array), "shape");
    PyObject* descriptor = reinterpret_cast<PyObject*>(PyArray_DESCR(array));
    PyObject* made = shape ? PyObject_CallFunctionObjArgs(type_of, shape, descriptor, weak, nullptr) : nullptr;
    Py_XDECREF(shape);
    if (!made) return nullptr;
    known.dtype = dtype;
    known.weak = weak == Py_True;
    known.sizes.assign(sizes, sizes + rank);
    Py_XSETREF(known.type, Py_NewRef(made));
    return made;
  }
};

constexpr const char* kWrapper = "hlo_disc.wrapper";

PyObject* wrap(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  auto* wrapper = static_cast<Wrapper*>(PyCapsule_GetPointer(self, kWrapper));
  if (!wrapper) return nullptr;
  if (count != 3 || !PyArray_Check(args[0])) {
    PyErr_SetString(PyExc_TypeError, "wrap takes a numpy array, an array like the one to be made, and its weakness");
    return nullptr;
  }
  static PyObject* const committed_name = PyUnicode_InternFromString("_committed");
  PyObject* committed = args[1] == Py_None ? Py_NewRef(Py_False) : PyObject_GetAttr(args[1], committed_name);
  if (!committed) return nullptr;
  Py_DECREF(committed);  // a bool lives for ever
  if (committed == Py_False) {
    PyObject* type = wrapper->type(as_array(args[0]), args[2]);
    PyObject* shards = type ? PyList_New(1) : nullptr;
    PyObject* made = nullptr;
    if (shards) {
      PyList_SET_ITEM(shards, 0, Py_NewRef(args[0]));
      PyObject* put[] = {type, wrapper->where, shards, wrapper->devices, Py_False};
      made = PyObject_Vectorcall(wrapper->put, put, 5, nullptr);
      Py_DECREF(shards);
    }
    Py_XDECREF(type);
    if (made || !PyErr_ExceptionMatches(PyExc_RuntimeError)) return made;
    PyErr_Clear();
  }
  return PyObject_Vectorcall(wrapper->otherwise, args, 3, nullptr);
}

PyMethodDef wrap_method = {"wrap", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(wrap)), METH_FASTCALL,
                           "(numpy array, like, weak) -> the framework's array."};

}  // namespace

PyObject* bytes_array(Block block) {
  TensorType type;
  type.dtype = find_dtype("uint8");
  int64_t size = block.bytes();
  type.dims = {size};
  return numpy_array(std::move(block), type, &size);
}

PyObject* make_wrapper(PyObject* put, PyObject* type_of, PyObject* where, PyObject* devices, PyObject* otherwise) {
  auto* wrapper = new Wrapper{put, type_of, where, devices, otherwise, {}};
  for (PyObject* object : {put, type_of, where, devices, otherwise}) Py_INCREF(object);
  PyObject* capsule = PyCapsule_New(
      wrapper, kWrapper, [](PyObject* self) { delete static_cast<Wrapper*>(PyCapsule_GetPointer(self, kWrapper)); });
  if (!capsule) {
    delete wrapper;
    return nullptr;
  }
  PyObject* made = PyCFunction_New(&wrap_method, capsule);
  Py_DECREF(capsule);
  return made;
}

PyObject* results(Call& call, const Arguments& arguments) {
  int count = static_cast<int>(call.program.outputs.size());
  PyObject* tuple = PyTuple_New(count);
  if (!tuple) throw Raised();
  const Exchange* exchange = arguments.adapter() ? arguments.adapter()->exchange : nullptr;
  try {
    const int64_t* sizes = call.output_sizes(0);
    for (int k = 0; k < count; k++) {
      const TensorType& type = call.program.outputs[k];
      bool stays = !call.device_outputs.empty();
      if (exchange && exchange->has(*type.dtype) && (!stays || exchange->may_read(call.device_outputs[k]))) {
        PyObject* tensor = stays ? exchange->tensor(std::move(call.device_outputs[k]))
                                 : exchange->tensor(std::move(call.outputs[k]), *type.dtype, sizes, type.rank());
        if (!tensor) throw Raised();
        PyTuple_SET_ITEM(tuple, k, tensor);
        sizes += type.rank();
        continue;
      }
      PyObject* result = stays ? device_tensor_object(std::move(call.device_outputs[k]))
                               : numpy_array(std::move(call.outputs[k]), type, sizes);
      if (arguments.adapter()) {
        PyObject* array = result;
        PyObject* weak = type.weak == TensorType::kWeak ? Py_True : Py_False;
        PyObject* given[] = {array, arguments.adapted(), weak};
        PyObject* make = stays ? arguments.adapter()->take : arguments.adapter()->wrap;
        result = PyObject_Vectorcall(make, given, 3, nullptr);
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
