// XLA_FFI_Api on this runtime: what a handler may ask of its host.
//
// A function that needs a device or a registry of XLA's answers UNIMPLEMENTED, so that the handler fails with a reason.
#include <condition_variable>
#include <cstddef>
#include <cstring>

#include "library/library.h"

struct XLA_FFI_Future {
  std::mutex mutex;
  std::condition_variable ready;
  bool done = false;
  std::unique_ptr<XLA_FFI_Error> error;

  void set(XLA_FFI_Error* result) {
    // Notified under the mutex: the waiter destroys this as soon as it can.
    std::lock_guard<std::mutex> lock(mutex);
    error.reset(result);
    done = true;
    ready.notify_all();
  }
};

namespace ral {
namespace {

XLA_FFI_Error* make(XLA_FFI_Error_Code code, std::string message) {
  return new XLA_FFI_Error{code, std::move(message), nullptr};
}

XLA_FFI_Error* unsupported(const char* what) {
  return make(XLA_FFI_Error_Code_UNIMPLEMENTED, std::string(what) + " when hlo_disc calls it on the CPU");
}

XLA_FFI_Error* create_error(XLA_FFI_Error_Create_Args* args) { return make(args->errc, args->message); }

// Since version 0.4 the caller may have room for the code behind the message, which struct_size says.
void get_details(XLA_FFI_Error_GetDetails_Args* args) {
  args->message = args->error->message.c_str();
  constexpr size_t at = offsetof(XLA_FFI_Error_GetDetails_Args, message) + sizeof args->message;
  if (args->struct_size > at)
    std::memcpy(reinterpret_cast<char*>(args) + at, &args->error->code, sizeof args->error->code);
}

void destroy_error(XLA_FFI_Error_Destroy_Args* args) { delete args->error; }

XLA_FFI_Error* register_handler(XLA_FFI_Handler_Register_Args*) {
  return unsupported("a handler cannot register others");
}
XLA_FFI_Error* register_type(XLA_FFI_Type_Register_Args*) { return unsupported("a handler cannot register types"); }
XLA_FFI_Error* get_stream(XLA_FFI_Stream_Get_Args*) { return unsupported("there is no stream"); }

XLA_FFI_Error* get_user_data(XLA_FFI_InvokeContext_Get_Args* args) {
  args->data = nullptr;
  return make(XLA_FFI_Error_Code_NOT_FOUND, "no user data is attached to the call");
}

XLA_FFI_Error* set_state(XLA_FFI_State_Set_Args* args) {
  State* state = args->ctx->states[args->stage];
  if (!state || state->object || args->stage == XLA_FFI_ExecutionStage_EXECUTE) {
    return make(XLA_FFI_Error_Code_FAILED_PRECONDITION, "the state of this stage is set already");
  }
  state->type = *args->type_id;
  state->object = args->state;
  return nullptr;
}

XLA_FFI_Error* get_state(XLA_FFI_State_Get_Args* args) {
  const State* state = args->ctx->states[args->stage];
  if (!state || !state->object)
    return make(
        XLA_FFI_Error_Code_NOT_FOUND,
        "no state is set; a handler that is made with one must be registered with hlo_disc.register_ffi_target too");
  if (state->type.type_id != args->type_id->type_id)
    return make(XLA_FFI_Error_Code_INVALID_ARGUMENT, "the state is of another type");
  args->state = state->object;
  return nullptr;
}

XLA_FFI_Error* allocate_scratch(XLA_FFI_DeviceMemory_Allocate_Args* args) {
  const size_t alignment = args->alignment > RAL_ALIGNMENT ? args->alignment : RAL_ALIGNMENT;
  const size_t slack = alignment - RAL_ALIGNMENT;
  if (args->size > INT64_MAX / 2 - slack)
    return make(XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "no memory can be that large");
  Block block(static_cast<int64_t>(args->size + slack), Use::kTemporary);
  if (!block)
    return make(XLA_FFI_Error_Code_RESOURCE_EXHAUSTED,
                "cannot allocate " + std::to_string(args->size) + " bytes of scratch");
  args->data =
      reinterpret_cast<void*>(align_up(reinterpret_cast<intptr_t>(block.data()), static_cast<int64_t>(alignment)));
  std::lock_guard<std::mutex> lock(args->ctx->mutex);
  args->ctx->scratch.push_back(std::move(block));
  return nullptr;
}

XLA_FFI_Error* free_scratch(XLA_FFI_DeviceMemory_Free_Args* args) {
  std::lock_guard<std::mutex> lock(args->ctx->mutex);
  for (Block& block : args->ctx->scratch) {
    if (args->data < block.data() || args->data >= block.data() + (block.bytes() ? block.bytes() : 1)) continue;
    std::swap(block, args->ctx->scratch.back());
    args->ctx->scratch.pop_back();
    return nullptr;
  }
  return make(XLA_FFI_Error_Code_INVALID_ARGUMENT, "this memory was not allocated by the call");
}

XLA_FFI_Error* schedule(XLA_FFI_ThreadPool_Schedule_Args* args) {
  if (!args->ctx->run) return make(XLA_FFI_Error_Code_FAILED_PRECONDITION, "there is no thread pool before a call");
  args->ctx->run->tasks.schedule(args->task, args->data);
  return nullptr;
}

XLA_FFI_Error* get_threads(XLA_FFI_ThreadPool_NumThreads_Args* args) {
  if (!args->ctx->run) return make(XLA_FFI_Error_Code_FAILED_PRECONDITION, "there is no thread pool before a call");
  *args->num_threads = args->ctx->run->tasks.threads();
  return nullptr;
}

XLA_FFI_Error* create_future(XLA_FFI_Future_Create_Args* args) {
  args->future = new XLA_FFI_Future;
  return nullptr;
}

XLA_FFI_Error* set_available(XLA_FFI_Future_SetAvailable_Args* args) {
  args->future->set(nullptr);
  return nullptr;
}

XLA_FFI_Error* set_error(XLA_FFI_Future_SetError_Args* args) {
  args->future->set(args->error);
  return nullptr;
}

XLA_FFI_Error* get_run_id(XLA_FFI_RunId_Get_Args* args) {
  if (!args->ctx->run) return make(XLA_FFI_Error_Code_FAILED_PRECONDITION, "there is no run before a call");
  args->run_id = args->ctx->run->id;
  return nullptr;
}

XLA_FFI_Error* get_device(XLA_FFI_DeviceOrdinal_Get_Args* args) {
  args->device_ordinal = 0;
  return nullptr;
}

// Functions that versions 0.4 and 0.5 add. Headers of jaxlib may lack the types.
struct FindExtensionArgs {
  size_t struct_size;
  void* extension_start;
  XLA_FFI_InvokeContext* ctx;
  int64_t extension_type;
  const void* extension;
};

struct CustomOptionsArgs {
  size_t struct_size;
  void* extension_start;
  XLA_FFI_InvokeContext* ctx;
  const XLA_FFI_Attrs* attrs;
};

XLA_FFI_Error* find_extension(FindExtensionArgs* args) {
  args->extension = nullptr;
  return nullptr;
}

XLA_FFI_Error* get_custom_options(CustomOptionsArgs* args) {
  static const XLA_FFI_Attrs none = {XLA_FFI_Attrs_STRUCT_SIZE, nullptr, 0, nullptr, nullptr, nullptr};
  args->attrs = &none;
  return nullptr;
}

// XLA_FFI_Api of version 0.5: that of 0.3, and two functions behind its last one.
struct HostApi {
  alignas(XLA_FFI_Api) char common[offsetof(XLA_FFI_Api, XLA_FFI_DeviceOrdinal_Get) + sizeof(void*)];
  XLA_FFI_Error* (*find_extension)(FindExtensionArgs*);
  XLA_FFI_Error* (*get_custom_options)(CustomOptionsArgs*);
};

HostApi make_host_api() {
  const XLA_FFI_Api common = {
      sizeof(HostApi), nullptr,          {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR, kHostedMinor},
      nullptr,         create_error,     get_details,
      destroy_error,   register_handler, get_stream,
      register_type,   get_user_data,    set_state,
      get_state,       allocate_scratch, free_scratch,
      schedule,        get_threads,      create_future,
      set_available,   set_error,        get_run_id,
      get_device,
  };
  HostApi api{{}, find_extension, get_custom_options};
  std::memcpy(api.common, &common, sizeof api.common);
  return api;
}

}  // namespace

const XLA_FFI_Api* host_api() {
  static const HostApi api = make_host_api();
  return reinterpret_cast<const XLA_FFI_Api*>(&api);
}

std::unique_ptr<XLA_FFI_Error> wait_for(XLA_FFI_Future* future) {
  std::unique_ptr<XLA_FFI_Future> owned(future);
  std::unique_lock<std::mutex> lock(future->mutex);
  future->ready.wait(lock, [future] { return future->done; });
  std::unique_ptr<XLA_FFI_Error> error = std::move(future->error);
  lock.unlock();
  return error;
}

}  // namespace ral
