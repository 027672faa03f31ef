#include "contexts/ffi.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "gpu/device_call.h"
#include "gpu/products.h"
#include "interpreter.h"
#include "library/library.h"
#include "library/xla_ffi.h"
#include "threads/team.h"

namespace ral {
namespace {

// XLA's threads have other work too: a helper that finds nothing to do for this long goes back to it.
constexpr int64_t kSpinNs = 30'000;

// Numbers are hashes, so that an XLA program from a persistent compilation cache calls what this process has traced in
// its place, and one from elsewhere is refused instead of running something else.
struct Published {
  std::shared_mutex mutex;
  std::unordered_map<int64_t, const Executable*> executables;

  const Executable* find(int64_t number) {
    std::shared_lock<std::shared_mutex> lock(mutex);
    auto found = executables.find(number);
    return found == executables.end() ? nullptr : found->second;
  }
};

Published& published() {
  static auto* all = new Published;
  return *all;
}

XLA_FFI_Error* make_error(const XLA_FFI_Api* api, XLA_FFI_Error_Code code, const std::string& message) {
  XLA_FFI_Error_Create_Args args{XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr, message.c_str(), code};
  return api->XLA_FFI_Error_Create(&args);
}

// Reads the message of an error of XLA's, and destroys the error.
std::string message_of(const XLA_FFI_Api* api, XLA_FFI_Error* error) {
  XLA_FFI_Error_GetDetails_Args said{};
  said.struct_size = XLA_FFI_Error_GetDetails_Args_STRUCT_SIZE;
  said.error = error;
  api->XLA_FFI_Error_GetDetails(&said);
  std::string message = said.message ? said.message : "";
  XLA_FFI_Error_Destroy_Args args{XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, error};
  api->XLA_FFI_Error_Destroy(&args);
  return message;
}

bool succeeded(const XLA_FFI_Api* api, XLA_FFI_Error* error) {
  if (error) message_of(api, error);
  return !error;
}

// A team whose helpers are tasks on XLA's intra-op pool. A task may start long after the call, or inside schedule.
class XlaTeam : public Team, public std::enable_shared_from_this<XlaTeam> {
 public:
  XlaTeam(int workers, const XLA_FFI_CallFrame* frame) : Team(workers), api_(frame->api), context_(frame->ctx) {}

 protected:
  void wake(int slot) override {
    auto* task = new Task{shared_from_this(), slot};
    XLA_FFI_ThreadPool_Schedule_Args args{XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, nullptr, context_, start, task};
    scheduling = true;
    bool taken = succeeded(api_, api_->XLA_FFI_ThreadPool_Schedule(&args));
    scheduling = false;
    if (!taken) delete task;
  }

 private:
  struct Task {
    std::shared_ptr<XlaTeam> team;
    int slot;
  };

  static void start(void* data) {
    std::unique_ptr<Task> task(static_cast<Task*>(data));
    // Started inside schedule, it stands in the way of the worker that scheduled it: no waiting for more work.
    task->team->serve(task->slot, scheduling ? 0 : kSpinNs);
  }

  static thread_local bool scheduling;
  const XLA_FFI_Api* api_;
  XLA_FFI_InvokeContext* context_;
};

thread_local bool XlaTeam::scheduling = false;

// Library handlers' tasks on XLA's intra-op pool.
class XlaTasks : public Tasks {
 public:
  XlaTasks(const XLA_FFI_CallFrame* frame, int threads) : frame_(frame), threads_(threads) {}
  void schedule(Task task, void* data) override {
    if (threads_ < 2) return task(data);
    auto given = std::make_unique<Given>(Given{task, data});
    XLA_FFI_ThreadPool_Schedule_Args args{XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, nullptr, frame_->ctx, start,
                                          given.get()};
    if (!succeeded(frame_->api, frame_->api->XLA_FFI_ThreadPool_Schedule(&args))) return task(data);
    given.release();
  }
  int64_t threads() const override { return threads_; }

 private:
  struct Given {
    Task task;
    void* data;
  };

  static void start(void* data) {
    std::unique_ptr<Given> given(static_cast<Given*>(data));
    run_in_own_floats(given->task, given->data);
  }

