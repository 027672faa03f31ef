#include "gpu/gpu.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <memory>
#include <utility>

#include "program/program.h"
#include "threads/floats.h"

namespace ral {
namespace {

std::atomic<int64_t> allocated{0};

// Without being asked a kernel may have 48 KiB of shared memory, of CUDA's; some of it is what it has under names.
constexpr int32_t kNamed = 1 << 10, kShared = (48 << 10) - kNamed;
constexpr int kMostShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
// Errors of loading that a user can do something about. The same numbers in HIP, as of what follows.
constexpr int kOtherGpu = 209, kNewerCode = 222;  // CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_UNSUPPORTED_PTX_VERSION
constexpr int kNoCompiler = 221;                  // CUDA_ERROR_JIT_COMPILER_NOT_FOUND
constexpr int kOutOfMemory = 2, kNotReady = 600;
// CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
constexpr int kWaitsForOthers = 3, kReleaseThreshold = 4;
constexpr unsigned kWithoutTimes = 2;  // CU_EVENT_DISABLE_TIMING
// The pool keeps at most this part of the GPU's memory between calls: others have none of it.
constexpr size_t kPart = 8;
constexpr int kErrorLog = 5, kErrorLogBytes = 6;  // CU_JIT_ERROR_LOG_BUFFER and its size

struct Gpus {
  std::mutex mutex;
  std::map<std::pair<const Driver*, int>, std::unique_ptr<Gpu>> all;
};

Gpus& gpus() {
  static auto* made = new Gpus;  // outlives what static destructors free
  return *made;
}

// Is the name in a list of them, see ral_module?
bool has(const char* names, const char* name) {
  while (*names && strcmp(names, name) != 0) names += strlen(names) + 1;
  return *names;
}

// The module that has a kernel of this name, or null.
const ral_module* find(const ral_module* modules, const char* name) {
  while (modules->kernels && !has(modules->kernels, name)) modules++;
  return modules->kernels ? modules : nullptr;
}

std::string cannot_load(const ral_kernel& kernel) { return "cannot load the kernel " + std::string(kernel.name); }

template <typename Action>
void for_each_gpu(Action action) noexcept {
  std::lock_guard<std::mutex> lock(gpus().mutex);
  for (auto& [key, gpu] : gpus().all) {
    if (!gpu) continue;
    try {
      Gpu::Current current(*gpu);
      action(*gpu);
    } catch (const Error&) {  // a context that is gone has nothing
    }
  }
}

}  // namespace

Gpu& Gpu::find(const DriverName& name, int ordinal) {
  const Driver& driver = Driver::open(name);
  std::lock_guard<std::mutex> lock(gpus().mutex);
  std::unique_ptr<Gpu>& gpu = gpus().all[{&driver, ordinal}];
  if (!gpu) gpu.reset(new Gpu(driver, ordinal));
  return *gpu;
}

Gpu::Gpu(const Driver& driver, int ordinal) : driver(driver) {
  std::string what = "there is no GPU " + std::to_string(ordinal);
  driver.check(driver.get_device(&device_, ordinal), what);
  if (driver.retain_context)
    driver.check(driver.retain_context(&context_, device_), "cannot use GPU " + std::to_string(ordinal));
  Current current(*this);
  PoolProperties properties;
  properties.device = device_;
  // Not the GPU's own pool, whose settings are those of whoever else uses it.
  what = "cannot make a pool of the GPU's memory";
  driver.check(driver.create_pool(&pool_, &properties), what);
  size_t free = 0, total = 0;
  driver.check(driver.memory_info(&free, &total), what);
  uint64_t most = total / kPart;
  most_kept_ = static_cast<int64_t>(most);
  int no = 0;
  driver.check(driver.set_pool(pool_, kReleaseThreshold, &most), what);
  driver.check(driver.set_pool(pool_, kWaitsForOthers, &no), what);
}

Gpu::Current::Current(Gpu& gpu) : gpu_(gpu) {
  const Driver& driver = gpu.driver;
  int error = gpu.context_ ? driver.push_context(gpu.context_) : driver.get_current(&before_);
  if (!error && !gpu.context_) error = driver.set_current(gpu.device_);
  driver.check(error, "cannot use the GPU");
}

Gpu::Current::~Current() {
  if (gpu_.context_) {
    void* popped;
    gpu_.driver.pop_context(&popped);
  } else {
    gpu_.driver.set_current(before_);
  }
}

void* Gpu::take_stream() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!streams_.empty()) {
      void* stream = streams_.back();
      streams_.pop_back();
      return stream;
    }
  }
  Current current(*this);
  void* stream = nullptr;
  constexpr unsigned kNonBlocking = 1;  // it does not wait for the default stream
  driver.check(driver.create_stream(&stream, kNonBlocking), "cannot make a stream");
  return stream;
}

