#include "library/library.h"

#include <atomic>
#include <cstring>
#include <shared_mutex>
#include <unordered_map>

#include "program/call.h"
#include "threads/floats.h"

namespace ral {
namespace {

using Deleter = void (*)(void* object);

struct StateTypes {
  std::shared_mutex mutex;
  std::unordered_map<int64_t, Deleter> deleters;
};

StateTypes& state_types() {
  static auto* types = new StateTypes;
  return *types;
}

// Null for a type that nobody has registered.
Deleter find_deleter(int64_t type_id) {
  StateTypes& types = state_types();
  std::shared_lock<std::shared_mutex> lock(types.mutex);
  auto found = types.deleters.find(type_id);
  return found == types.deleters.end() ? nullptr : found->second;
}

// The names of XLA_FFI_Error_Code, in order.
const char* const kCodes[] = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

int64_t bytes_of(const XLA_FFI_Buffer& buffer, int element) {
  int64_t bytes = element;
  for (int64_t i = 0; i < buffer.rank; i++) bytes *= buffer.dims[i];
  return bytes;
}

}  // namespace

State::~State() {
  if (!object) return;
  if (Deleter deleter = find_deleter(type.type_id)) deleter(object);
}

void register_state_type(int64_t type_id, Deleter deleter) {
  StateTypes& types = state_types();
  std::unique_lock<std::shared_mutex> lock(types.mutex);
  types.deleters[type_id] = deleter;
}

bool tells_version(XLA_FFI_CallFrame* frame) {
  if (!frame->extension_start || frame->extension_start->type != XLA_FFI_Extension_Metadata) return false;
  auto* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame->extension_start)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = kRequiredMinor;
  return true;
}

Run::Run(const ral_call& base, const Program& program, Tasks& tasks) : ral_call(base), program(program), tasks(tasks) {
  static std::atomic<int64_t> next{1};
  id = next.fetch_add(1, std::memory_order_relaxed);
}

int32_t Run::enter(ral_main_fn fn, int64_t* env, char* arena, void* const* bufs) {
  OwnFloats floats;
  return fn(this, env, arena, bufs);
}

// One call frame with all that its pointers refer to.
struct LibraryCall::Frame {
  Frame(const LibraryCall& call, const int64_t* record) {
    const size_t operands = record ? call.operands_.size() : 0, count = operands + (record ? call.results_.size() : 0);
    buffers.resize(count);
    pointers.resize(count);
    argument_types.assign(operands, XLA_FFI_ArgType_BUFFER);
    result_types.assign(count - operands, XLA_FFI_RetType_BUFFER);
    const int64_t* sizes = record + count;
    for (size_t i = 0; i < count; i++) {
      const Buffer& type = i < operands ? call.operands_[i] : call.results_[i - operands];
      // Not written through: the interface has no const.
      buffers[i] = {XLA_FFI_Buffer_STRUCT_SIZE,         nullptr,   static_cast<XLA_FFI_DataType>(type.dtype->xla),
                    reinterpret_cast<void*>(record[i]), type.rank, const_cast<int64_t*>(sizes)};
      pointers[i] = &buffers[i];
      sizes += type.rank;
    }
    frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
    frame.api = host_api();
    frame.ctx = &context;
    context.function = call.function_;
    frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, static_cast<int64_t>(operands), argument_types.data(),
                  pointers.data()};
    frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, static_cast<int64_t>(count - operands), result_types.data(),
                  pointers.data() + operands};
    frame.attrs = call.attributes_.view();
  }

  std::vector<XLA_FFI_Buffer> buffers;
  std::vector<void*> pointers;
  std::vector<XLA_FFI_ArgType> argument_types;
  std::vector<XLA_FFI_RetType> result_types;
  XLA_FFI_InvokeContext context;
  XLA_FFI_CallFrame frame{};
};

