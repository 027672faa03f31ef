#include "contexts/tensorflow.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "contexts/ffi.h"
#include "executable.h"
#include "interpreter.h"
#include "library/xla_ffi.h"
#include "program/call.h"
#include "tensors/tensor.h"

namespace ral {
namespace {

// TensorFlow's C API, in so far as it is used here, found by name: no header and no C++ of TensorFlow's is needed.
using Status = struct TF_Status;
using Tensor = struct TF_Tensor;
using Context = struct TF_OpKernelContext;
using Construction = struct TF_OpKernelConstruction;
using KernelBuilder = struct TF_KernelBuilder;
using OpBuilder = struct TF_OpDefinitionBuilder;
using ShapeContext = struct TF_ShapeInferenceContext;
enum Code { kInvalidArgument = 3, kNotFound = 5, kResourceExhausted = 8, kInternal = 13 };

struct Api {
  Status* (*TF_NewStatus)();
  void (*TF_DeleteStatus)(Status*);
  void (*TF_SetStatus)(Status*, int, const char*);
  int (*TF_GetCode)(const Status*);
  const char* (*TF_Message)(const Status*);
  int (*TF_NumInputs)(Context*);
  int (*TF_NumOutputs)(Context*);
  void (*TF_GetInput)(Context*, int, Tensor**, Status*);
  Tensor* (*TF_AllocateOutput)(Context*, int, int, const int64_t*, int, size_t, Status*);
  int (*TF_ExpectedOutputDataType)(Context*, int);
  void (*TF_OpKernelContext_Failure)(Context*, Status*);
  void* (*TF_TensorData)(const Tensor*);
  int (*TF_NumDims)(const Tensor*);
  int64_t (*TF_Dim)(const Tensor*, int);
  int (*TF_TensorType)(const Tensor*);
  void (*TF_DeleteTensor)(Tensor*);
  void (*TF_OpKernelConstruction_GetAttrInt64)(Construction*, const char*, int64_t*, Status*);
  void (*TF_OpKernelConstruction_GetAttrSize)(Construction*, const char*, int32_t*, int32_t*, Status*);
  void (*TF_OpKernelConstruction_GetAttrString)(Construction*, const char*, char*, size_t, Status*);
  void (*TF_OpKernelConstruction_Failure)(Construction*, Status*);
  KernelBuilder* (*TF_NewKernelBuilder)(const char*, const char*, void* (*)(Construction*), void (*)(void*, Context*),
                                        void (*)(void*));
  void (*TF_RegisterKernelBuilder)(const char*, KernelBuilder*, Status*);
  OpBuilder* (*TF_NewOpDefinitionBuilder)(const char*);
  void (*TF_OpDefinitionBuilderAddInput)(OpBuilder*, const char*);
  void (*TF_OpDefinitionBuilderAddOutput)(OpBuilder*, const char*);
  void (*TF_OpDefinitionBuilderAddAttr)(OpBuilder*, const char*);
  void (*TF_OpDefinitionBuilderSetShapeInferenceFunction)(OpBuilder*, void (*)(ShapeContext*, Status*));
  void (*TF_ShapeInferenceContextSetUnknownShape)(ShapeContext*, Status*);
  void (*TF_RegisterOpDefinition)(OpBuilder*, Status*);
} api;
PyObject* load_program;

struct OwnedStatus {
  Status* const status = api.TF_NewStatus();
  ~OwnedStatus() { api.TF_DeleteStatus(status); }
  bool ok() const { return api.TF_GetCode(status) == 0; }
  void set(int code, const std::string& message) { api.TF_SetStatus(status, code, message.c_str()); }
  // Throws Error unless all went well.
  void check(Error::Class which) const {
    if (!ok()) throw Error(which, api.TF_Message(status));
  }
};

// A node of a graph, or an op that was called: the executable, and TensorFlow's code of each type.
struct Kernel {
  explicit Kernel(const Executable& executable) : executable(executable) {
    for (const TensorType& type : executable.program().inputs) inputs.push_back(type.dtype->tensorflow);
    for (const TensorType& type : executable.program().outputs) outputs.push_back(type.dtype->tensorflow);
  }
  const Executable& executable;
  std::vector<int> inputs, outputs;
};

// The executable with this number, made of the attribute `program` where this process has none. Throws Error.
const Executable& find(Construction* construction) {
  OwnedStatus status;
  int64_t number = 0;
  api.TF_OpKernelConstruction_GetAttrInt64(construction, "key", &number, status.status);
  status.check(Error::kCall);
  if (const Executable* known = published(number)) return *known;
  int32_t count = 0, bytes = 0;
  api.TF_OpKernelConstruction_GetAttrSize(construction, "program", &count, &bytes, status.status);
  status.check(Error::kCall);
  std::vector<char> program(static_cast<size_t>(std::max(bytes, 0)));
  if (!program.empty())
    api.TF_OpKernelConstruction_GetAttrString(construction, "program", program.data(), program.size(), status.status);
  status.check(Error::kCall);
  std::string failed = with_interpreter([&]() -> std::string {
    PyObject* content = PyBytes_FromStringAndSize(program.data(), static_cast<Py_ssize_t>(program.size()));
    PyObject* made =
        content ? PyObject_CallFunction(load_program, "LO", static_cast<long long>(number), content) : nullptr;
    Py_XDECREF(content);
    if (made) {
      Py_DECREF(made);
      return "";
    }
    return take_exception();
  });
  const Executable* loaded = published(number);
  if (!loaded) throw Error(Error::kCall, failed.empty() ? "the program has another number" : failed);
  return *loaded;
}

void* create(Construction* construction) {
  try {
    return new Kernel(find(construction));
  } catch (const std::exception& error) {
    OwnedStatus status;
    status.set(kNotFound, std::string("HloDiscCall: ") + error.what());
    api.TF_OpKernelConstruction_Failure(construction, status.status);
    return nullptr;
  }
}

void destroy(void* kernel) { delete static_cast<Kernel*>(kernel); }

// The tensors of a call, given back when it ends.
struct Held {
  explicit Held(int n) : tensors(n), count(n) {}
  ~Held() {
    for (int i = 0; i < count; i++) {
      if (tensors[i]) api.TF_DeleteTensor(tensors[i]);
    }
  }
  Values<Tensor*, 48> tensors;
  const int count;
};

void* allocate(const Kernel& kernel, Context* context, int k, const int64_t* sizes, const OwnedStatus& status) {
  const TensorType& type = kernel.executable.program().outputs[k];
  auto bytes = static_cast<size_t>(Program::tensor_bytes(type, sizes));
  Tensor* made = api.TF_AllocateOutput(context, k, kernel.outputs[k], sizes, type.rank(), bytes, status.status);
  status.check(Error::kOutOfMemory);
  void* data = api.TF_TensorData(made);
  api.TF_DeleteTensor(made);
  return data;
}

void run(const Kernel& kernel, Context* context) {
  const Program& program = kernel.executable.program();
  const int inputs = static_cast<int>(program.inputs.size()), outputs = static_cast<int>(program.outputs.size());
  kernel.executable.check_count(api.TF_NumInputs(context));
  if (api.TF_NumOutputs(context) != outputs)
    throw Error(Error::kArgument, "the program has " + std::to_string(outputs) + " results");
  OwnedStatus status;
  Held held(inputs);
  Call call(program);
  int64_t* sizes = call.dims.data();
  for (int i = 0; i < inputs; i++) {
    api.TF_GetInput(context, i, &held.tensors[i], status.status);
    status.check(Error::kCall);
    const Tensor* tensor = held.tensors[i];
    if (api.TF_TensorType(tensor) != kernel.inputs[i])
      program.check_dtype(i, "TensorFlow's type " + std::to_string(api.TF_TensorType(tensor)));
    const int rank = api.TF_NumDims(tensor);
    Values<int64_t, 8> own(rank);
    for (int axis = 0; axis < rank; axis++) own[axis] = api.TF_Dim(tensor, axis);
    program.check_shape(i, own.data(), rank);
    sizes = std::copy(own.data(), own.data() + rank, sizes);
    call.bufs[i] = api.TF_TensorData(tensor);
  }
  program.plan(call.dims.data(), call.env.data());
  const int64_t* results = call.output_sizes(0);
  std::vector<int> later;  // whose sizes depend on data
  for (int k = 0; k < outputs; k++) {
    const int rank = program.outputs[k].rank();
    if (api.TF_ExpectedOutputDataType(context, k) != kernel.outputs[k])
      throw Error(Error::kArgument, "result " + std::to_string(k) + " is " + program.outputs[k].str());
    if (is_known(results, rank)) {
      call.bufs[program.first_result + k] = allocate(kernel, context, k, results, status);
    } else {
      later.push_back(k);
    }
    results += rank;
  }
  if (!later.empty()) call.outputs.resize(outputs);
  call.launch(0);
  for (int k : later) {
    void* data = allocate(kernel, context, k, call.output_sizes(k), status);
    std::memcpy(data, call.outputs[k].data(), Program::tensor_bytes(program.outputs[k], call.output_sizes(k)));
  }
  kernel.executable.count()->value.fetch_add(1, std::memory_order_relaxed);
}

void compute(void* kernel, Context* context) {
  auto fail = [context](int code, const std::string& message) {
    OwnedStatus status;
    status.set(code, message);
    api.TF_OpKernelContext_Failure(context, status.status);
  };
  try {
    run(*static_cast<const Kernel*>(kernel), context);
  } catch (const Error& error) {
    const int code =
        error.which == Error::kOutOfMemory ? kResourceExhausted
        : error.which == Error::kShape || error.which == Error::kOverflow || error.which == Error::kArgument
            ? kInvalidArgument
            : kInternal;
    // Python raises the error by the name before the message.
    fail(code, std::string("hlo_disc.") + name_of(error.which) + ": " + error.what());
  } catch (const std::bad_alloc&) {
    fail(kResourceExhausted, "hlo_disc.OutOfMemoryError: out of memory");
  } catch (const std::exception& error) {
    fail(kInternal, error.what());
  }
}

void unknown_shapes(ShapeContext* context, Status* status) {
  api.TF_ShapeInferenceContextSetUnknownShape(context, status);
}

template <typename F>
void look_up(void* library, F*& function, const char* name) {
  function = reinterpret_cast<F*>(dlsym(library, name));
  if (!function) throw std::runtime_error(std::string(name) + " is not in TensorFlow's library");
}
#define LOOK_UP(name) look_up(library, api.name, #name)

void look_up_all(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (!library) throw std::runtime_error(path + " is not loaded");
  LOOK_UP(TF_NewStatus);
  LOOK_UP(TF_DeleteStatus);
  LOOK_UP(TF_SetStatus);
  LOOK_UP(TF_GetCode);
  LOOK_UP(TF_Message);
  LOOK_UP(TF_NumInputs);
  LOOK_UP(TF_NumOutputs);
  LOOK_UP(TF_GetInput);
  LOOK_UP(TF_AllocateOutput);
  LOOK_UP(TF_ExpectedOutputDataType);
  LOOK_UP(TF_OpKernelContext_Failure);
  LOOK_UP(TF_TensorData);
  LOOK_UP(TF_NumDims);
  LOOK_UP(TF_Dim);
  LOOK_UP(TF_TensorType);
  LOOK_UP(TF_DeleteTensor);
  LOOK_UP(TF_OpKernelConstruction_GetAttrInt64);
  LOOK_UP(TF_OpKernelConstruction_GetAttrSize);
  LOOK_UP(TF_OpKernelConstruction_GetAttrString);
  LOOK_UP(TF_OpKernelConstruction_Failure);
  LOOK_UP(TF_NewKernelBuilder);
  LOOK_UP(TF_RegisterKernelBuilder);
  LOOK_UP(TF_NewOpDefinitionBuilder);
  LOOK_UP(TF_OpDefinitionBuilderAddInput);
  LOOK_UP(TF_OpDefinitionBuilderAddOutput);
  LOOK_UP(TF_OpDefinitionBuilderAddAttr);
  LOOK_UP(TF_OpDefinitionBuilderSetShapeInferenceFunction);
  LOOK_UP(TF_ShapeInferenceContextSetUnknownShape);
  LOOK_UP(TF_RegisterOpDefinition);
}

}  // namespace

std::string register_tensorflow_op(const std::string& path, PyObject* load) {
  try {
    look_up_all(path);
    OwnedStatus status;
    OpBuilder* op = api.TF_NewOpDefinitionBuilder("HloDiscCall");
    for (const char* attribute : {"Tin: list(type) >= 0", "Tout: list(type) >= 0", "key: int", "program: string = ''"})
      api.TF_OpDefinitionBuilderAddAttr(op, attribute);
    api.TF_OpDefinitionBuilderAddInput(op, "args: Tin");
    api.TF_OpDefinitionBuilderAddOutput(op, "results: Tout");
    api.TF_OpDefinitionBuilderSetShapeInferenceFunction(op, unknown_shapes);
    api.TF_RegisterOpDefinition(op, status.status);
    status.check(Error::kCall);
    load_program = Py_NewRef(load);
    KernelBuilder* kernel = api.TF_NewKernelBuilder("HloDiscCall", "CPU", create, compute, destroy);
    api.TF_RegisterKernelBuilder("HloDiscCall", kernel, status.status);
    status.check(Error::kCall);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::string register_tensorflow_ffi(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  void* found = library ? dlsym(library, "_ZN3xla3ffi12GetXlaFfiApiEv") : nullptr;
  if (!found) return path + " has no XLA FFI";
  const XLA_FFI_Api* xla = reinterpret_cast<const XLA_FFI_Api* (*)()>(found)();
  if (xla->api_version.major_version != XLA_FFI_API_MAJOR) return "its XLA FFI is of another major version";
  const std::string name = "hlo_disc_alone", platform = "Host";
  // A newer bundle than TensorFlow's has one handler more, null, where TensorFlow looks for the traits: none as well.
  XLA_FFI_Handler_Bundle bundle{nullptr, nullptr, nullptr, reinterpret_cast<XLA_FFI_Handler*>(alone_handler())};
  XLA_FFI_Handler_Register_Args args{XLA_FFI_Handler_Register_Args_STRUCT_SIZE, nullptr, {name.data(), name.size()},
                                     {platform.data(), platform.size()},        bundle,  0};
  XLA_FFI_Error* error = xla->XLA_FFI_Handler_Register(&args);
  if (!error) return "";
  XLA_FFI_Error_GetDetails_Args message{XLA_FFI_Error_GetDetails_Args_STRUCT_SIZE, nullptr, error, nullptr};
  xla->XLA_FFI_Error_GetDetails(&message);
  std::string text = message.message;
  XLA_FFI_Error_Destroy_Args destroy{XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, error};
  xla->XLA_FFI_Error_Destroy(&destroy);
  return text;
}

}  // namespace ral
