// Memory that the runtime hands out: aligned, counted, and able to fail on request so that tests reach every error path.
//
// Large blocks come from the system in huge pages and are kept for a while after they are released, because touching new
// pages costs more than most kernels: 40 MB take 50 ms in small pages on a virtual machine, 10 in huge ones, 1.5 the
// second time. What is kept is bounded and the longest unused goes first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace ral {

// The length of a block's use. A temporary one may be much larger than what was asked for.
enum class Use { kTemporary, kResult };

// A user's source of memory: all of what is asked for, aligned, or null; called by any thread.
struct Allocator {
  void* (*take)(void* context, size_t bytes, size_t alignment);
  void (*give_back)(void* context, void* block, size_t bytes);
  void* context;
};

// Blocks that this thread makes while it lives come from there; null for the runtime's own memory.
class UseAllocator {
 public:
  explicit UseAllocator(const Allocator* allocator) noexcept;
  UseAllocator(const UseAllocator&) = delete;
  ~UseAllocator();

 private:
  const Allocator* before_;
};

// That of this thread.
const Allocator* allocator_in_use() noexcept;

// A block of at least `bytes` bytes, RAL_ALIGNMENT aligned and never null for bytes == 0; null when there is no memory.
void* allocate(int64_t bytes, Use use, const Allocator* from = nullptr) noexcept;
// `bytes` and `from` are what allocate was given.
void release(void* block, int64_t bytes, const Allocator* from = nullptr) noexcept;

// Bytes handed out and not yet released, over the whole process.
int64_t live_bytes() noexcept;
// Bytes of released blocks that are kept for reuse.
int64_t kept_bytes() noexcept;
// Gives all kept blocks back to the system.
void trim() noexcept;
// The n-th allocation from now fails (n >= 1); 0 cancels.
void fail_next_allocation(int64_t n) noexcept;

// An owned block.
class Block {
 public:
  Block() = default;
  Block(int64_t bytes, Use use) noexcept
      : from_(allocator_in_use()), data_(allocate(bytes, use, from_)), bytes_(bytes) {}
  Block(Block&& other) noexcept
      : from_(other.from_), data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(from_, other.from_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Block() {
    if (data_) release(data_, bytes_, from_);
  }

  explicit operator bool() const { return data_ != nullptr; }
  char* data() const { return static_cast<char*>(data_); }
  int64_t bytes() const { return bytes_; }
  void* detach() { return std::exchange(data_, nullptr); }

 private:
  const Allocator* from_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

inline int64_t align_up(int64_t bytes, int64_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace ral