  const XLA_FFI_CallFrame* frame_;
  int threads_;
};

struct XlaCall : Run {
  XlaCall(const ral_call& base, const Program& program, Tasks& tasks, const XLA_FFI_CallFrame* frame)
      : Run(base, program, tasks), frame(frame) {}
  ~XlaCall() {
    if (team) team->end();
  }

  const XLA_FFI_CallFrame* frame;
  std::shared_ptr<XlaTeam> team;
};

void xla_parallel_for(ral_call* base, ral_block_fn fn, const void* args, int64_t n) {
  auto* call = static_cast<XlaCall*>(base);
  if (call->workers < 2) return fn(args, 0, n, call->scratch);
  if (!call->team) call->team = std::make_shared<XlaTeam>(call->workers, call->frame);
  call->team->run(*call, fn, args, n, call->workers);
}

int pool_size(const XLA_FFI_CallFrame* frame) {
  int64_t threads = 1;
  XLA_FFI_ThreadPool_NumThreads_Args args{XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE, nullptr, frame->ctx,
                                          &threads};
  if (!succeeded(frame->api, frame->api->XLA_FFI_ThreadPool_NumThreads(&args))) return 1;
  return threads < 1 ? 1 : static_cast<int>(std::min<int64_t>(threads, INT32_MAX));
}

// The attribute `executable`, -1 where there is none.
int64_t number_of(const XLA_FFI_Attrs& attrs) {
  for (int64_t i = 0; i < attrs.size; i++) {
    const XLA_FFI_ByteSpan& name = *attrs.names[i];
    if (attrs.types[i] != XLA_FFI_AttrType_SCALAR || name.len != 10 || std::memcmp(name.ptr, "executable", 10) != 0)
      continue;
    const auto* scalar = static_cast<const XLA_FFI_Scalar*>(attrs.attrs[i]);
    if (scalar->dtype == XLA_FFI_DataType_S64) return *static_cast<const int64_t*>(scalar->value);
  }
  return -1;
}

XLA_FFI_Error* of_another_process(const XLA_FFI_Api* api) {
  return make_error(api, XLA_FFI_Error_Code_NOT_FOUND,
                    "this XLA program calls an hlo_disc executable of another process; trace and compile it again");
}

// XLA packs elements of fewer than 8 bits, programs give each a byte: they cross as bytes.
int32_t type_in_xla(const DType& dtype) { return dtype.dlpack_code == kNoDLPack ? XLA_FFI_DataType_U8 : dtype.xla; }

// Takes operands and results, of which `more` are no results of the program, and plans the call. Null, or an error.
XLA_FFI_Error* bind(const XLA_FFI_CallFrame* frame, Call& call, int more) {
  const Program& program = call.program;
  const int inputs = static_cast<int>(program.inputs.size()), outputs = static_cast<int>(program.outputs.size());
  if (frame->args.size != inputs || frame->rets.size != outputs + more) {
    return make_error(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT,
                      "the custom call has a wrong number of operands or results");
  }

  int64_t* sizes = call.dims.data();
  for (int i = 0; i < inputs; i++) {
    const auto* buffer = static_cast<const XLA_FFI_Buffer*>(frame->args.args[i]);
    if (buffer->dtype != type_in_xla(*program.inputs[i].dtype))
      program.check_dtype(i, "XLA type " + std::to_string(buffer->dtype));
    program.check_shape(i, buffer->dims, static_cast<int>(buffer->rank));
    for (int64_t d = 0; d < buffer->rank; d++) *sizes++ = buffer->dims[d];
    call.bufs[i] = buffer->data;
  }
  program.plan(call.dims.data(), call.env.data());
  const int64_t* expected = call.output_sizes(0);
  for (int k = 0; k < outputs; k++) {
    const auto* buffer = static_cast<const XLA_FFI_Buffer*>(frame->rets.rets[k]);
    const int rank = program.outputs[k].rank();
    if (buffer->dtype != type_in_xla(*program.outputs[k].dtype) || buffer->rank != rank ||
        !std::equal(expected, expected + rank, buffer->dims)) {
      return make_error(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT,
                        "result " + std::to_string(k) + " of the custom call has another dtype, or shape " +
                            shape_text(buffer->dims, static_cast<int>(buffer->rank)) +
                            ", but the executable computes " + shape_text(expected, rank));
    }
    expected += rank;
    call.bufs[program.first_result + k] = buffer->data;
  }
  return nullptr;
}

// The last result, where intermediate values go: null where there are none.
char* arena_of(const XLA_FFI_CallFrame* frame, const Executable& executable, const int64_t* env) {
  const auto* temporary = static_cast<const XLA_FFI_Buffer*>(frame->rets.rets[executable.program().outputs.size()]);
  int64_t needed = ffi_temporary_bytes(executable, env);
  if (temporary->rank != 1 || temporary->dims[0] < needed) {
    throw Error(Error::kArgument,
                "the custom call's last result must have " + std::to_string(needed) + " bytes for intermediate values");
  }
  auto address = align_up(reinterpret_cast<intptr_t>(temporary->data), RAL_ALIGNMENT);
  return needed ? reinterpret_cast<char*>(address) : nullptr;
}

XLA_FFI_Error* for_another_platform(const XLA_FFI_Api* api) {
  return make_error(api, XLA_FFI_Error_Code_INVALID_ARGUMENT, "the executable was compiled for another platform");
}

XLA_FFI_Error* execute(const XLA_FFI_CallFrame* frame) {
  const Executable* executable = published().find(number_of(frame->attrs));
  if (!executable) return of_another_process(frame->api);
  const Program& program = executable->program();
  if (program.driver) return for_another_platform(frame->api);
  Call call(program);
  if (XLA_FFI_Error* error = bind(frame, call, 1)) return error;
  call.bind_constants();

  char* arena = arena_of(frame, *executable, call.env.data());
  int64_t arena_bytes = align_up(call.env[program.env.arena], RAL_ALIGNMENT);
  int64_t scratch_bytes = align_up(call.env[program.env.scratch], RAL_ALIGNMENT);

  int workers = program.workers > 1 ? std::min(program.workers, pool_size(frame)) : 1;
  XlaTasks tasks(frame, workers);
  ral_call base{RAL_VERSION,   workers,          scratch_bytes ? arena + arena_bytes : nullptr,
                scratch_bytes, xla_parallel_for, run_library_call,
                run_allocate,  nullptr,          nullptr,
                nullptr,       nullptr};
  XlaCall state(base, program, tasks, frame);
  check_status(state, state.enter(program.main_fn, call.env.data(), arena, call.bufs.data()), call.env.data());
  executable->count()->in_jit.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

// XLA's memory for what only the run knows the size of. XLA frees it behind what the stream has.
class XlaScratch {
 public:
  explicit XlaScratch(const XLA_FFI_CallFrame* frame) : frame_(frame) {}
  XlaScratch(const XlaScratch&) = delete;
  ~XlaScratch() {
    for (auto [data, bytes] : blocks_) {
      XLA_FFI_DeviceMemory_Free_Args args{XLA_FFI_DeviceMemory_Free_Args_STRUCT_SIZE, nullptr, frame_->ctx, bytes,
                                          data};
      succeeded(frame_->api, frame_->api->XLA_FFI_DeviceMemory_Free(&args));
    }
  }

  void* allocate(int64_t bytes) {
    // XLA refuses to align by more than 16.
    auto size = static_cast<size_t>(bytes) + RAL_ALIGNMENT;
    constexpr size_t kAlignment = 16;
    XLA_FFI_DeviceMemory_Allocate_Args args{
        XLA_FFI_DeviceMemory_Allocate_Args_STRUCT_SIZE, nullptr, frame_->ctx, size, kAlignment, nullptr};
    if (XLA_FFI_Error* error = frame_->api->XLA_FFI_DeviceMemory_Allocate(&args)) {
      throw Error(Error::kOutOfMemory, "XLA does not allocate " + std::to_string(bytes) +
                                           " bytes for intermediate values: " + message_of(frame_->api, error));
    }
    blocks_.emplace_back(args.data, size);
    return reinterpret_cast<void*>(align_up(reinterpret_cast<intptr_t>(args.data), RAL_ALIGNMENT));
  }

 private:
  const XLA_FFI_CallFrame* frame_;
  std::vector<std::pair<void*, size_t>> blocks_;
};

XLA_FFI_Error* execute_on_device(const XLA_FFI_CallFrame* frame) {
  const Executable* executable = published().find(number_of(frame->attrs));
  if (!executable) return of_another_process(frame->api);
  if (!executable->program().driver) return for_another_platform(frame->api);
  XLA_FFI_DeviceOrdinal_Get_Args device{XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE, nullptr, frame->ctx, 0};
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_DeviceOrdinal_Get(&device)) return error;
  if (device.device_ordinal != 0) {
    return make_error(frame->api, XLA_FFI_Error_Code_UNIMPLEMENTED,
                      "XLA runs this on GPU " + std::to_string(device.device_ordinal) +
                          ", but hlo_disc runs programs on GPU 0; put the arrays there");
  }
  XLA_FFI_Stream_Get_Args stream{XLA_FFI_Stream_Get_Args_STRUCT_SIZE, nullptr, frame->ctx, nullptr};
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_Stream_Get(&stream)) return error;
  Call call(executable->program());
  if (XLA_FFI_Error* error = bind(frame, call, 1)) return error;
  if (frame->stage == XLA_FFI_ExecutionStage_INITIALIZE) {
    prepare(call, executable->on_device());
    return nullptr;
  }
  char* arena = arena_of(frame, *executable, call.env.data());
  XlaScratch scratch(frame);
  const Program& program = call.program;
  // A recorded call has all of its memory from the start: what XLA gives meanwhile goes with the recording.
  char* workspace = program.multiplies ? arena + align_up(call.env[program.env.arena], RAL_ALIGNMENT) : nullptr;
  enqueue(call, executable->on_device(), stream.stream, arena, workspace,
          [&](int64_t bytes) { return scratch.allocate(bytes); });
  executable->count()->in_jit.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

// An executable that XLA programs keep: their state. It may go on any thread, when the interpreter has ended too.
class Held {
 public:
  Held(PyObject* self, const Executable* executable) : executable(executable), self_(Py_NewRef(self)) {}
  Held(const Held&) = delete;
  ~Held() { drop(self_); }
  const Executable* const executable;