void Gpu::give_back(void* stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  streams_.push_back(stream);
}

uintptr_t Gpu::allocate(void* stream, int64_t bytes, const std::string& what) {
  collect();
  auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  uintptr_t address = 0;
  int error = driver.allocate(&address, size, pool_, stream);
  if (error == kOutOfMemory) {
    trim();
    error = driver.allocate(&address, size, pool_, stream);
  }
  if (error) {
    std::string had;
    size_t free = 0, total = 0;
    if (error == kOutOfMemory && driver.memory_info(&free, &total) == 0)
      had = ", of which " + std::to_string(free) + " of " + std::to_string(total) + " are free";
    driver.check(error,
                 "cannot allocate " + std::to_string(bytes) + " bytes of the GPU's memory" + had + ", for " + what);
  }
  allocated.fetch_add(1, std::memory_order_relaxed);
  return address;
}

void Gpu::free_now(uintptr_t address) noexcept {
  try {
    Stream own(*this);
    driver.release(address, own.handle());
  } catch (const Error&) {  // a context that is gone has taken it along
  }
  allocated.fetch_sub(1, std::memory_order_relaxed);
}

void Gpu::release(uintptr_t address, void* stream) noexcept {
  driver.release(address, stream);
  allocated.fetch_sub(1, std::memory_order_relaxed);
}

void Gpu::release_behind_all(uintptr_t address, int64_t bytes) noexcept {
  void* event = driver.record_all ? take_event() : nullptr;
  if (event && driver.record_all(context_, event) == 0) return add({event, address, bytes, {}});
  if (event) give_back_event(event);
  driver.synchronize_all();
  free_now(address);
}

void Gpu::keep(void* stream, std::vector<Block> blocks) noexcept {
  void* event = take_event();
  if (event && driver.record_event(event, stream) == 0) return add({event, 0, 0, std::move(blocks)});
  if (event) give_back_event(event);
  driver.synchronize(stream);
}

void Gpu::add(Kept kept) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  kept_bytes_ += kept.bytes;
  kept_.push_back(std::move(kept));
  kept_count_.fetch_add(1, std::memory_order_relaxed);
}

void Gpu::collect() noexcept {
  if (kept_count_.load(std::memory_order_relaxed) == 0) return;
  std::vector<Kept> done;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    std::deque<Kept> rest;
    for (Kept& kept : kept_) {
      // The oldest is waited for when there is too much: others need memory, too.
      bool waits = kept.bytes && kept_bytes_ > most_kept_;
      if ((waits ? driver.synchronize_event(kept.event) : driver.query_event(kept.event)) == kNotReady) {
        rest.push_back(std::move(kept));
        continue;
      }
      kept_bytes_ -= kept.bytes;
      done.push_back(std::move(kept));
    }
    kept_.swap(rest);
    kept_count_.store(kept_.size(), std::memory_order_relaxed);
  }
  for (Kept& kept : done) {
    if (kept.address) free_now(kept.address);
    give_back_event(kept.event);
  }
}

void Gpu::trim() noexcept {
  driver.synchronize_all();
  collect();
  driver.trim_pool(pool_, 0);
}

void* Gpu::take_event() noexcept {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!events_.empty()) {
      void* event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  void* event = nullptr;
  return driver.create_event(&event, kWithoutTimes) == 0 ? event : nullptr;
}

void Gpu::give_back_event(void* event) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  events_.push_back(event);
}

void* Gpu::record(void* stream) {
  void* event = take_event();
  if (!event) throw Error(Error::kDevice, "cannot make an event");
  int error = driver.record_event(event, stream);
  if (error) give_back_event(event);
  driver.check(error, "cannot record an event");
  return event;
}

void Gpu::wait(void* event) noexcept {
  driver.synchronize_event(event);
  give_back_event(event);
}

void LateModules::add(const ral_module* modules) {
  std::lock_guard<std::mutex> lock(mutex_);
  all_.push_back(modules);
}

const ral_module* LateModules::find(const char* name) {
  std::lock_guard<std::mutex> lock(mutex_);
  const ral_module* found = nullptr;
  for (size_t k = 0; k < all_.size() && !found; k++) found = ral::find(all_[k], name);
  return found;
}

Kernels::Kernels(Gpu& gpu, const Program& program)
    : gpu_(gpu), make_(program.make_kernel), late_(program.late_modules) {}

Kernels::~Kernels() {
  if (modules_.empty()) return;
  try {
    Gpu::Current current(gpu_);
    for (auto& [own, module] : modules_) gpu_.driver.unload_module(module);
  } catch (const Error&) {  // a context that is gone has taken them along
  }
}

