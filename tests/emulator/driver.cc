// A stand-in for the drivers of CUDA and HIP: the memory is the host's, kernels are functions of the process, and a launch runs the
// emulator. An image is a list of kernels' names, addresses and how much shared memory launches of them may ask for, which
// ends with a null, behind a word that says so.
//
// Blocks of memory begin and end with words that nobody may change; their contents are NaN at first. What a driver
// would not do is an error of the next call that asks for failures.
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "simt.h"

extern "C" {
void simt_launch(void (*kernel)(const void*), int64_t blocks, int64_t threads, int64_t shared, const void* record);
void simt_fail(const char* what);
void simt_warp(int threads);
bool simt_failed();
const char* simt_failure();
}

namespace {

constexpr uint64_t kImage = 0x746d69735f636c68;
constexpr uint64_t kGuard = 0x5eadbeef5eadbeef;
constexpr size_t kMargin = 256;
constexpr int kLaunchFailed = 719;
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
std::map<uintptr_t, simt::Region> blocks;
std::map<const void*, int64_t> given;  // shared memory that launches of a kernel may ask for, where somebody said so
int context, calls_left = -1, error_then = 0;
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

// What a call returns: mostly 0.
int outcome() {
  std::lock_guard<std::mutex> lock(mutex);
  if (calls_left > 0 && --calls_left == 0) return error_then;
  return recording ? kNotWhileRecording : 0;
}

// Of a call that has nothing to do with streams or memory.
int outcome_of_any() {
  int error = outcome();
  return error == kNotWhileRecording ? 0 : error;
}

void fill(uintptr_t address, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 8) memcpy(reinterpret_cast<void*>(address + i), &kGuard, 8);
}

bool whole(uintptr_t address, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 8) {
    if (memcmp(reinterpret_cast<void*>(address + i), &kGuard, 8) != 0) return false;
  }
  return true;
}

// Is this range inside one block?
bool is_inside(uintptr_t address, size_t bytes) {
  simt::Region* block = simt::find_region(address);
  return block && bytes <= block->bytes - (address - block->start);
}

void check_current() {
  if (current < 1) simt_fail("a call of the driver without a context, or on another GPU");
}

}  // namespace

simt::Region* simt::find_region(uintptr_t address) {
  std::lock_guard<std::mutex> lock(mutex);
  auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return nullptr;
  Region& found = (--after)->second;
  return address - found.start <= found.bytes ? &found : nullptr;
}

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

// Launches do nothing from now on; or no longer.
void fake_idle(bool on) { idling = on; }