LibraryCall::LibraryCall(std::string where, const std::vector<XLA_FFI_Handler*>& handlers, Attributes attributes,
                         std::vector<Buffer> operands, std::vector<Buffer> results,
                         std::vector<std::pair<int, int>> aliases, bool skip_empty, Function* function)
    : where_(std::move(where)),
      handlers_(handlers),
      attributes_(std::move(attributes)),
      operands_(std::move(operands)),
      results_(std::move(results)),
      aliases_(std::move(aliases)),
      skip_empty_(skip_empty),
      function_(function) {
  handlers_.resize(kStages);
}

void LibraryCall::fail(const XLA_FFI_Error& error) const {
  if (error.cause) throw Error(Error::kCall, error.message, static_cast<int>(error.code), error.cause);
  size_t code = static_cast<size_t>(error.code);
  const char* name = code < sizeof kCodes / sizeof *kCodes ? kCodes[code] : "UNKNOWN";
  throw Error(Error::kCall, where_ + " failed: " + name + ": " + error.message, static_cast<int>(error.code));
}

void LibraryCall::instantiate() {
  OwnFloats floats;
  for (int stage = 0; stage < kStages; stage++) check(stage);
  Frame frame(*this, nullptr);
  frame.context.states[XLA_FFI_ExecutionStage_INSTANTIATE] = &state_;
  call(frame, XLA_FFI_ExecutionStage_INSTANTIATE);
}

void LibraryCall::check(int stage) const {
  if (!handlers_[stage]) return;
  Frame frame(*this, nullptr);
  XLA_FFI_Metadata metadata{};
  metadata.struct_size = sizeof metadata;
  XLA_FFI_Metadata_Extension extension{{XLA_FFI_Metadata_Extension_STRUCT_SIZE, XLA_FFI_Extension_Metadata, nullptr},
                                       &metadata};
  frame.frame.extension_start = &extension.extension_base;
  frame.frame.stage = static_cast<XLA_FFI_ExecutionStage>(stage);
  if (XLA_FFI_Error* error = handlers_[stage](&frame.frame)) fail(*std::unique_ptr<XLA_FFI_Error>(error));
  const int major = metadata.api_version.major_version, minor = metadata.api_version.minor_version;
  if (major != XLA_FFI_API_MAJOR || minor > kHostedMinor) {
    fail({XLA_FFI_Error_Code_FAILED_PRECONDITION, "its handler was built for version " + std::to_string(major) + "." +
                                                      std::to_string(minor) + " of the XLA FFI, this runtime has " +
                                                      std::to_string(XLA_FFI_API_MAJOR) + "." +
                                                      std::to_string(kHostedMinor)});
  }
  int64_t type = metadata.state_type_id.type_id;
  if (type != 0 && !find_deleter(type)) {
    fail({XLA_FFI_Error_Code_FAILED_PRECONDITION,
          "its handler keeps a state of a type that the runtime does not know how to destroy; name it with "
          "hlo_disc.register_ffi_type"});
  }
}

void LibraryCall::call(Frame& frame, int stage) const {
  if (!handlers_[stage]) return;
  frame.frame.stage = static_cast<XLA_FFI_ExecutionStage>(stage);
  frame.frame.future = nullptr;
  std::unique_ptr<XLA_FFI_Error> error(handlers_[stage](&frame.frame));
  if (frame.frame.future) {
    std::unique_ptr<XLA_FFI_Error> later = wait_for(frame.frame.future);
    if (!error) error = std::move(later);
  }
  if (!floats_are_own()) set_own_floats();  // for what comes next: a handler may leave another mode
  if (error) fail(*error);
}

// Whether there is nothing to compute; the results are complete then.
bool LibraryCall::skip(Frame& frame) const {
  const size_t operands = operands_.size();
  const bool nothing = (operands && bytes_of(frame.buffers[0], 1) == 0) ||
                       (!results_.empty() && bytes_of(frame.buffers[operands], 1) == 0);
  for (size_t k = 0; nothing && k < results_.size(); k++) {
    bool given = false;
    for (auto [operand, result] : aliases_) given |= result == static_cast<int>(k);
    XLA_FFI_Buffer& buffer = frame.buffers[operands + k];
    if (!given) std::memset(buffer.data, 0, static_cast<size_t>(bytes_of(buffer, results_[k].dtype->bytes)));
  }
  return nothing;
}