const ral_module& Kernels::module_of(const ral_kernel& kernel, const ral_module* modules) {
  const ral_module* found = find(modules ? modules : kernel.modules, kernel.name);
  if (!found && !modules && late_) found = late_->find(kernel.name);
  if (!found && !modules && make_) {
    found = find(static_cast<const ral_module*>(make_(kernel.name)), kernel.name);
    if (!floats_are_own()) set_own_floats();  // for what comes next: whoever made it may leave another mode
  }
  if (found) return *found;
  throw Error(Error::kDevice, cannot_load(kernel) + ", which is in no module of the program");
}

void* Kernels::loaded(const ral_module& own, const std::string& what) {
  if (auto found = modules_.find(&own); found != modules_.end()) return found->second;
  void* module = nullptr;
  char log[2048] = "";
  int options[] = {kErrorLog, kErrorLogBytes};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  int error = 0;
  for (const char* const* form = own.forms; *form; form++)
    if ((error = gpu_.driver.load_module(&module, *form, 2, options, values)) == 0) break;
  const char* why = error == kOtherGpu     ? ", for the program is for other GPUs than this one"
                    : error == kNewerCode  ? ", for which the driver is too old: update it"
                    : error == kNoCompiler ? ", for the driver comes without its compiler of PTX "
                                             "(libnvidia-ptxjitcompiler.so): install it, or compile for this GPU's "
                                             "level where CUDA's ptxas is, as for the target \"cuda:sm_90\""
                                           : "";
  gpu_.driver.check(error, what + why + (*log ? ", " + std::string(log) : ""));
  return modules_[&own] = module;
}

Kernels::Loaded& Kernels::load(ral_kernel& kernel, const ral_module* modules) {
  void* found = modules ? nullptr : __atomic_load_n(&kernel.loaded, __ATOMIC_ACQUIRE);
  if (found) return *static_cast<Loaded*>(found);
  std::unique_lock<std::mutex> lock(mutex_);
  void*& kept = modules ? others_[&kernel] : kernel.loaded;
  if (kept) return *static_cast<Loaded*>(kept);
  lock.unlock();  // what makes it may be long, or load another one
  const ral_module& own = module_of(kernel, modules);
  lock.lock();
  if (kept) return *static_cast<Loaded*>(kept);
  const Driver& driver = gpu_.driver;
  void* module = loaded(own, cannot_load(kernel));
  Loaded made{nullptr, kShared};
  driver.check(driver.get_function(&made.function, module, kernel.name),
               "cannot find the kernel " + std::string(kernel.name));
  loaded_.push_back(made);
  __atomic_store_n(&kept, &loaded_.back(), __ATOMIC_RELEASE);
  return loaded_.back();
}

Kernels::Loaded& Kernels::ready(ral_kernel& kernel, const ral_module* modules, int32_t shared) {
  Loaded& loaded = load(kernel, modules);
  if (shared <= kShared || !gpu_.driver.set_attribute) return loaded;
  std::lock_guard<std::mutex> lock(mutex_);
  if (shared <= loaded.shared) return loaded;
  gpu_.driver.check(gpu_.driver.set_attribute(loaded.function, kMostShared, shared),
                    "cannot launch the kernel " + std::string(kernel.name) + " with " + std::to_string(shared) +
                        " bytes of shared memory");
  loaded.shared = shared;
  return loaded;
}

void Kernels::launch(ral_kernel& kernel, const ral_module* modules, void* stream, int64_t blocks, int64_t threads,
                     int32_t shared, const void* record, int64_t bytes) {
  if (blocks <= 0) return;
  const Driver& driver = gpu_.driver;
  Loaded& loaded = ready(kernel, modules, shared);
  int error = 0;
  auto size = static_cast<size_t>(bytes);
  // CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE, or HIP's
  void* packed[] = {reinterpret_cast<void*>(1), const_cast<void*>(record), reinterpret_cast<void*>(2), &size,
                    driver.end_of_record};
  if (blocks <= INT_MAX)
    error = driver.launch(loaded.function, static_cast<unsigned>(blocks), 1, 1, static_cast<unsigned>(threads), 1, 1,
                          static_cast<unsigned>(shared), stream, nullptr, packed);
  if (!error && blocks <= INT_MAX) return;
  std::string what = "cannot launch the kernel " + std::string(kernel.name) + " of " + std::to_string(blocks) +
                     " blocks with " + std::to_string(shared) + " bytes of shared memory";
  driver.check(error, what);
  throw Error(Error::kDevice, what + ": a GPU takes no more than " + std::to_string(INT_MAX) + " blocks");
}

int64_t device_blocks() noexcept {
  for_each_gpu([](Gpu& gpu) { gpu.collect(); });
  return allocated.load(std::memory_order_relaxed);
}

void trim_gpus() noexcept {
  for_each_gpu([](Gpu& gpu) { gpu.trim(); });
}

}  // namespace ral
