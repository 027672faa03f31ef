// Memory that the runtime hands out: aligned, counted, and able to fail on request so that tests reach every error path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace ral {

// A block of at least `bytes` bytes, RAL_ALIGNMENT aligned and never null for bytes == 0; null when there is no memory.
void* allocate(int64_t bytes) noexcept;
// `bytes` is what allocate was given.
void release(void* block, int64_t bytes) noexcept;

// Bytes handed out and not yet released, over the whole process.
int64_t live_bytes() noexcept;
// The n-th allocation from now fails (n >= 1); 0 cancels.
void fail_next_allocation(int64_t n) noexcept;

// An owned block.
class Block {
 public:
  Block() = default;
  explicit Block(int64_t bytes) noexcept : data_(allocate(bytes)), bytes_(bytes) {}
  Block(Block&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Block() {
    if (data_) release(data_, bytes_);
  }

  explicit operator bool() const { return data_ != nullptr; }
  char* data() const { return static_cast<char*>(data_); }
  int64_t bytes() const { return bytes_; }
  void* detach() { return std::exchange(data_, nullptr); }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

inline int64_t align_up(int64_t bytes, int64_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace ral