 private:
  PyObject* self_;
};
using Hold = std::shared_ptr<const Held>;

// By number, while XLA compiles programs that will hold them.
struct Offered {
  std::mutex mutex;
  std::unordered_map<int64_t, Hold> holds;
};

Offered& offered() {
  static auto* all = new Offered;
  return *all;
}

XLA_FFI_TypeId state_type = XLA_FFI_UNKNOWN_TYPE_ID;  // XLA fills it in
XLA_FFI_TypeInfo state_info = {XLA_FFI_TypeInfo_STRUCT_SIZE, nullptr,
                               [](void* state) { delete static_cast<Hold*>(state); }};

XLA_FFI_Error* hold(const XLA_FFI_CallFrame* frame) {
  Hold found;
  {
    std::lock_guard<std::mutex> lock(offered().mutex);
    auto at = offered().holds.find(number_of(frame->attrs));
    if (at == offered().holds.end()) return of_another_process(frame->api);
    found = at->second;
  }
  auto* state = new Hold(std::move(found));
  XLA_FFI_State_Set_Args args{XLA_FFI_State_Set_Args_STRUCT_SIZE, nullptr,     frame->ctx,
                              XLA_FFI_ExecutionStage_INSTANTIATE, &state_type, state};
  XLA_FFI_Error* error = frame->api->XLA_FFI_State_Set(&args);
  if (error) delete state;
  return error;
}

// As a call from Python computes: on our threads, in memory of ours.
XLA_FFI_Error* execute_held(const XLA_FFI_CallFrame* frame) {
  if (frame->stage == XLA_FFI_ExecutionStage_INSTANTIATE) return hold(frame);
  XLA_FFI_State_Get_Args args{XLA_FFI_State_Get_Args_STRUCT_SIZE, nullptr,     frame->ctx,
                              XLA_FFI_ExecutionStage_INSTANTIATE, &state_type, nullptr};
  if (XLA_FFI_Error* error = frame->api->XLA_FFI_State_Get(&args)) return error;
  const Executable& executable = *(*static_cast<const Hold*>(args.state))->executable;
  Call call(executable.program());
  if (XLA_FFI_Error* error = bind(frame, call, 0)) return error;
  call.launch(0);
  return nullptr;
}

// Runs a published executable with nothing of XLA's that its first versions lack.
XLA_FFI_Error* execute_alone(const XLA_FFI_CallFrame* frame) {
  const Executable* executable = published().find(number_of(frame->attrs));
  if (!executable) return of_another_process(frame->api);
  if (executable->program().driver) return for_another_platform(frame->api);
  Call call(executable->program());
  if (XLA_FFI_Error* error = bind(frame, call, 0)) return error;
  call.launch(0);
  return nullptr;
}

template <XLA_FFI_Error* (*kExecute)(const XLA_FFI_CallFrame*), bool kHolds, XLA_FFI_Handler_Traits kTraits = 0>
XLA_FFI_Error* handle(XLA_FFI_CallFrame* frame) {
  if (frame->extension_start && frame->extension_start->type == XLA_FFI_Extension_Metadata) {
    XLA_FFI_Metadata* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame->extension_start)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = kRequiredMinor;
    if (kExecute == execute_alone && frame->api)  // which older ones may call
      metadata->api_version.minor_version = std::min(kRequiredMinor, frame->api->api_version.minor_version);
    metadata->traits = kTraits;
    if (kHolds) metadata->state_type_id = state_type;
    return nullptr;
  }
  try {
    return kExecute(frame);
  } catch (const Error& error) {
    auto code = error.which == Error::kCall          ? static_cast<XLA_FFI_Error_Code>(error.code)
                : error.which == Error::kOutOfMemory ? XLA_FFI_Error_Code_RESOURCE_EXHAUSTED
                : error.which == Error::kDevice      ? XLA_FFI_Error_Code_INTERNAL
                                                     : XLA_FFI_Error_Code_INVALID_ARGUMENT;
    return make_error(frame->api, code, error.what());
  } catch (const std::exception& error) {
    return make_error(frame->api, XLA_FFI_Error_Code_INTERNAL, error.what());
  }
}

}  // namespace

