#include "tensors/tensor.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "tensors/owned.h"

#define HLO_DISC_IMPORTS_NUMPY
#include "tensors/numpy_api.h"

namespace ral {
namespace {

// An array of so many bytes is copied when it comes again.
constexpr int64_t kMostCopied = 4096;

constexpr int kDTypeCount = static_cast<int>(sizeof kDTypes / sizeof kDTypes[0]);
PyArray_Descr* descriptors[kDTypeCount];
PyObject* find_adapter = nullptr;

// By Python type; an empty adapter for types that no context claims. Guarded by the interpreter lock.
std::unordered_map<PyTypeObject*, Adapter>& adapters() {
  static auto* map = new std::unordered_map<PyTypeObject*, Adapter>;
  return *map;
}

const Adapter& adapter_of(PyTypeObject* type) {
  auto found = adapters().find(type);
  if (found != adapters().end()) return found->second;
  Owned object(PyObject_CallOneArg(find_adapter, reinterpret_cast<PyObject*>(type)));
  Adapter adapter;
  if (object.get() != Py_None) {
    Owned immutable(PyObject_GetAttrString(object.get(), "immutable"));
    Owned give(PyObject_GetAttrString(object.get(), "give"));
    Owned weak(PyObject_GetAttrString(object.get(), "weak"));
    Owned deleted(PyObject_GetAttrString(object.get(), "deleted"));
    Owned type_of(PyObject_GetAttrString(object.get(), "type"));
    adapter.wrap = checked(PyObject_GetAttrString(object.get(), "wrap"));
    adapter.take = checked(PyObject_GetAttrString(object.get(), "take"));
    adapter.weak = weak.detach();
    adapter.deleted = deleted.detach();
    adapter.type = type_of.detach();
    adapter.give = give.detach();
    adapter.immutable = immutable.get() == Py_True;
    if (PyObject_HasAttrString(object.get(), "recording")) adapter.exchange = Exchange::of(type);
    if (adapter.exchange) {
      adapter.threads = checked(PyObject_GetAttrString(object.get(), "threads"));
      adapter.recording = checked(PyObject_GetAttrString(object.get(), "recording"));
      adapter.recorded = checked(PyObject_GetAttrString(object.get(), "recorded"));
      adapter.lazy = checked(PyObject_GetAttrString(object.get(), "lazy"));
      adapter.resolve = checked(PyObject_GetAttrString(object.get(), "resolve"));
    }
  }
  Py_INCREF(type);  // its address is a key from now on
  return adapters().emplace(type, adapter).first->second;
}

// Whether an array of another class than numpy's own hides some of its elements.
bool is_masked(PyObject* array) {
  Owned name(PyUnicode_FromString("numpy.ma"));
  PyObject* module = PyImport_GetModule(name.get());
  if (!module) return false;
  Owned masked(module), type(PyObject_GetAttrString(module, "MaskedArray"));
  const int found = PyObject_IsInstance(array, type.get());
  if (found < 0) throw Raised();
  return found;
}

// A numpy array over an object with the buffer protocol or __array__; null with an exception set. Through a memoryview,
// because numpy takes bytes for text otherwise.
PyObject* array_over(PyObject* object) {
  PyObject* source = PyObject_CheckBuffer(object) ? PyMemoryView_FromObject(object) : nullptr;
  if (!source) {
    PyErr_Clear();
    source = Py_NewRef(object);
  }
  PyObject* array = PyArray_FromAny(source, nullptr, 0, 0, 0, nullptr);
  Py_DECREF(source);
  return array;
}

}  // namespace

std::string text_of(PyObject* object) {
  PyObject* text = PyObject_Str(object);
  const char* utf8 = text ? PyUnicode_AsUTF8(text) : nullptr;
  std::string out = utf8 ? utf8 : "?";
  Py_XDECREF(text);
  PyErr_Clear();
  return out;
}

std::string take_exception() {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  std::string message = value ? text_of(value) : "?";
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return message.substr(0, message.find('\n'));
}

PyArray_Descr* descriptor(const DType& dtype) {
  PyArray_Descr*& known = descriptors[&dtype - kDTypes];
  if (!known) {
    Owned name(PyUnicode_FromString(dtype.name));
    if (!PyArray_DescrConverter(name.get(), &known)) {
      PyErr_Clear();  // numpy knows it from here on
      Owned ml_dtypes(PyImport_ImportModule("ml_dtypes"));
      if (!PyArray_DescrConverter(name.get(), &known)) throw Raised();
    }
  }
  return known;
}

bool initialize_tensors() {
  if (_import_array() < 0) return false;
  try {
    Owned contexts(PyImport_ImportModule("hlo_disc.ral.contexts"));
    find_adapter = checked(PyObject_GetAttrString(contexts.get(), "find_adapter"));
    initialize_dlpack(contexts.get());
  } catch (const Raised&) {
    return false;
  }
  return true;
}

Checked::~Checked() {
  for (Input& input : inputs_) {
    Py_XDECREF(input.type);
    Py_XDECREF(input.last);
  }
}

Arguments::~Arguments() {
  for (Py_buffer& view : views_) PyBuffer_Release(&view);
  for (PyObject* object : owned_) Py_DECREF(object);
}

void Arguments::add(int index, PyObject* object, int64_t* sizes) {
  if (PyArray_Check(object)) return add_numpy(index, object, sizes);
  const Adapter& adapter = adapter_of(Py_TYPE(object));
  if (adapter.give) {
    if (!adapter_) {
      adapter_ = &adapter;
      adapted_ = object;
    }
    if (adapter.immutable && !call_.program.packs.empty()) {
      immutable_.resize(call_.program.inputs.size());
      immutable_[index] = object;
    }
    return adapter.exchange ? add_exchanged(index, object, sizes, adapter) : add_adapted(index, object, sizes, adapter);
  }
  if (PyFloat_CheckExact(object) || PyLong_CheckExact(object) || PyBool_Check(object) || PyComplex_CheckExact(object)) {
    return add_scalar(index, object);
  }
  add_other(index, object, sizes);
}

void Arguments::set(int index, void* data, const int64_t* sizes, int rank, int64_t* where) {
  call_.program.check_shape(index, sizes, rank);
  std::copy(sizes, sizes + rank, where);
  call_.bufs[index] = data;
}

void Arguments::add_numpy(int index, PyObject* object, int64_t* sizes) {
  PyArrayObject* array = as_array(object);
  if (!PyArray_CheckExact(object) && is_masked(object)) {
    throw Error(Error::kArgument, call_.program.argument(index) +
                                      " is a masked array, and programs know no masks; pass an array without, as of "
                                      "its filled()");
  }
  PyArray_Descr* expected = descriptor(*call_.program.inputs[index].dtype);
  PyArray_Descr* got = PyArray_DESCR(array);
  if (got->type_num != expected->type_num && !(PyArray_EquivTypenums(got->type_num, expected->type_num))) {
    call_.program.check_dtype(index, text_of(reinterpret_cast<PyObject*>(got)));
  }
  if (!PyArray_ISCARRAY_RO(array)) {
    Py_INCREF(expected);
    object = checked(PyArray_FromArray(array, expected, NPY_ARRAY_CARRAY_RO));
    owned_.push_back(object);
    array = as_array(object);
  }
  set(index, PyArray_DATA(array), reinterpret_cast<const int64_t*>(PyArray_DIMS(array)), PyArray_NDIM(array), sizes);
}

void Arguments::check_weak(int index, PyObject* object, const Adapter& adapter) {
  const TensorType& type = call_.program.inputs[index];
  if (type.weak == TensorType::kEither) return;
  Owned weak(PyObject_CallOneArg(adapter.weak, object));
  if ((weak.get() == Py_True) == (type.weak == TensorType::kWeak)) return;
  throw Error(Error::kArgument,
              call_.program.argument(index) + " has a " + (weak.get() == Py_True ? "weak" : "strong") +
                  " type, but the program was compiled for a " + (weak.get() == Py_True ? "strong" : "weak") + " one");
}

void Arguments::add_adapted(int index, PyObject* object, int64_t* sizes, const Adapter& adapter) {
  if (add_copy(index, object, sizes, adapter)) return;
  Owned type(PyObject_CallOneArg(adapter.type, object));
  const Checked::Input& known = checked_[index];
  if (known.type != type.get()) {
    check_weak(index, object, adapter);
  } else if (!call_.program.inputs[index].read) {
    std::copy(known.sizes.begin(), known.sizes.end(), sizes);
    return;
  }
  add_shared(index, object, sizes, adapter);
  remember(index, object, type.get(), sizes, adapter);
}

void Arguments::add_shared(int index, PyObject* object, int64_t* sizes, const Adapter& adapter) {
  if (add_resident(index, object, sizes) || add_buffer(index, object, sizes)) return;
  PyObject* given = checked(PyObject_CallOneArg(adapter.give, object));
  owned_.push_back(given);
  if (PyArray_Check(given)) {
    add_numpy(index, given, sizes);
  } else {
    add_dlpack(index, object, given, sizes);
  }
}

bool Arguments::add_copy(int index, PyObject* object, int64_t* sizes, const Adapter& adapter) {
  const Checked::Input& known = checked_[index];
  std::shared_ptr<std::vector<char>> copy = known.copy;
  if (!copy || PyWeakref_GET_OBJECT(known.last) != object) return false;
  Owned deleted(PyObject_CallOneArg(adapter.deleted, object));
  if (deleted.get() != Py_False || known.copy != copy) return false;  // the framework says what is wrong with it
  set(index, copy->data(), known.sizes.data(), static_cast<int>(known.sizes.size()), sizes);
  shared_copies_.push_back(std::move(copy));
  return true;
}

void Arguments::remember(int index, PyObject* object, PyObject* type, const int64_t* sizes, const Adapter& adapter) {
  const TensorType& expected = call_.program.inputs[index];
  Checked::Input& known = checked_[index];
  if (!call_.resident.empty() && call_.resident[index]) return;  // what is there is not ours to look at
  if (type != Py_None && type != known.type) {
    known.sizes.assign(sizes, sizes + expected.rank());
    Py_XSETREF(known.type, Py_NewRef(type));
    known.copy.reset();
  }
  int64_t bytes = Program::tensor_bytes(expected, sizes);
  if (!adapter.immutable || !expected.read || known.type != type || bytes > kMostCopied) return;
  if (known.last && PyWeakref_GET_OBJECT(known.last) == object) {
    const char* contents = static_cast<const char*>(call_.bufs[index]);
    known.copy = std::make_shared<std::vector<char>>(contents, contents + bytes);
    return;
  }
  known.copy.reset();
  PyObject* reference = PyWeakref_NewRef(object, nullptr);
  if (!reference) PyErr_Clear();
  Py_XSETREF(known.last, reference);
}

bool Arguments::add_buffer(int index, PyObject* object, int64_t* sizes) {
  const DType& dtype = *call_.program.inputs[index].dtype;
  if (!*dtype.formats) return false;
  Py_buffer view;
  if (PyObject_GetBuffer(object, &view, PyBUF_ND | PyBUF_FORMAT) < 0) {
    PyErr_Clear();  // what is wrong with it shows when it is exported another way
    return false;
  }
  const char* format = view.format ? view.format : "B";
  if (*format == '=' || *format == '@') format++;
  if (view.itemsize != dtype.bytes || !std::strchr(dtype.formats, *format) || format[1]) {
    PyBuffer_Release(&view);
    return false;
  }
  views_.push_back(view);
  set(index, view.buf, reinterpret_cast<const int64_t*>(view.shape), view.ndim, sizes);
  return true;
}

void Arguments::add_scalar(int index, PyObject* object) {
  const TensorType& type = call_.program.inputs[index];
  call_.program.check_shape(index, nullptr, 0);
  Kind kind = PyBool_Check(object)      ? Kind::kBool
              : PyLong_Check(object)    ? Kind::kInteger
              : PyComplex_Check(object) ? Kind::kComplex
                                        : Kind::kFloat;
  bool fits = kind == type.dtype->kind || (kind < type.dtype->kind && type.dtype->kind != Kind::kBool);
  if (!fits) call_.program.check_dtype(index, std::string("Python ") + Py_TYPE(object)->tp_name);
  PyArray_Descr* expected = descriptor(*type.dtype);
  Py_INCREF(expected);
  PyObject* array = PyArray_FromAny(object, expected, 0, 0, NPY_ARRAY_CARRAY_RO, nullptr);
  if (!array) {
    PyErr_Clear();
    throw Error(Error::kArgument,
                call_.program.argument(index) + ": " + text_of(object) + " does not fit " + type.dtype->name);
  }
  owned_.push_back(array);
  call_.bufs[index] = PyArray_DATA(as_array(array));
}

int Arguments::workers(int most) const {
  if (!adapter_ || !adapter_->exchange) return most;
  Owned threads(PyObject_CallNoArgs(adapter_->threads));
  return std::clamp(static_cast<int>(PyLong_AsLong(threads.get())), 1, most);
}

void Arguments::add_other(int index, PyObject* object, int64_t* sizes) {
  if (add_resident(index, object, sizes)) return;
  if (PyObject_HasAttrString(object, "__dlpack__")) {
    PyObject* capsule = PyObject_CallMethod(object, "__dlpack__", nullptr);
    if (!capsule) {
      std::string reason = take_exception();
      throw Error(Error::kArgument, call_.program.argument(index) + ", a " + Py_TYPE(object)->tp_name +
                                        ", does not give its memory: " + reason);
    }
    owned_.push_back(capsule);
    return add_dlpack(index, object, capsule, sizes);
  }
  PyObject* array = nullptr;
  std::string reason;
  if (PyObject_CheckBuffer(object) || PyObject_HasAttrString(object, "__array__")) {
    array = array_over(object);
    if (!array) reason = ": " + take_exception();
  }
  if (!array) {
    throw Error(Error::kArgument, call_.program.argument(index) + " is a " + Py_TYPE(object)->tp_name +
                                      ", which is no tensor" + reason + "; " + call_.program.inputs[index].str() +
                                      " is expected");
  }
  owned_.push_back(array);
  add_numpy(index, array, sizes);
}

PyObject* constant_array(PyObject* object, const void** data) {
  PyObject* array =
      checked(PyArray_FromAny(object, nullptr, 0, 0, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED, nullptr));
  *data = PyArray_DATA(as_array(array));
  return array;
}

}  // namespace ral