// Runs what was recorded. Returns how many launches that were.
int fake_replay() {
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
bool fake_inside(uintptr_t address, size_t bytes) { return is_inside(address, bytes); }
int fake_outcome() {
  check_current();
  return outcome();
}
void fake_launched(void* stream) { last_stream = stream; }

int cuInit(unsigned) { return 0; }
int cuGetErrorString(int error, const char** text) {
  *text = error == 2               ? "out of memory"
          : error == 500           ? "named symbol not found"
          : error == kLaunchFailed ? simt_failure()
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
  if (*static_cast<const uint64_t*>(image) != kImage) return 200;
  *module = const_cast<void*>(image);
  return outcome();
}
int cuModuleUnload(void*) { return 0; }
int cuModuleGetFunction(void** function, void* module, const char* name) {
  for (auto* kernel = reinterpret_cast<Kernel*>(static_cast<uint64_t*>(module) + 1); kernel->name; kernel++) {
    if (strcmp(kernel->name, name) == 0) {
      *function = kernel;
      {
        std::lock_guard<std::mutex> lock(mutex);
        given.erase(kernel);
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

static int launch(const Machine& machine, void* function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                  unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared, void** packed) {
  check_current();
  if (!blocks_x || !threads_x || threads_x > 1024 || blocks_y * blocks_z * threads_y * threads_z != 1) return 1;
  if (reinterpret_cast<uintptr_t>(packed[4]) != machine.end_of_record) return 1;
  auto& kernel = *static_cast<const Kernel*>(function);
  if (shared > most_shared(machine, kernel)) return 1;
  if (recording) {
    std::string record(static_cast<const char*>(packed[1]), *static_cast<const size_t*>(packed[3]));
    recorded.push_back({kernel.run, blocks_x, threads_x, shared, machine.warp, record});
    return 0;
  }
  if (int error = outcome()) return error;
  if (idling) return 0;
  simt_warp(machine.warp);
  simt_launch(kernel.run, blocks_x, threads_x, shared, packed[1]);
  return 0;
}

int cuLaunchKernel(void* function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,
                   unsigned threads_y, unsigned threads_z, unsigned shared, void* stream, void**, void** packed) {
  last_stream = stream;
  return launch({0, 32, true}, function, blocks_x, blocks_y, blocks_z, threads_x, threads_y, threads_z, shared, packed);
}
int hipModuleLaunchKernel(void* function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,
                          unsigned threads_y, unsigned threads_z, unsigned shared, void* stream, void**,
                          void** packed) {
  last_stream = stream;
  return launch({3, 64, false}, function, blocks_x, blocks_y, blocks_z, threads_x, threads_y, threads_z, shared,
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
int cuMemPoolTrimTo(void*, size_t) { return outcome(); }
int cuMemPoolSetAttribute(void*, int, void*) { return outcome(); }
int cuMemAllocAsync(uintptr_t* address, size_t bytes, void*) {
  check_current();
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
  size_t size = (bytes + kMargin - 1) / kMargin * kMargin;
  auto start = reinterpret_cast<uintptr_t>(aligned_alloc(kMargin, size + 2 * kMargin));
  if (!start) return 2;
  *address = start + kMargin;
  fill(start, kMargin);
  memset(reinterpret_cast<void*>(*address), 0xff, bytes);
  memset(reinterpret_cast<void*>(*address + bytes), 0xee, size - bytes);
  fill(*address + size, kMargin);
  std::lock_guard<std::mutex> lock(mutex);
  blocks.emplace(*address, simt::Region{*address, bytes, false});
  return 0;
}
int cuMemAllocFromPoolAsync(uintptr_t* address, size_t bytes, void*, void* stream) {
  return cuMemAllocAsync(address, bytes, stream);
}
int cuMemFreeAsync(uintptr_t address, void*) {
  size_t bytes;
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = blocks.find(address);
    if (found == blocks.end()) {
      simt_fail("memory is freed that is not there");
      return 1;
    }
    bytes = found->second.bytes;
    blocks.erase(found);
  }
  size_t size = (bytes + kMargin - 1) / kMargin * kMargin;
  bool kept = whole(address - kMargin, kMargin) && whole(address + size, kMargin);
  for (size_t i = bytes; i < size; i++) kept &= reinterpret_cast<unsigned char*>(address)[i] == 0xee;
  if (!kept) simt_fail("a kernel wrote outside of its memory");
  memset(reinterpret_cast<void*>(address), 0xff, bytes);
  free(reinterpret_cast<void*>(address - kMargin));
  return 0;
}
int cuMemcpyHtoDAsync_v2(uintptr_t to, const void* from, size_t bytes, void*) {
  check_current();
  if (!is_inside(to, bytes)) simt_fail("a copy to what is no memory of the GPU");
  memcpy(reinterpret_cast<void*>(to), from, bytes);
  return outcome();
}
int cuMemcpyDtoHAsync_v2(void* to, uintptr_t from, size_t bytes, void*) {
  check_current();
  if (!is_inside(from, bytes)) simt_fail("a copy from what is no memory of the GPU");
  memcpy(to, reinterpret_cast<void*>(from), bytes);
  return outcome();
}
int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t bytes, void*) {
  check_current();
  if (!is_inside(from, bytes) || !is_inside(to, bytes)) simt_fail("a copy of what is no memory of the GPU");
  memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  return outcome();
}
int cuEventCreate(void** event, unsigned) {
  *event = &context;
  return outcome();
}
int cuEventRecord(void*, void*) { return outcome(); }
int cuEventQuery(void*) { return outcome(); }
int cuEventSynchronize(void*) { return outcome(); }
int cuCtxRecordEvent(void*, void*) { return outcome(); }
int cuStreamCreate(void** stream, unsigned) {
  check_current();
  *stream = malloc(1);
  return outcome();
}
// Tells of what went wrong in launches since, as a driver does.
int cuStreamSynchronize(void*) {
  waits++;
  if (int error = outcome()) return error;
  return simt_failed() ? kLaunchFailed : 0;
}

int cuCtxSynchronize() { return cuStreamSynchronize(nullptr); }

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
