// A stand-in for the drivers of CUDA and HIP: the memory is the host's, kernels are functions of the process, and a launch runs the
// emulator. An image is a list of kernels' names, addresses and how much shared memory launches of them may ask for, which
// ends with a null, behind a word that says so.
//
// What a driver would not do is an error of the next call that asks for failures. Calls do their work at once, unless the
// driver is hostile: see `queues.h`.
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "memory.h"
#include "queues.h"
#include "simt.h"

extern "C" {
void simt_launch(void (*kernel)(const void*), int64_t blocks, int64_t threads, int64_t shared, const void* record);
void simt_warp(int threads);
}

namespace {

constexpr uint64_t kImage = 0x746d69735f636c68;
constexpr int kNoContext = 201, kOtherGpu = 209, kNoHandle = 400, kNotReady = 600, kLaunchFailed = 719;
// Shared memory of a kernel of CUDA's that has not been given more, with what it has under names.
constexpr int64_t kUnasked = 48 << 10;
constexpr int kMostShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

// A kernel of an image, which is what the driver calls a function. named, most: bytes of shared memory that it has under
// names, and that a block may have.
struct Kernel {
  const char* name;
  void (*run)(const void*);
  int64_t named, most;
};

std::mutex mutex;
std::map<const void*, int64_t> given;  // shared memory that launches of a kernel may ask for, where somebody said so
int context, calls_left = -1, error_then = 0;
std::atomic<int> modules_loaded{0};
thread_local int current = 0;
thread_local int waits = 0;
thread_local void* last_stream = nullptr;  // of a launch

// While a stream is recorded, launches are kept, and everything else is refused.
struct Recorded {
  void (*run)(const void*);
  int64_t blocks, threads, shared;
  int warp;
  std::string record;
};
bool recording = false, idling = false;
std::vector<Recorded> recorded;
constexpr int kNotWhileRecording = 900;  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED

struct Event {
  queues::Moment moment;
};
std::set<const Event*> events;

// Of a hostile driver: where a kernel is from, and how many launches a module has to come.
std::map<const void*, void*> module_of;
std::map<void*, int> to_come;

// What a call returns: mostly 0.
int outcome() {
  queues::pass_time();
  std::lock_guard<std::mutex> lock(mutex);
  if (calls_left > 0 && --calls_left == 0) return error_then;
  return recording ? kNotWhileRecording : 0;
}

// Of a call that has nothing to do with streams or memory.
int outcome_of_any() {
  int error = outcome();
  return error == kNotWhileRecording ? 0 : error;
}

void check_current() {
  if (current < 1) queues::fail("a call of the driver without a context, or on another GPU");
}

// Whether a hostile driver takes a call that is about a stream. Others take those of threads without a context, and for
// streams that nobody made.
bool takes(void* stream) {
  if (!queues::is_hostile()) return true;
  if (current < 1) queues::fail("a call of the driver without a context, or on another GPU");
  if (!queues::has_stream(stream)) queues::fail("a call for a stream that is not there");
  return current > 0 && queues::has_stream(stream);
}

int refused() { return current < 1 ? kNoContext : kNoHandle; }

// The same of an event.
Event* taken(void* event) {
  std::lock_guard<std::mutex> lock(mutex);
  bool there = events.count(static_cast<Event*>(event));
  if (there && (current > 0 || !queues::is_hostile())) return static_cast<Event*>(event);
  queues::fail("a call for an event that is not there, or without a context");
  return nullptr;
}

// A planted failure of a wait is told when what it waits for is done, for of a GPU that failed nothing runs any more.
int waited(int error, const queues::Moment& moment) {
  if (error == kNotWhileRecording) return error;
  queues::wait_for(moment);
  if (error) return error;
  return queues::has_failed() ? kLaunchFailed : 0;
}

void copy(uintptr_t to, uintptr_t from, size_t bytes) {
  if (!memory::is_inside(from, bytes) || !memory::is_inside(to, bytes))
    return queues::fail("a copy of what is no memory of the GPU");
  memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
}

void copy_in(uintptr_t to, const void* from, size_t bytes) {
  if (!memory::is_inside(to, bytes)) return queues::fail("a copy to what is no memory of the GPU");
  if (!memory::read_host(reinterpret_cast<void*>(to), from, bytes))
    queues::fail("a copy from memory of the host that is gone");
}

void copy_out(void* to, uintptr_t from, size_t bytes) {
  if (!memory::is_inside(from, bytes)) return queues::fail("a copy from what is no memory of the GPU");
  memcpy(to, reinterpret_cast<void*>(from), bytes);
}

}  // namespace

