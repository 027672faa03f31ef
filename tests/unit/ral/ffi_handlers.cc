// Handlers of a user's own, for the tests of the runtime that hosts them.
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using F32 = ffi::Buffer<ffi::F32>;

// y = factor * x + offsets[0]; refuses negative numbers.
static ffi::Error Scale(F32 x, ffi::ResultBuffer<ffi::F32> y, float factor, ffi::Span<const int64_t> offsets,
                        std::string_view name, ffi::Dictionary nested) {
  if (name != "scale" || !nested.get<bool>("yes").value())
    return ffi::Error::InvalidArgument("the attributes are wrong");
  for (size_t i = 0; i < x.element_count(); i++) {
    if (x.typed_data()[i] < 0) return ffi::Error::InvalidArgument("element " + std::to_string(i) + " is negative");
    y->typed_data()[i] = factor * x.typed_data()[i] + static_cast<float>(offsets[0]);
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(scale, Scale,
                              ffi::Ffi::Bind()
                                  .Arg<F32>()
                                  .Ret<F32>()
                                  .Attr<float>("factor")
                                  .Attr<ffi::Span<const int64_t>>("offsets")
                                  .Attr<std::string_view>("name")
                                  .Attr<ffi::Dictionary>("nested"));

// The shapes that it sees, and whether operand and result are one buffer: (rank, dims..., same).
static ffi::Error Look(ffi::AnyBuffer x, ffi::Result<ffi::AnyBuffer> y, ffi::ResultBuffer<ffi::S64> seen) {
  int64_t* to = seen->typed_data();
  *to++ = static_cast<int64_t>(x.dimensions().size());
  for (int64_t d : x.dimensions()) *to++ = d;
  *to++ = x.untyped_data() == y->untyped_data();
  if (x.untyped_data() != y->untyped_data()) std::memcpy(y->untyped_data(), x.untyped_data(), x.size_bytes());
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    look, Look, ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>().Ret<ffi::Buffer<ffi::S64>>());

// Fills y by tasks on the runtime's threads, in scratch memory first.
static ffi::Error Tasks(F32 x, ffi::ResultBuffer<ffi::F32> y, ffi::ThreadPool pool, ffi::ScratchAllocator scratch,
                        ffi::RunId run, int32_t device) {
  const size_t n = x.element_count();
  auto memory = scratch.Allocate(n * sizeof(float) + 1, 256);
  if (!memory || reinterpret_cast<uintptr_t>(*memory) % 64) return ffi::Error::Internal("no scratch");
  if (pool.num_threads() < 1 || run.run_id < 1 || device != 0) return ffi::Error::Internal("no context");
  float* between = static_cast<float*>(*memory);
  std::mutex mutex;
  std::condition_variable ready;
  size_t left = n;
  for (size_t i = 0; i < n; i++) {
    pool.Schedule([&, i] {
      between[i] = 2 * x.typed_data()[i];
      std::lock_guard<std::mutex> lock(mutex);
      if (--left == 0) ready.notify_all();
    });
  }
  std::unique_lock<std::mutex> lock(mutex);
  ready.wait(lock, [&] { return left == 0; });
  std::memcpy(y->typed_data(), between, n * sizeof(float));
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(tasks, Tasks,
                              ffi::Ffi::Bind()
                                  .Arg<F32>()
                                  .Ret<F32>()
                                  .Ctx<ffi::ThreadPool>()
                                  .Ctx<ffi::ScratchAllocator>()
                                  .Ctx<ffi::RunId>()
                                  .Ctx<ffi::DeviceOrdinal>());

// How many of as many tasks as there are elements run on the thread of the call.
static ffi::Error Alone(F32 x, ffi::ResultBuffer<ffi::S64> y, ffi::ThreadPool pool) {
  const std::thread::id self = std::this_thread::get_id();
  std::atomic<size_t> left{x.element_count()};
  std::atomic<int64_t> alone{0};
  for (size_t i = 0; i < x.element_count(); i++) {
    pool.Schedule([&] {
      alone += std::this_thread::get_id() == self;
      left--;
    });
  }
  while (left) std::this_thread::yield();
  y->typed_data()[0] = alone;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(alone, Alone,
                              ffi::Ffi::Bind().Arg<F32>().Ret<ffi::Buffer<ffi::S64>>().Ctx<ffi::ThreadPool>());

static ffi::Error Nothing(F32 x, ffi::ResultBuffer<ffi::S64> y) { return ffi::Error::Success(); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(nothing, Nothing, ffi::Ffi::Bind().Arg<F32>().Ret<ffi::Buffer<ffi::S64>>());

// Of two blocks of scratch memory and what is none, which may be given back: 1 for each that may.
extern "C" XLA_FFI_Error* give_back(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Error* error = nothing(frame);
  if (error || frame->extension_start) return error;
  constexpr size_t kBytes = 256;
  char* blocks[2];
  for (char*& block : blocks) {
    XLA_FFI_DeviceMemory_Allocate_Args args{XLA_FFI_DeviceMemory_Allocate_Args_STRUCT_SIZE, nullptr, frame->ctx, kBytes,
                                            64};
    if ((error = frame->api->XLA_FFI_DeviceMemory_Allocate(&args))) return error;
    block = static_cast<char*>(args.data);
  }
  void* operand = static_cast<XLA_FFI_Buffer*>(frame->args.args[0])->data;
  int64_t* to = static_cast<int64_t*>(static_cast<XLA_FFI_Buffer*>(frame->rets.rets[0])->data);
  for (void* data :
       {operand, static_cast<void*>(blocks[0]), static_cast<void*>(blocks[0]), static_cast<void*>(blocks[1])}) {
    XLA_FFI_DeviceMemory_Free_Args args{XLA_FFI_DeviceMemory_Free_Args_STRUCT_SIZE, nullptr, frame->ctx, kBytes, data};
    error = frame->api->XLA_FFI_DeviceMemory_Free(&args);
    *to++ = error == nullptr;
    XLA_FFI_Error_Destroy_Args gone{XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, error};
    if (error) frame->api->XLA_FFI_Error_Destroy(&gone);
  }
  return nullptr;
}

// Goes on after it has returned; fails when the first element is negative.
static ffi::Future Later(F32 x, ffi::ResultBuffer<ffi::F32> y) {
  ffi::Promise promise;
  ffi::Future future(promise);
  std::thread([x, y, promise = std::move(promise)]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (x.typed_data()[0] < 0) {
      promise.SetError(ffi::Error(ffi::ErrorCode::kAborted, "later it failed"));
      return;
    }
    std::memcpy(y->typed_data(), x.typed_data(), x.size_bytes());
    promise.SetAvailable();
  }).detach();
  return future;
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(later, Later, ffi::Ffi::Bind().Arg<F32>().Ret<F32>());

// A state made with the executable, and one of each call.
static std::atomic<int64_t> alive{0};
struct Count {
  static ffi::TypeId id;
  static ffi::TypeInfo info;
  Count(int64_t start) : value(start) { alive++; }
  ~Count() { alive--; }
  std::atomic<int64_t> value;
};
ffi::TypeId Count::id = {};
ffi::TypeInfo Count::info = ffi::MakeTypeInfo<Count>();

static ffi::ErrorOr<std::unique_ptr<Count>> Begin(int64_t start) {
  if (start < 0) return ffi::Unexpected(ffi::Error(ffi::ErrorCode::kOutOfRange, "cannot start below zero"));
  return std::make_unique<Count>(start);
}
static ffi::ErrorOr<std::unique_ptr<Count>> Prepare() { return std::make_unique<Count>(100); }
static ffi::Error Next(ffi::ResultBuffer<ffi::S64> y, Count* count, Count* prepared, int64_t start) {
  y->typed_data()[0] = count->value++;
  y->typed_data()[1] = prepared->value++;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(begin, Begin, ffi::Ffi::BindInstantiate().Attr<int64_t>("start"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(prepare, Prepare, ffi::Ffi::BindPrepare());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    next_, Next,
    ffi::Ffi::Bind().Ret<ffi::Buffer<ffi::S64>>().Ctx<ffi::State<Count>>().Ctx<ffi::Prepared<Count>>().Attr<int64_t>(
        "start"));

// Sets its state twice; a second one that is refused is the handler's still.
extern "C" XLA_FFI_Error* begin_twice(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Error* error = begin(frame);
  if (error || frame->extension_start) return error;
  auto second = std::make_unique<Count>(0);
  XLA_FFI_State_Set_Args args{XLA_FFI_State_Set_Args_STRUCT_SIZE, nullptr,    frame->ctx,
                              XLA_FFI_ExecutionStage_INSTANTIATE, &Count::id, second.get()};
  if ((error = frame->api->XLA_FFI_State_Set(&args))) return error;
  second.release();
  return nullptr;
}

extern "C" void* count_id() { return &Count::id; }
extern "C" void* count_info() { return &Count::info; }
extern "C" int64_t count_alive() { return alive.load(); }

// What a host on a CPU has not.
static ffi::Error Stream(ffi::ResultBuffer<ffi::S64> y, void* stream) { return ffi::Error::Success(); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(stream, Stream,
                              ffi::Ffi::Bind().Ret<ffi::Buffer<ffi::S64>>().Ctx<ffi::PlatformStream<void*>>());