void LibraryCall::run(Run& run, const int64_t* record) const {
  Frame frame(*this, record);
  State prepared, initialized;
  frame.context.run = &run;
  frame.context.states[XLA_FFI_ExecutionStage_INSTANTIATE] = const_cast<State*>(&state_);  // handlers only get it
  frame.context.states[XLA_FFI_ExecutionStage_PREPARE] = &prepared;
  frame.context.states[XLA_FFI_ExecutionStage_INITIALIZE] = &initialized;
  for (auto [operand, result] : aliases_) {
    XLA_FFI_Buffer& from = frame.buffers[operand];
    void* to = frame.buffers[operands_.size() + result].data;
    if (from.data != to)
      std::memcpy(to, from.data, static_cast<size_t>(bytes_of(from, operands_[operand].dtype->bytes)));
    from.data = to;
  }
  if (skip_empty_ && skip(frame)) return;
  for (int stage = XLA_FFI_ExecutionStage_PREPARE; stage <= XLA_FFI_ExecutionStage_EXECUTE; stage++) call(frame, stage);
}

// Nothing may be thrown through generated code.
int32_t run_library_call(ral_call* call, int32_t index, const int64_t* record) {
  Run& run = *static_cast<Run*>(call);
  try {
    run.program.calls.at(static_cast<size_t>(index))->run(run, record);
    return 0;
  } catch (const Error& error) {
    run.error = error;
  } catch (const std::bad_alloc&) {
    run.error = Error(Error::kOutOfMemory, "no memory to call a library function");
  } catch (const std::exception& error) {
    run.error = Error(Error::kCall, error.what(), XLA_FFI_Error_Code_INTERNAL);
  }
  return RAL_FAILED;
}

void* run_allocate(ral_call* call, int32_t what, const int64_t* sizes) {
  Run& run = *static_cast<Run*>(call);
  try {
    if (what >= 0) {
      if (!run.call)
        throw Error(Error::kShape,
                    "the sizes of output " + std::to_string(what) + " depend on data, which XLA cannot know");
      return run.call->allocate_output(what, sizes);
    }
    if (sizes[0] >= RAL_BEYOND_MEMORY)
      throw Error(Error::kOutOfMemory,
                  "an array of a size that depends on data has more elements or bytes than 64 bits can count");
    if (sizes[0] < 0 || sizes[0] > INT64_MAX / 1024) out_of_memory(sizes[0], "intermediate values");
    int64_t bytes = align_up(sizes[0], RAL_ALIGNMENT);
    if (what == RAL_SCRATCH) {
      if (bytes <= run.scratch_bytes) return &run;
      bytes *= run.workers;
    }
    Block block(bytes, Use::kTemporary);
    if (!block) out_of_memory(bytes, "intermediate values");
    run.blocks.push_back(std::move(block));
    char* data = run.blocks.back().data();
    if (what == RAL_SCRATCH) {
      run.scratch = data;
      run.scratch_bytes = bytes / run.workers;
    }
    return data;
  } catch (const Error& error) {
    run.error = error;
  } catch (const std::exception& error) {
    run.error = Error(Error::kOutOfMemory, error.what());
  }
  return nullptr;
}

void check_status(const Run& run, int32_t status, const int64_t* env) {
  if (status == 0) return;
  if (run.error) throw *run.error;
  if (status >= RAL_MAIN_BROKEN) run.program.broken_guard(static_cast<size_t>(status) - RAL_MAIN_BROKEN, env);
  throw std::logic_error("main returned status " + std::to_string(status) + " without a reason");
}

}  // namespace ral

extern "C" void* ral_allocate(ral_call* call, int32_t what, const int64_t* sizes) {
  return call->allocate(call, what, sizes);
}

extern "C" int32_t ral_library_call(ral_call* call, int32_t index, const int64_t* record) {
  return call->library_call(call, index, record);
}