extern "C" {

// The n-th call from now returns an error; 0 cancels.
void fake_fail(int n, int error) {
  std::lock_guard<std::mutex> lock(mutex);
  calls_left = n ? n : -1;
  error_then = error;
}

// Records what is launched from now on; or no longer.
void fake_record(bool on) {
  if (on) recorded.clear();
  recording = on;
}

// From now on the driver is hostile, or no longer. strict: pageable memory of the host, too, is read when a copy is done.
void fake_hostile(uint64_t seed, bool strict) { queues::be_hostile(seed, strict); }
void fake_kind() {
  queues::be_kind();
  memory::trim();
}

// Does all work that streams have, which no wait of a program is.
void fake_finish() { queues::wait_for(queues::now()); }

// What nobody makes by a call of the driver: a stream with this handle, pinned memory of the host (for no longer if it is
// of 0 bytes).
void fake_stream(void* stream) { queues::declare_stream(stream); }
void fake_pinned(uintptr_t address, size_t bytes) { memory::declare_pinned(address, bytes); }

// What went wrong since this was last asked, or an empty text.
// How many modules are loaded.
int fake_modules() { return modules_loaded; }

const char* fake_failure() { return queues::failure(); }

// Launches do nothing from now on; or no longer.
void fake_idle(bool on) { idling = on; }

// Runs what was recorded. Returns how many launches that were.
int fake_replay() {
  queues::wait_for(queues::now());
  for (const Recorded& x : recorded) {
    simt_warp(x.warp);
    simt_launch(x.run, x.blocks, x.threads, x.shared, x.record.data());
  }
  return static_cast<int>(recorded.size());
}

// How often this thread has waited.
int fake_waits() { return waits; }

// Where this thread launched last.
int64_t fake_last_stream() { return reinterpret_cast<int64_t>(last_stream); }

// For libraries that stand beside the driver: whether memory is the GPU's, what a call returns, and a launch of theirs.
bool fake_inside(uintptr_t address, size_t bytes) { return memory::is_inside(address, bytes); }
int fake_outcome() {
  check_current();
  return outcome();
}
void fake_launched(void* stream) { last_stream = stream; }

int cuInit(unsigned) { return 0; }
int cuGetErrorString(int error, const char** text) {
  *text = error == 2               ? "out of memory"
          : error == 500           ? "named symbol not found"
          : error == kLaunchFailed ? queues::failure()
                                   : "a planted failure";
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? 0 : 101;
}
int cuDevicePrimaryCtxRetain(void** made, int) {
  *made = &context;
  return outcome();
}
int cuCtxPushCurrent_v2(void*) {
  if (int error = outcome_of_any()) return error;
  current++;
  return 0;
}
int cuCtxPopCurrent_v2(void** popped) {
  *popped = &context;
  current--;
  return 0;
}
int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
  check_current();
  if (*static_cast<const uint64_t*>(image) != kImage) return kOtherGpu;
  *module = const_cast<void*>(image);
  if (int error = outcome()) return error;
  modules_loaded++;
  return 0;
}
int cuModuleUnload(void* module) {
  modules_loaded--;
  std::unique_lock<std::mutex> lock(mutex);
  if (to_come[module] == 0) return 0;
  lock.unlock();
  queues::fail("a module is unloaded before its kernels have run");
  queues::wait_for(queues::now());
  return 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  for (auto* kernel = reinterpret_cast<Kernel*>(static_cast<uint64_t*>(module) + 1); kernel->name; kernel++) {
    if (strcmp(kernel->name, name) == 0) {
      *function = kernel;
      {
        std::lock_guard<std::mutex> lock(mutex);
        given.erase(kernel);
        module_of[kernel] = module;
      }
      return outcome();
    }
  }
  return 500;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
  auto* kernel = static_cast<const Kernel*>(function);
  if (attribute != kMostShared || value > kernel->most - kernel->named) return 1;
  if (int error = outcome()) return error;
  std::lock_guard<std::mutex> lock(mutex);
  given[kernel] = value;
  return 0;
}
// In whose words a launch describes its arguments, how many threads a warp has, and whether a kernel has to be given
// more shared memory before it is asked for.
struct Machine {
  uintptr_t end_of_record;
  int warp;
  bool gives;
};

