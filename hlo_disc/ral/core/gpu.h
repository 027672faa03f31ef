// One GPU: its context, streams, memory and the kernels that are loaded on it.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "driver.h"
#include "ral.h"

namespace ral {

class Gpu {
 public:
  // The GPU with this number; made once, and never destroyed. Throws Error(kDevice).
  static Gpu& find(const std::vector<std::string>& driver, int ordinal);

  const Driver& driver;

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

  int device_ = 0;
  void* context_ = nullptr;  // null where a driver has none
  std::mutex mutex_;
  std::vector<void*> streams_;  // that nobody uses
};

// Device memory, freed in the order of a stream.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  // Never null. Throws Error(kOutOfMemory, kDevice) that names `what`.
  DeviceBlock(Gpu& gpu, void* stream, int64_t bytes, const std::string& what);
  DeviceBlock(DeviceBlock&& other) noexcept { *this = std::move(other); }
  DeviceBlock& operator=(DeviceBlock&& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(stream_, other.stream_);
    std::swap(address_, other.address_);
    return *this;
  }
  ~DeviceBlock();

  // From now on the memory is freed behind what this stream has.
  void free_in(void* stream) { stream_ = stream; }

  void* data() const { return reinterpret_cast<void*>(address_); }
  uintptr_t address() const { return address_; }

 private:
  Gpu* gpu_ = nullptr;
  void* stream_ = nullptr;
  uintptr_t address_ = 0;
};

// The kernels of one program on one GPU: loaded when they are first launched, unloaded with this.
class Kernels {
 public:
  explicit Kernels(Gpu& gpu) : gpu_(gpu) {}
  Kernels(const Kernels&) = delete;
  ~Kernels();

  // The GPU's context is current. image: where the kernel is taken from, null for its own. Throws Error(kDevice) that
  // names the kernel.
  void prepare(ral_kernel& kernel, const char* image, int32_t shared) { ready(kernel, image, shared); }
  void launch(ral_kernel& kernel, const char* image, void* stream, int64_t blocks, int64_t threads, int32_t shared,
              const void* record, int64_t bytes);

 private:
  struct Loaded {
    void* function;
    int32_t shared;  // bytes of shared memory that it may have
  };
  Loaded& load(ral_kernel& kernel, const char* image);
  // Loaded, and with so much shared memory: all of a launch that is not put into a stream.
  Loaded& ready(ral_kernel& kernel, const char* image, int32_t shared);

  Gpu& gpu_;
  std::mutex mutex_;
  std::map<const char*, void*> modules_;  // by their images
  std::map<ral_kernel*, void*> others_;   // that are loaded from another image than their own
  std::deque<Loaded> loaded_;
};

// How many blocks of device memory are allocated now, over the whole process.
int64_t device_blocks() noexcept;

}  // namespace ral
