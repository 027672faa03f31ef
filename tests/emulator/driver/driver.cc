// A stand-in for the drivers of CUDA and HIP: the memory is the host's, kernels are functions of the process, and a launch
// runs the emulator (`kernels.cc`). There are two GPUs. What is of one is refused by the other: its memory, kernels, and
// streams that something is put into.
//
// What a driver would not do is an error of the next call that asks for failures. Calls do their work at once, unless the
// driver is hostile: see `queues.h`.
#include "driver/driver.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "driver/devices.h"
#include "driver/memory.h"
#include "driver/queues.h"

namespace {

std::mutex mutex;
constexpr int kNotReady = 600, kLaunchFailed = 719;
int calls_left = -1, error_then = 0;
std::atomic<int> slowness{0};  // how long a call takes, in microseconds
thread_local int waits = 0;
thread_local void* last_stream = nullptr;  // of a launch

bool recording = false;
constexpr int kNotWhileRecording = 900;  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED

struct Event {
  queues::Moment moment;
  int device = devices::here();
};
std::set<const Event*> events;

struct Pool {
  int device;
};

}  // namespace

namespace driver {

int outcome() {
  if (int time = slowness) std::this_thread::sleep_for(std::chrono::microseconds(time));
  queues::pass_time();
  std::lock_guard<std::mutex> lock(mutex);
  if (calls_left > 0 && --calls_left == 0) return error_then;
  return recording ? kNotWhileRecording : 0;
}

int outcome_of_any() {
  int error = outcome();
  return error == kNotWhileRecording ? 0 : error;
}

void check_current() {
  if (devices::current() < 0) queues::fail("a call of the driver without a context");
}

bool takes(void* stream) {
  if (queues::is_hostile()) {
    check_current();
    if (!queues::has_stream(stream)) queues::fail("a call for a stream that is not there");
    if (devices::current() < 0 || !queues::has_stream(stream)) return false;
  }
  int device = queues::device_of(stream);
  if (device < 0 || device == devices::here()) return true;
  queues::fail("a call for a stream of another GPU");
  return false;
}

int refused() { return devices::current() < 0 ? kNoContext : kNoHandle; }

void record(bool on) { recording = on; }
bool is_recording() { return recording; }
void note_launch(void* stream) { last_stream = stream; }

}  // namespace driver

using namespace driver;