static int64_t most_shared(const Machine& machine, const Kernel& kernel) {
  if (!machine.gives) return kernel.most - kernel.named;
  std::lock_guard<std::mutex> lock(mutex);
  auto found = given.find(&kernel);
  return found == given.end() ? kUnasked - kernel.named : found->second;
}

static int launch(const Machine& machine, void* stream, void* function, unsigned blocks_x, unsigned blocks_y,
                  unsigned blocks_z, unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared,
                  void** packed) {
  last_stream = stream;
  check_current();
  if (!takes(stream)) return refused();
  if (!blocks_x || !threads_x || threads_x > 1024 || blocks_y * blocks_z * threads_y * threads_z != 1) return 1;
  if (reinterpret_cast<uintptr_t>(packed[4]) != machine.end_of_record) return 1;
  auto& kernel = *static_cast<const Kernel*>(function);
  if (shared > most_shared(machine, kernel)) return 1;
  // A driver has copied the arguments when the call returns.
  auto copied = [&] {
    return std::string(static_cast<const char*>(packed[1]), *static_cast<const size_t*>(packed[3]));
  };
  if (recording) {
    recorded.push_back({kernel.run, blocks_x, threads_x, shared, machine.warp, copied()});
    return 0;
  }
  if (int error = outcome()) return error;
  if (idling) return 0;
  auto run = [=, record = copied(), run = kernel.run, warp = machine.warp] {
    simt_warp(warp);
    simt_launch(run, blocks_x, threads_x, shared, record.data());
  };
  if (!queues::is_hostile()) return run(), 0;
  void* module;
  {
    std::lock_guard<std::mutex> lock(mutex);
    module = module_of[&kernel];
    to_come[module]++;
  }
  queues::put(stream, [run, module] {
    run();
    std::lock_guard<std::mutex> lock(mutex);
    to_come[module]--;
  });
  return 0;
}

int cuLaunchKernel(void* function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,
                   unsigned threads_y, unsigned threads_z, unsigned shared, void* stream, void**, void** packed) {
  return launch({0, 32, true}, stream, function, blocks_x, blocks_y, blocks_z, threads_x, threads_y, threads_z, shared,
                packed);
}
int hipModuleLaunchKernel(void* function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,
                          unsigned threads_y, unsigned threads_z, unsigned shared, void* stream, void**,
                          void** packed) {
  return launch({3, 64, false}, stream, function, blocks_x, blocks_y, blocks_z, threads_x, threads_y, threads_z, shared,
                packed);
}
int cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = size_t{1} << 33;
  *total = size_t{1} << 34;
  return outcome_of_any();
}
int cuMemPoolCreate(void** pool, const void*) {
  *pool = &context;
  return outcome();
}
int cuMemPoolTrimTo(void*, size_t) {
  if (int error = outcome()) return error;
  memory::trim();
  return 0;
}
int cuMemPoolSetAttribute(void*, int, void*) { return outcome(); }
int cuMemAllocAsync(uintptr_t* address, size_t bytes, void* stream) {
  check_current();
  if (!takes(stream)) return refused();
  // Where there is too little memory, there is too little when it is asked for again, too.
  thread_local bool is_short = false;
  if (is_short) {
    is_short = false;
    return 2;
  }
  if (int error = outcome()) {
    is_short = error == 2;
    return error;
  }
  *address = memory::allocate(bytes, stream);
  return *address ? 0 : 2;
}
int cuMemAllocFromPoolAsync(uintptr_t* address, size_t bytes, void*, void* stream) {
  return cuMemAllocAsync(address, bytes, stream);
}
int cuMemFreeAsync(uintptr_t address, void* stream) {
  if (!takes(stream)) return refused();
  queues::pass_time();
  if (memory::release(address, stream)) return 0;
  queues::fail("memory is freed that is not there");
  return 1;
}
// The same as of a framework, which sees to the context.
int fake_release(uintptr_t address, void* stream) {
  current++;
  int error = cuMemFreeAsync(address, stream);
  current--;
  return error;
}
// Pinned memory is read when the copy is done. CUDA has read any other when the call returns, today: nothing says that it
// always will.
int cuMemcpyHtoDAsync_v2(uintptr_t to, const void* from, size_t bytes, void* stream) {
  check_current();
  if (!takes(stream)) return refused();
  if (int error = outcome()) return error;
  if (!queues::is_hostile() || queues::is_strict() || memory::is_pinned(from, bytes)) {
    queues::put(stream, [=] { copy_in(to, from, bytes); });
  } else {
    std::string contents(static_cast<const char*>(from), bytes);
    queues::put(stream, [=] { copy_in(to, contents.data(), bytes); });
  }
  return 0;
}
// What is not pinned has been written when the call returns.
int cuMemcpyDtoHAsync_v2(void* to, uintptr_t from, size_t bytes, void* stream) {
  check_current();
  if (!takes(stream)) return refused();
  if (int error = outcome()) return error;
  queues::put(stream, [=] { copy_out(to, from, bytes); });
  if (queues::is_hostile() && !memory::is_pinned(to, bytes)) queues::wait_for(queues::now_of(stream));
  return 0;
}
int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t bytes, void* stream) {
  check_current();
  if (!takes(stream)) return refused();
  if (int error = outcome()) return error;
  queues::put(stream, [=] { copy(to, from, bytes); });
  return 0;
}
int cuEventCreate(void** event, unsigned) {
  if (int error = outcome()) return error;
  auto* made = new Event;
  *event = made;
  std::lock_guard<std::mutex> lock(mutex);
  events.insert(made);
  return 0;
}
int cuEventRecord(void* event, void* stream) {
  Event* its = taken(event);
  if (!its || !takes(stream)) return refused();
  if (int error = outcome()) return error;
  queues::put(stream, [] {});  // also an idle stream comes to it later
  its->moment = queues::now_of(stream);
  return 0;
}
int cuCtxRecordEvent(void*, void* event) {
  Event* its = taken(event);
  if (!its) return refused();
  if (int error = outcome()) return error;
  its->moment = queues::now();
  return 0;
}
int cuEventQuery(void* event) {
  Event* its = taken(event);
  if (!its) return refused();
  if (int error = outcome()) return waited(error, its->moment);
  return queues::is_past(its->moment) ? 0 : kNotReady;
}
int cuEventSynchronize(void* event) {
  Event* its = taken(event);
  return its ? waited(outcome(), its->moment) : refused();
}
int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  Event* its = taken(event);
  if (!its || !takes(stream)) return refused();
  if (int error = outcome()) return error;
  queues::put(stream, [] {}, its->moment);
  return 0;
}
int cuStreamCreate(void** stream, unsigned) {
  check_current();
  if (int error = outcome()) return error;
  *stream = queues::create_stream();
  return 0;
}
int cuStreamDestroy_v2(void* stream) {
  if (!takes(stream)) return refused();
  queues::destroy_stream(stream);
  return 0;
}
// Tells of what went wrong in launches since, as a driver does.
int cuStreamSynchronize(void* stream) {
  waits++;
  return takes(stream) ? waited(outcome(), queues::now_of(stream)) : refused();
}
int cuCtxSynchronize() {
  waits++;
  return takes(nullptr) ? waited(outcome(), queues::now()) : refused();
}

