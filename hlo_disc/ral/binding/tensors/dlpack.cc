// Arguments that give their memory by DLPack: as a capsule or by C functions, on a GPU too.
#include "dlpack.h"

#include <algorithm>
#include <memory>

#include "memory/strided.h"
#include "tensors/owned.h"

namespace ral {
namespace {

const char* const kDeviceNames[] = {"?",     "cpu", "cuda", "cuda (host)", "opencl", "?",       "?",     "vulkan",
                                    "metal", "vpi", "rocm", "rocm (host)", "ext",    "managed", "oneapi"};

PyObject* stream_of = nullptr;
// Names of attributes, made once: "__dlpack_device__", "__dlpack__", and its keywords.
PyObject *device_name = nullptr, *capsule_name = nullptr, *capsule_keywords = nullptr;

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

}  // namespace

void initialize_dlpack(PyObject* contexts) {
  stream_of = checked(PyObject_GetAttrString(contexts, "stream_of"));
  device_name = checked(PyUnicode_InternFromString("__dlpack_device__"));
  capsule_name = checked(PyUnicode_InternFromString("__dlpack__"));
  capsule_keywords = checked(Py_BuildValue("(s)", "stream"));
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
    // Several elements of the right dtype share a byte: that is not the memory that programs read.
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

}  // namespace ral
