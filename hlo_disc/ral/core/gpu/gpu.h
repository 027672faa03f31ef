// One GPU: its context, streams, memory and the kernels that are loaded on it.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gpu/driver.h"
#include "memory/memory.h"
#include "ral.h"

namespace ral {

struct Program;

// Is a stream there as long as its GPU is: one of the driver's default streams? Others are destroyed by those who made
// them, and what is done with one that is gone is undefined.
inline bool lasts(void* stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

class Gpu {
 public:
  // The GPU with this number; made once, and never destroyed. Throws Error(kDevice).
  static Gpu& find(const DriverName& name, int ordinal);

  const Driver& driver;

  // The functions down to `wait` need the GPU to be this thread's: see Current.

  // Memory that may be used behind what the stream has. Where there is too little, what the pool keeps goes back to the
  // driver first. Throws Error(kOutOfMemory, kDevice) that names `what`.
  uintptr_t allocate(void* stream, int64_t bytes, const std::string& what);

  // Frees memory behind what the stream has, which must be there.
  void release(uintptr_t address, void* stream) noexcept;
  // Frees memory of so many bytes behind all that the GPU has now.
  void release_behind_all(uintptr_t address, int64_t bytes) noexcept;

  // Keeps memory of the host until the GPU has done what the stream has.
  void keep(void* stream, std::vector<Block> blocks) noexcept;

  // Lets go of what was kept, and is not needed any more.
  void collect() noexcept;

  // Waits for the GPU, and gives the memory that the pool keeps back to the driver.
  void trim() noexcept;

  // An event behind what the stream has, for `wait`. Throws Error(kDevice).
  void* record(void* stream);
  void wait(void* event) noexcept;

  // The GPU's context, or the GPU itself, is this thread's while this lives.
  class Current {
   public:
    explicit Current(Gpu& gpu);
    Current(const Current&) = delete;
    ~Current();

   private:
    Gpu& gpu_;
    int before_ = 0;
  };

  // A stream that nobody else uses while this lives.
  class Stream {
   public:
    explicit Stream(Gpu& gpu) : gpu_(gpu), handle_(gpu.take_stream()) {}
    Stream(const Stream&) = delete;
    ~Stream() { gpu_.give_back(handle_); }
    void* handle() const { return handle_; }

   private:
    Gpu& gpu_;
    void* handle_;
  };

 private:
  friend class Current;
  Gpu(const Driver& driver, int ordinal);
  void* take_stream();
  void give_back(void* stream);

  // Memory of the GPU or of the host, which goes when its event has come to pass.
  struct Kept {
    void* event;
    uintptr_t address;
    int64_t bytes;
    std::vector<Block> blocks;
  };
  void add(Kept kept) noexcept;
  void* take_event() noexcept;  // null where the driver gives none
  void give_back_event(void* event) noexcept;
  void free_now(uintptr_t address) noexcept;

  int device_ = 0;
  void* context_ = nullptr;  // null where a driver has none
  void* pool_ = nullptr;
  std::mutex mutex_;
  std::vector<void*> streams_;  // that nobody uses
  std::vector<void*> events_;   // the same
  std::deque<Kept> kept_;
  std::atomic<size_t> kept_count_{0};
  int64_t kept_bytes_ = 0, most_kept_ = 0;  // of the GPU's memory
};

// Device memory, freed in the order of a stream. The GPU must be the thread's, and the stream there.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  // Never null. Throws Error(kOutOfMemory, kDevice) that names `what`.
  DeviceBlock(Gpu& gpu, void* stream, int64_t bytes, const std::string& what)
      : gpu_(&gpu), stream_(stream), bytes_(bytes), address_(gpu.allocate(stream, bytes, what)) {}
  DeviceBlock(DeviceBlock&& other) noexcept { *this = std::move(other); }
  DeviceBlock& operator=(DeviceBlock&& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(stream_, other.stream_);
    std::swap(bytes_, other.bytes_);
    std::swap(behind_all_, other.behind_all_);
    std::swap(address_, other.address_);
    return *this;
  }
  ~DeviceBlock() {
    if (!address_) return;
    if (behind_all_)
      gpu_->release_behind_all(address_, bytes_);
    else
      gpu_->release(address_, stream_);
  }

  // The memory is freed behind all that the GPU has then: somebody may read it in any stream, and this one may be gone.
  void free_behind_all() { behind_all_ = true; }

  void* data() const { return reinterpret_cast<void*>(address_); }
  uintptr_t address() const { return address_; }

 private:
  Gpu* gpu_ = nullptr;
  void* stream_ = nullptr;
  int64_t bytes_ = 0;
  bool behind_all_ = false;
  uintptr_t address_ = 0;
};

// Modules of kernels that are made when their program is loaded already. Only added to, by any thread.
class LateModules {
 public:
  void add(const ral_module* modules);
  // The one that has a kernel of this name, or null.
  const ral_module* find(const char* name);

 private:
  std::mutex mutex_;
  std::vector<const ral_module*> all_;
};

// The kernels of one program on one GPU: loaded when they are first launched, unloaded with this.
class Kernels {
 public:
  Kernels(Gpu& gpu, const Program& program);
  Kernels(const Kernels&) = delete;
  ~Kernels();

  // The GPU's context is current. modules: where the kernel is taken from, null for its own. Throws Error(kDevice) that
  // names the kernel.
  void prepare(ral_kernel& kernel, const ral_module* modules, int32_t shared) { ready(kernel, modules, shared); }
  void launch(ral_kernel& kernel, const ral_module* modules, void* stream, int64_t blocks, int64_t threads,
              int32_t shared, const void* record, int64_t bytes);

 private:
  struct Loaded {
    void* function;
    int32_t shared;  // bytes of shared memory that it may have
  };
  Loaded& load(ral_kernel& kernel, const ral_module* modules);
  // The module that has the kernel, which is made if none has it. Throws Error.
  const ral_module& module_of(const ral_kernel& kernel, const ral_module* modules);
  void* loaded(const ral_module& module, const std::string& what);
  // Loaded, and with so much shared memory: all of a launch that is not put into a stream.
  Loaded& ready(ral_kernel& kernel, const ral_module* modules, int32_t shared);

  Gpu& gpu_;
  const std::function<void*(const char* name)> make_;
  const std::shared_ptr<LateModules> late_;
  std::mutex mutex_;
  std::map<const ral_module*, void*> modules_;
  std::map<ral_kernel*, void*> others_;  // that are loaded from other modules than their own
  std::deque<Loaded> loaded_;
};

// The number of blocks of device memory in use now, over the whole process.
int64_t device_blocks() noexcept;
// Gives the memory of all GPUs that is kept for reuse back to their drivers.
void trim_gpus() noexcept;

}  // namespace ral