// A thread of HIP's has a device; the one that there is is 0.
int hipGetDevice(int* device) {
  *device = current < 1;
  return outcome_of_any();
}
int hipSetDevice(int device) {
  if (int error = outcome_of_any()) return error;
  current = device == 0;
  return 0;
}
#define SAME(hip, cuda) decltype(cuda) hip __attribute__((alias(#cuda)));
SAME(hipInit, cuInit)
SAME(hipDrvGetErrorString, cuGetErrorString)
SAME(hipDeviceGet, cuDeviceGet)
SAME(hipModuleLoadDataEx, cuModuleLoadDataEx)
SAME(hipModuleUnload, cuModuleUnload)
SAME(hipModuleGetFunction, cuModuleGetFunction)
SAME(hipMemGetInfo, cuMemGetInfo_v2)
SAME(hipMemPoolCreate, cuMemPoolCreate)
SAME(hipMemPoolSetAttribute, cuMemPoolSetAttribute)
SAME(hipMemPoolTrimTo, cuMemPoolTrimTo)
SAME(hipMallocFromPoolAsync, cuMemAllocFromPoolAsync)
SAME(hipMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2)
SAME(hipEventCreateWithFlags, cuEventCreate)
SAME(hipEventRecord, cuEventRecord)
SAME(hipEventQuery, cuEventQuery)
SAME(hipEventSynchronize, cuEventSynchronize)
SAME(hipDeviceSynchronize, cuCtxSynchronize)
SAME(hipMallocAsync, cuMemAllocAsync)
SAME(hipFreeAsync, cuMemFreeAsync)
SAME(hipMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2)
SAME(hipMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2)
SAME(hipStreamCreateWithFlags, cuStreamCreate)
SAME(hipStreamSynchronize, cuStreamSynchronize)
}