const Executable* published(int64_t number) { return published().find(number); }

int64_t publish(PyObject* self, const Executable* executable, int64_t content) {
  Published& all = published();
  std::unique_lock<std::shared_mutex> lock(all.mutex);
  for (int64_t number = content;; number = number == INT64_MAX ? 0 : number + 1) {
    auto [at, added] = all.executables.try_emplace(number, executable);
    if (added) Py_INCREF(self);
    if (at->second == executable) return number;
  }
}

int64_t offer(PyObject* self, const Executable* executable, int64_t content) {
  auto hold = std::make_shared<const Held>(self, executable);
  Offered& all = offered();
  std::lock_guard<std::mutex> lock(all.mutex);
  int64_t number = content;
  while (!all.holds.try_emplace(number, hold).second) number = number == INT64_MAX ? 0 : number + 1;
  return number;
}

void withdraw(int64_t number) {
  Hold hold;  // goes after the lock
  std::lock_guard<std::mutex> lock(offered().mutex);
  auto at = offered().holds.find(number);
  if (at == offered().holds.end()) return;
  hold = std::move(at->second);
  offered().holds.erase(at);
}

void* ffi_handler() { return reinterpret_cast<void*>(&handle<execute, false>); }
void* device_ffi_handler() { return reinterpret_cast<void*>(&handle<execute_on_device, false>); }
void* recordable_ffi_handler() {
  constexpr auto kTraits = XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE;
  return reinterpret_cast<void*>(&handle<execute_on_device, false, kTraits>);
}
void* alone_handler() { return reinterpret_cast<void*>(&handle<execute_alone, false>); }
void* held_handler() { return reinterpret_cast<void*>(&handle<execute_held, true>); }
void* held_type_id() { return &state_type; }
void* held_type_info() { return &state_info; }

int64_t ffi_temporary_bytes(const Executable& executable, const int64_t* env) {
  const Program& program = executable.program();
  int64_t bytes = align_up(env[program.env.arena], RAL_ALIGNMENT);
  if (!program.driver) bytes += program.workers * align_up(env[program.env.scratch], RAL_ALIGNMENT);
  if (program.multiplies) bytes += kProductWorkspace;
  return bytes ? bytes + RAL_ALIGNMENT - 1 : 0;  // XLA aligns its buffers by a rule of its own
}

}  // namespace ral
