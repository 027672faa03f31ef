// What the driver loads and launches. An image is a list of kernels' names, addresses and how much shared memory launches
// of them may ask for, which ends with a null, behind a word that says so. Each GPU loads images of its own.
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "driver/devices.h"
#include "driver/driver.h"
#include "driver/queues.h"

extern "C" {
void simt_launch(void (*kernel)(const void*), int64_t blocks, int64_t threads, int64_t shared, const void* record);
void simt_warp(int threads);
}

namespace {

using namespace driver;

constexpr uint64_t kImage = 0x746d69735f636c68;
// Shared memory of a kernel of CUDA's that has not been given more, with what it has under names.
constexpr int64_t kUnasked = 48 << 10;
constexpr int kMostShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

// A kernel of an image. named, most: bytes of shared memory that it has under names, and that a block may have.
struct Kernel {
  const char* name;
  void (*run)(const void*);
  int64_t named, most;
};

// to_come: how many launches there are that have not run.
struct Module {
  const void* image;
  int device;
  int to_come = 0;
};

// given: shared memory that launches may ask for, where somebody said so, else -1.
struct Function {
  const Kernel* kernel;
  Module* module;
  int64_t given = -1;
};

std::mutex mutex;
std::set<Module*> loaded;
std::map<std::pair<Module*, const Kernel*>, std::unique_ptr<Function>> functions;
std::vector<std::function<void()>> recorded;
bool idling = false;

// In whose words a launch describes its arguments, how many threads a warp has, and whether a kernel has to be given
// more shared memory before it is asked for.
struct Machine {
  uintptr_t end_of_record;
  int warp;
  bool gives;
};

int64_t most_shared(const Machine& machine, const Function& function) {
  const Kernel& kernel = *function.kernel;
  if (!machine.gives) return kernel.most - kernel.named;
  std::lock_guard<std::mutex> lock(mutex);
  return function.given < 0 ? kUnasked - kernel.named : function.given;
}

// A module that is loaded, on this thread's GPU.
bool is_here(Module* module) {
  std::lock_guard<std::mutex> lock(mutex);
  if (loaded.count(module) && module->device == devices::here()) return true;
  queues::fail("a module that is not loaded, or on another GPU");
  return false;
}

int launch(const Machine& machine, void* stream, void* given, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
           unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared, void** packed) {
  note_launch(stream);
  check_current();
  if (!takes(stream)) return refused();
  if (!blocks_x || !threads_x || threads_x > 1024 || blocks_y * blocks_z * threads_y * threads_z != 1) return kInvalid;
  if (reinterpret_cast<uintptr_t>(packed[4]) != machine.end_of_record) return kInvalid;
  auto& function = *static_cast<const Function*>(given);
  if (!is_here(function.module)) return kNoHandle;
  if (shared > most_shared(machine, function)) return kInvalid;
  auto* run = function.kernel->run;
  // A driver has copied the arguments when the call returns.
  auto copied = [&] {
    return std::string(static_cast<const char*>(packed[1]), *static_cast<const size_t*>(packed[3]));
  };
  auto work = [=, record = copied(), warp = machine.warp] {
    simt_warp(warp);
    simt_launch(run, blocks_x, threads_x, shared, record.data());
  };
  if (is_recording()) return keep(work);
  if (int error = outcome()) return error;
  if (idling) return 0;
  Module* module = function.module;
  if (queues::is_hostile()) {
    std::lock_guard<std::mutex> lock(mutex);
    module->to_come++;
  }
  queues::put(stream, [=] {
    work();
    if (!queues::is_hostile()) return;
    std::lock_guard<std::mutex> lock(mutex);
    module->to_come--;
  });
  return 0;
}

}  // namespace

int driver::modules() {
  std::lock_guard<std::mutex> lock(mutex);
  return static_cast<int>(loaded.size());
}

int driver::keep(std::function<void()> work) {
  recorded.push_back(std::move(work));
  return 0;
}

extern "C" {

// Records what is launched from now on; or no longer.
void fake_record(bool on) {
  if (on) recorded.clear();
  record(on);
}

// Launches do nothing from now on; or no longer.
void fake_idle(bool on) { idling = on; }

// Runs what was recorded. Returns how many launches that were.
int fake_replay() {
  queues::wait_for(queues::now(-1));
  for (const auto& work : recorded) work();
  return static_cast<int>(recorded.size());
}

int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
  check_current();
  if (*static_cast<const uint64_t*>(image) != kImage) return kOtherGpu;
  if (int error = outcome()) return error;
  std::lock_guard<std::mutex> lock(mutex);
  *module = *loaded.insert(new Module{image, devices::here()}).first;
  return 0;
}
int cuModuleUnload(void* given) {
  check_current();
  auto* module = static_cast<Module*>(given);
  if (!is_here(module)) return kNoHandle;
  std::unique_lock<std::mutex> lock(mutex);
  bool waits = module->to_come > 0;
  lock.unlock();
  if (waits) {
    queues::fail("a module is unloaded before its kernels have run");
    queues::wait_for(queues::now(module->device));
  }
  lock.lock();
  loaded.erase(module);  // its handles stay, for a program that is wrong may use them
  return 0;
}
int cuModuleGetFunction(void** function, void* given, const char* name) {
  auto* module = static_cast<Module*>(given);
  if (!is_here(module)) return kNoHandle;
  for (auto* kernel = reinterpret_cast<const Kernel*>(static_cast<const uint64_t*>(module->image) + 1); kernel->name;
       kernel++) {
    if (strcmp(kernel->name, name) != 0) continue;
    if (int error = outcome()) return error;
    std::lock_guard<std::mutex> lock(mutex);
    auto& made = functions[{module, kernel}];
    if (!made) made.reset(new Function{kernel, module});
    *function = made.get();
    return 0;
  }
  return 500;
}
int cuFuncSetAttribute(void* given, int attribute, int value) {
  auto* function = static_cast<Function*>(given);
  if (!is_here(function->module)) return kNoHandle;
  if (attribute != kMostShared || value > function->kernel->most - function->kernel->named) return kInvalid;
  if (int error = outcome()) return error;
  std::lock_guard<std::mutex> lock(mutex);
  function->given = value;
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

SAME(hipModuleLoadDataEx, cuModuleLoadDataEx)
SAME(hipModuleUnload, cuModuleUnload)
SAME(hipModuleGetFunction, cuModuleGetFunction)
}