namespace {

// The same of a call that only waits for it: whose GPU the thread has does not matter.
bool waits_for(void* stream) {
  if (!queues::is_hostile()) return true;
  check_current();
  if (!queues::has_stream(stream)) queues::fail("a call for a stream that is not there");
  return devices::current() >= 0 && queues::has_stream(stream);
}

// An event that is there; null for others.
Event* taken(void* event) {
  std::lock_guard<std::mutex> lock(mutex);
  bool there = events.count(static_cast<Event*>(event));
  if (there && (devices::current() >= 0 || !queues::is_hostile())) return static_cast<Event*>(event);
  queues::fail("a call for an event that is not there, or without a context");
  return nullptr;
}

// Whether an event is of the GPU of this thread: others can be waited for, and not be recorded.
bool is_here(const Event& event) {
  if (event.device == devices::here()) return true;
  queues::fail("an event of another GPU is recorded");
  return false;
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

// From now on the driver is hostile, or no longer. strict: pageable memory of the host, too, is read when a copy is done.
void fake_hostile(uint64_t seed, bool strict) { queues::be_hostile(seed, strict); }
void fake_kind() {
  queues::be_kind();
  memory::trim();
}

// Does all work that streams have, which no wait of a program is.
void fake_finish() { queues::wait_for(queues::now(-1)); }

// What nobody makes by a call of the driver: a stream with this handle, pinned memory of the host (for no longer if it is
// of 0 bytes).
void fake_stream(void* stream) { queues::declare_stream(stream); }
void fake_pinned(uintptr_t address, size_t bytes) { memory::declare_pinned(address, bytes); }

// What went wrong since this was last asked, or an empty text.
const char* fake_failure() { return queues::failure(); }

// From now on each call takes so many microseconds, in which other threads run.
void fake_slow(int time) { slowness = time; }

// From now on each GPU has so much memory; 0 for what it had.
void fake_memory(size_t bytes) { memory::set_most(bytes); }

// What was made, and is there still: blocks of memory, modules, events, streams.
void fake_alive(size_t* counts) {
  counts[0] = memory::count();
  counts[1] = static_cast<size_t>(modules());
  counts[3] = queues::count();
  std::lock_guard<std::mutex> lock(mutex);
  counts[2] = events.size();
}

// The context of a GPU, and the GPU of this thread, -1 for none; how many contexts it has pushed, and not popped.
void* fake_context(int device) { return devices::context_of(device); }
int fake_current() { return devices::current(); }
int fake_pushed() { return devices::pushed(); }

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
void fake_launched(void* stream) { note_launch(stream); }
// Whether a stream is of the GPU of this thread.
bool fake_takes(void* stream) { return takes(stream); }

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
  return ordinal >= 0 && ordinal < devices::kCount ? 0 : 101;
}
int cuDevicePrimaryCtxRetain(void** made, int device) {
  *made = devices::context_of(device);
  return outcome();
}
int cuCtxPushCurrent_v2(void* context) {
  if (int error = outcome_of_any()) return error;
  int device = devices::device_of(context);
  if (device < 0) return kNoContext;
  devices::push(device);
  return 0;
}
int cuCtxPopCurrent_v2(void** popped) {
  int device = devices::here();
  if (!devices::pop()) {
    queues::fail("a context is popped that was not pushed");
    return kNoContext;
  }
  *popped = devices::context_of(device);
  return 0;
}
int cuMemGetInfo_v2(size_t* free, size_t* total) {
  check_current();
  memory::look(devices::here(), free, total);
  return outcome_of_any();
}
// properties: CUmemPoolProps, whose fourth word is a GPU.
int cuMemPoolCreate(void** pool, const int* properties) {
  if (properties[3] < 0 || properties[3] >= devices::kCount) return kInvalid;
  if (int error = outcome()) return error;
  *pool = new Pool{properties[3]};
  return 0;
}
int cuMemPoolTrimTo(void*, size_t) {
  if (int error = outcome()) return error;
  memory::trim();
  return 0;
}
int cuMemPoolSetAttribute(void*, int, void*) { return outcome(); }
static int allocate(uintptr_t* address, size_t bytes, int device, void* stream) {
  check_current();
  if (!takes(stream)) return refused();
  if (bytes == 0) return kInvalid;
  if (device != devices::here()) {
    queues::fail("memory of another GPU is asked for");
    return kInvalid;
  }
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
  *address = memory::allocate(bytes, stream, device);
  return *address ? 0 : 2;
}
int cuMemAllocAsync(uintptr_t* address, size_t bytes, void* stream) {
  return allocate(address, bytes, devices::here(), stream);
}
int cuMemAllocFromPoolAsync(uintptr_t* address, size_t bytes, void* pool, void* stream) {
  return allocate(address, bytes, static_cast<Pool*>(pool)->device, stream);
}
int cuMemFreeAsync(uintptr_t address, void* stream) {
  if (!takes(stream)) return refused();
  queues::pass_time();
  if (memory::release(address, stream)) return 0;
  queues::fail("memory is freed that is not there, or of another GPU");
  return 1;
}
// The same as of a framework, which sees to the context.
int fake_release(uintptr_t address, void* stream) {
  devices::push(0);
  int error = cuMemFreeAsync(address, stream);
  devices::pop();
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
  check_current();
  if (int error = outcome()) return error;
  auto* made = new Event;
  *event = made;
  std::lock_guard<std::mutex> lock(mutex);
  events.insert(made);
  return 0;
}
int cuEventRecord(void* event, void* stream) {
  Event* its = taken(event);
  if (!its || !takes(stream) || !is_here(*its)) return refused();
  if (int error = outcome()) return error;
  queues::put(stream, [] {});  // also an idle stream comes to it later
  its->moment = queues::now_of(stream);
  return 0;
}
int cuCtxRecordEvent(void* context, void* event) {
  Event* its = taken(event);
  if (!its) return refused();
  int device = devices::device_of(context);
  if (its->device != device) {
    queues::fail("an event of another GPU is recorded");
    return kNoHandle;
  }
  if (int error = outcome()) return error;
  its->moment = queues::now(device);
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
  if (!its || !waits_for(stream)) return refused();
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
  if (!waits_for(stream)) return refused();
  queues::destroy_stream(stream);
  return 0;
}
// Tells of what went wrong in launches since, as a driver does.
int cuStreamSynchronize(void* stream) {
  waits++;
  return waits_for(stream) ? waited(outcome(), queues::now_of(stream)) : refused();
}
int cuCtxSynchronize() {
  waits++;
  return waits_for(nullptr) ? waited(outcome(), queues::now(devices::here())) : refused();
}

// A thread of HIP's begins with the second GPU here, so that who needs the first one has to say so.
int hipGetDevice(int* device) {
  *device = devices::current() < 0 ? 1 : devices::current();
  return outcome_of_any();
}
int hipSetDevice(int device) {
  if (device < 0 || device >= devices::kCount) return 101;
  int error = device == 0 ? outcome_of_any() : 0;  // to go back cannot fail, as a pop of CUDA's cannot
  if (error) return error;
  devices::set(device);
  return 0;
}
SAME(hipInit, cuInit)
SAME(hipDrvGetErrorString, cuGetErrorString)
SAME(hipDeviceGet, cuDeviceGet)
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
