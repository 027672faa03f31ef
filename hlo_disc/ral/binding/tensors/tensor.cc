#include "tensors/tensor.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "dlpack.h"
#include "memory/strided.h"

#define HLO_DISC_IMPORTS_NUMPY
#include "tensors/numpy_api.h"

namespace ral {
namespace {

// An array of so many bytes is copied when it comes again.
constexpr int64_t kMostCopied = 4096;

const char* const kDeviceNames[] = {"?",     "cpu", "cuda", "cuda (host)", "opencl", "?",       "?",     "vulkan",
                                    "metal", "vpi", "rocm", "rocm (host)", "ext",    "managed", "oneapi"};

constexpr int kDTypeCount = static_cast<int>(sizeof kDTypes / sizeof kDTypes[0]);
PyArray_Descr* descriptors[kDTypeCount];
PyObject *find_adapter = nullptr, *stream_of = nullptr;
// Names of attributes, made once: "__dlpack_device__", "__dlpack__", and its keywords.
PyObject *device_name = nullptr, *capsule_name = nullptr, *capsule_keywords = nullptr;

// By Python type; an empty adapter for types that no context claims. Guarded by the interpreter lock.
std::unordered_map<PyTypeObject*, Adapter>& adapters() {
  static auto* map = new std::unordered_map<PyTypeObject*, Adapter>;
  return *map;
}

// A new reference, or Raised.
PyObject* checked(PyObject* object) {
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

std::string text_of(PyObject* object) {
  PyObject* text = PyObject_Str(object);
  const char* utf8 = text ? PyUnicode_AsUTF8(text) : nullptr;
  std::string out = utf8 ? utf8 : "?";
  Py_XDECREF(text);
  PyErr_Clear();
  return out;
}

// Whether a pointer is a multiple of what an element's numbers take.
bool is_aligned(const void* data, const DType& dtype) {
  return reinterpret_cast<uintptr_t>(data) % (dtype.kind == Kind::kComplex ? dtype.bytes / 2 : dtype.bytes) == 0;
}

// Asks a data descriptor of the tensor's type, or a function.
bool holds(PyObject* question, PyObject* tensor) {
  PyTypeObject* type = Py_TYPE(question);
  Owned answer(type->tp_descr_set ? type->tp_descr_get(question, tensor, reinterpret_cast<PyObject*>(Py_TYPE(tensor)))
                                  : PyObject_CallOneArg(question, tensor));
  return answer.get() == Py_True;
}

// Of an array of another class than numpy's own: whether it hides some of its elements.
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
    stream_of = checked(PyObject_GetAttrString(contexts.get(), "stream_of"));
    device_name = checked(PyUnicode_InternFromString("__dlpack_device__"));
    capsule_name = checked(PyUnicode_InternFromString("__dlpack__"));
    capsule_keywords = checked(Py_BuildValue("(s)", "stream"));
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

void Arguments::add_dlpack(int index, PyObject* object, PyObject* capsule, int64_t* sizes) {
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
  if (!managed) throw Raised();
  // The capsule stays unconsumed, so its own destructor frees the tensor when the call is over.
  add_tensor(index, object, managed->tensor, sizes);
}

void Arguments::add_tensor(int index, PyObject* object, const DLTensor& tensor, int64_t* sizes) {
  const Program& program = call_.program;
  int device = tensor.device.type;
  bool resident = is_resident(index, device, tensor.device.id);
  if (!resident && device != kDLCPU && device != kDLCUDAHost && device != kDLROCMHost) {
    bool known = device > 0 && device < static_cast<int>(sizeof kDeviceNames / sizeof kDeviceNames[0]);
    throw Error(Error::kArgument, program.argument(index) + " is on device " + (known ? kDeviceNames[device] : "?") +
                                      ":" + std::to_string(tensor.device.id) + ", but the executable " +
                                      (program.driver ? "runs on GPU 0" : "was compiled for the CPU") +
                                      "; move it there");
  }
  const DType& dtype = *program.inputs[index].dtype;
  if (tensor.dtype.code != dtype.dlpack_code || tensor.dtype.bits != 8 * dtype.bytes || tensor.dtype.lanes != 1) {
    PyObject* name = PyObject_GetAttrString(object, "dtype");
    PyErr_Clear();
    std::string text = name ? text_of(name) : "?";
    Py_XDECREF(name);
    call_.program.check_dtype(index, text);
    // Of the right dtype, but several elements share a byte: not the memory that programs read.
    throw Error(Error::kArgument, program.argument(index) + " gives its memory as elements of " +
                                      std::to_string(tensor.dtype.bits) + " bits, but a " + dtype.name + " takes " +
                                      std::to_string(8 * dtype.bytes) + " here; pass a numpy array");
  }
  if (!tensor.data && std::find(tensor.shape, tensor.shape + tensor.rank, 0) == tensor.shape + tensor.rank) {
    throw Error(Error::kArgument, program.argument(index) + ", a " + Py_TYPE(object)->tp_name + ", has no memory");
  }
  char* data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  const bool dense = is_dense(tensor.shape, tensor.strides, tensor.rank);
  if (resident && !dense) return add_dense(index, object, sizes);
  if (resident && !is_aligned(data, dtype)) {
    throw Error(Error::kArgument, program.argument(index) +
                                      " lies on the GPU at an address that is no multiple of its " +
                                      "elements' size; copy it");
  }
  if (resident) {
    call_.resident.resize(program.inputs.size());
    call_.resident[index] = 1;
  }
  if (!dense || !is_aligned(data, dtype)) {
    int64_t bytes =
        Program::tensor_bytes(TensorType{"", &dtype, std::vector<int64_t>(tensor.rank, -1), {}}, tensor.shape);
    Block copy(bytes, Use::kTemporary);
    if (!copy) out_of_memory(bytes, "a contiguous copy of " + program.argument(index));
    copy_dense(copy.data(), data, tensor.shape, tensor.strides, tensor.rank, dtype.bytes);
    data = copy.data();
    copies_.push_back(std::move(copy));
  }
  set(index, data, tensor.shape, tensor.rank, sizes);
}

void Arguments::add_dense(int index, PyObject* object, int64_t* sizes) {
  PyObject* copy = nullptr;
  if (object == dense_) {
    // its framework's copy has gaps, too
  } else if (PyObject_HasAttrString(object, "contiguous")) {  // as PyTorch's
    copy = checked(PyObject_CallMethod(object, "contiguous", nullptr));
  } else if (PyObject_HasAttrString(object, "copy")) {  // as cupy's
    copy = checked(PyObject_CallMethod(object, "copy", "s", "C"));
  }
  if (copy) owned_.push_back(copy);
  dense_ = copy;
  if (!copy || !add_resident(index, copy, sizes)) {
    throw Error(Error::kArgument,
                call_.program.argument(index) + " lies on the GPU with gaps or in another order; make it contiguous");
  }
}

bool Arguments::is_resident(int index, int type, int id) const {
  const auto& driver = call_.program.driver;
  if (!driver || type != dlpack_device(*driver)) return false;
  if (id == 0) return true;
  throw Error(Error::kArgument, call_.program.argument(index) + " is on GPU " + std::to_string(id) +
                                    ", but hlo_disc runs programs on GPU 0; move it there");
}

bool Arguments::add_resident(int index, PyObject* object, int64_t* sizes) {
  const Program& program = call_.program;
  if (!program.driver || !PyObject_HasAttr(object, device_name)) return false;
  Owned device(PyObject_CallMethodNoArgs(object, device_name));
  int type = 0, id = 0;
  if (!PyArg_ParseTuple(device.get(), "ii", &type, &id)) throw Raised();
  if (!is_resident(index, type, id)) return false;
  if (!call_.on_stream || !call_.on_stream->waits) {
    Owned stream(PyObject_CallOneArg(stream_of, reinterpret_cast<PyObject*>(Py_TYPE(object))));
    const bool has_stream = stream.get() != Py_None;
    void* theirs = has_stream ? PyLong_AsVoidPtr(stream.get()) : nullptr;
    if (PyErr_Occurred()) throw Raised();
    if (call_.on_stream) {
      call_.on_stream->waits = !has_stream || call_.on_stream->handle != theirs;
    } else {
      Gpu& gpu = Gpu::find(*program.driver, 0);
      auto own = has_stream ? nullptr : std::make_shared<Gpu::Stream>(gpu);
      call_.on_stream = OnStream{&gpu, own ? own->handle() : theirs, own, !has_stream};
    }
  }
  // DLPack calls CUDA's default stream 1.
  auto number = reinterpret_cast<intptr_t>(call_.on_stream->handle);
  if (number == 0 && type == kDLCUDA) number = 1;
  Owned ours(PyLong_FromSsize_t(number));
  PyObject* given[] = {object, ours.get()};
  PyObject* capsule = checked(PyObject_VectorcallMethod(capsule_name, given, 1, capsule_keywords));
  owned_.push_back(capsule);
  add_dlpack(index, object, capsule, sizes);
  return true;
}

void Arguments::add_exchanged(int index, PyObject* object, int64_t* sizes, const Adapter& adapter) {
  const Program& program = call_.program;
  if (asked_ != adapter.recording) {
    Owned recording(PyObject_CallNoArgs(adapter.recording));
    recording_ = recording.get() == Py_True;
    asked_ = adapter.recording;
  }
  if (recording_ && holds(adapter.recorded, object)) {
    throw Error(Error::kArgument, program.argument(index) +
                                      " requires gradients, which executables do not have: pass it detached, "
                                      "or call under no_grad()");
  }
  const DLExchange& functions = adapter.exchange->functions();
  DLTensor tensor;
  if (functions.look(object, &tensor) != 0) {
    throw Error(Error::kArgument, program.argument(index) + ", a " + Py_TYPE(object)->tp_name +
                                      ", does not give its memory: " + take_exception());
  }
  if (program.inputs[index].dtype->kind >= Kind::kFloat) {
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(adapter.lazy); k++) {
      if (!holds(PyTuple_GET_ITEM(adapter.lazy, k), object)) continue;
      object = checked(PyObject_CallOneArg(adapter.resolve, object));
      owned_.push_back(object);
      if (functions.look(object, &tensor) != 0) throw Raised();
    }
  }
  if (is_resident(index, tensor.device.type, tensor.device.id)) {
    void* stream = nullptr;
    if (functions.current_stream(tensor.device.type, 0, &stream) != 0) throw Raised();
    if (!call_.on_stream) call_.on_stream = OnStream{&Gpu::find(*program.driver, 0), stream, nullptr, false};
    // Another framework's stream does not know what this one has yet to compute.
    if (call_.on_stream->handle != stream && add_resident(index, object, sizes)) return;
  }
  add_tensor(index, object, tensor, sizes);
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
