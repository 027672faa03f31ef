#include "memory.h"

#include <atomic>
#include <cstdlib>

#include "ral.h"

namespace ral {
namespace {

std::atomic<int64_t> live{0};
std::atomic<int64_t> fail_after{0};

bool injected_failure() {
  if (fail_after.load(std::memory_order_relaxed) == 0) return false;
  int64_t left = fail_after.load();
  while (left > 0 && !fail_after.compare_exchange_weak(left, left - 1)) {
  }
  return left == 1;
}

}  // namespace

void* allocate(int64_t bytes) noexcept {
  if (bytes < 0 || bytes > INT64_MAX - RAL_ALIGNMENT || injected_failure()) return nullptr;
  int64_t rounded = bytes ? align_up(bytes, RAL_ALIGNMENT) : RAL_ALIGNMENT;
  void* block = std::aligned_alloc(RAL_ALIGNMENT, static_cast<size_t>(rounded));
  if (block) live.fetch_add(bytes, std::memory_order_relaxed);
  return block;
}

void release(void* block, int64_t bytes) noexcept {
  live.fetch_sub(bytes, std::memory_order_relaxed);
  std::free(block);
}

int64_t live_bytes() noexcept { return live.load(std::memory_order_relaxed); }

void fail_next_allocation(int64_t n) noexcept { fail_after.store(n); }

}  // namespace ral
