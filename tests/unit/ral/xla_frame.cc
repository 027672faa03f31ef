// A stand-in for XLA on a GPU: call frames with buffers of the device's memory, a stream, an ordinal and scratch memory.
#include <cstring>
#include <string>
#include <vector>

#include "library/xla_ffi.h"

struct XLA_FFI_Error {
  XLA_FFI_Error_Code code;
  std::string message;
};

struct XLA_FFI_InvokeContext {
  void* stream;  // null: this platform has none
  int32_t device;
  int (*allocate)(uintptr_t*, size_t, void*);  // null: there is no memory left
  int (*release)(uintptr_t, void*);
  int allocated, freed;
  size_t bytes;  // that are allocated now
};

namespace {

constexpr size_t kMostAlignment = 16;  // kMaxAlignment in XLA's ffi_api.cc

XLA_FFI_Error* fail(XLA_FFI_Error_Code code, const char* message) { return new XLA_FFI_Error{code, message}; }

const XLA_FFI_Api* api() {
  static XLA_FFI_Api made{};
  made.struct_size = XLA_FFI_Api_STRUCT_SIZE;
  made.XLA_FFI_Error_Create = [](XLA_FFI_Error_Create_Args* args) { return fail(args->errc, args->message); };
  made.XLA_FFI_Error_Destroy = [](XLA_FFI_Error_Destroy_Args* args) { delete args->error; };
  made.XLA_FFI_Error_GetDetails = [](XLA_FFI_Error_GetDetails_Args* args) {
    args->message = args->error->message.c_str();
  };
  made.XLA_FFI_Stream_Get = [](XLA_FFI_Stream_Get_Args* args) -> XLA_FFI_Error* {
    if (!args->ctx->stream) return fail(XLA_FFI_Error_Code_UNIMPLEMENTED, "there is no stream here");
    args->stream = args->ctx->stream;
    return nullptr;
  };
  made.XLA_FFI_DeviceOrdinal_Get = [](XLA_FFI_DeviceOrdinal_Get_Args* args) -> XLA_FFI_Error* {
    args->device_ordinal = args->ctx->device;
    return nullptr;
  };
  made.XLA_FFI_DeviceMemory_Allocate = [](XLA_FFI_DeviceMemory_Allocate_Args* args) -> XLA_FFI_Error* {
    if (args->alignment > kMostAlignment) return fail(XLA_FFI_Error_Code_INVALID_ARGUMENT, "Unsupported alignment");
    uintptr_t address = 0;
    if (!args->ctx->allocate || args->ctx->allocate(&address, args->size + kMostAlignment, args->ctx->stream) != 0)
      return fail(XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "no memory");
    args->ctx->allocated++;
    args->ctx->bytes += args->size;
    args->data = reinterpret_cast<void*>(address + kMostAlignment);  // aligned by no more than what was asked for
    return nullptr;
  };
  made.XLA_FFI_DeviceMemory_Free = [](XLA_FFI_DeviceMemory_Free_Args* args) -> XLA_FFI_Error* {
    args->ctx->freed++;
    args->ctx->bytes -= args->size;
    args->ctx->release(reinterpret_cast<uintptr_t>(args->data) - kMostAlignment, args->ctx->stream);
    return nullptr;
  };
  return &made;
}

}  // namespace

// Which traits a handler says that it has.
extern "C" uint32_t handler_traits(XLA_FFI_Handler* handler) {
  XLA_FFI_Metadata metadata{XLA_FFI_Metadata_STRUCT_SIZE, {XLA_FFI_Api_Version_STRUCT_SIZE}, ~0u};
  XLA_FFI_Metadata_Extension extension{{XLA_FFI_Metadata_Extension_STRUCT_SIZE, XLA_FFI_Extension_Metadata, nullptr},
                                       &metadata};
  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.extension_start = &extension.extension_base;
  return handler(&frame) ? ~0u : metadata.traits;
}

// Calls a handler for a stage. operands, then results: types, ranks, all sizes one after the other, addresses. Returns the code of the
// error, whose message is copied, or 0.
extern "C" int call_handler(XLA_FFI_Handler* handler, int stage, int64_t executable, int operands, int results,
                            const int32_t* types, const int64_t* ranks, int64_t* sizes, void** addresses,
                            XLA_FFI_InvokeContext* context, char* message, size_t room) {
  std::vector<XLA_FFI_Buffer> buffers;
  std::vector<void*> pointers;
  for (int i = 0; i < operands + results; i++) {
    buffers.push_back(
        {XLA_FFI_Buffer_STRUCT_SIZE, nullptr, static_cast<XLA_FFI_DataType>(types[i]), addresses[i], ranks[i], sizes});
    sizes += ranks[i];
  }
  for (XLA_FFI_Buffer& buffer : buffers) pointers.push_back(&buffer);
  std::vector<XLA_FFI_ArgType> argument_types(operands, XLA_FFI_ArgType_BUFFER);
  std::vector<XLA_FFI_RetType> result_types(results, XLA_FFI_RetType_BUFFER);
  XLA_FFI_AttrType attribute_type = XLA_FFI_AttrType_SCALAR;
  XLA_FFI_ByteSpan name{"executable", 10}, *names[] = {&name};
  XLA_FFI_Scalar scalar{XLA_FFI_DataType_S64, &executable};
  void* attributes[] = {&scalar};

  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = api();
  frame.ctx = context;
  frame.stage = static_cast<XLA_FFI_ExecutionStage>(stage);
  frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, operands, argument_types.data(), pointers.data()};
  frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, results, result_types.data(), pointers.data() + operands};
  frame.attrs = {XLA_FFI_Attrs_STRUCT_SIZE, nullptr, 1, &attribute_type, names, attributes};
  XLA_FFI_Error* error = handler(&frame);
  if (!error) return 0;
  std::strncpy(message, error->message.c_str(), room - 1);
  int code = error->code;
  delete error;
  return code;
}
