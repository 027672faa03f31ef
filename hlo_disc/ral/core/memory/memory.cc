#include "memory/memory.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "ral.h"

namespace ral {
namespace {

constexpr int64_t kLarge = 1 << 20;
constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kPage = 4 << 10;

thread_local const Allocator* in_use = nullptr;

std::atomic<int64_t> live{0};
std::atomic<int64_t> fail_after{0};

bool injected_failure() {
  if (fail_after.load(std::memory_order_relaxed) == 0) return false;
  int64_t left = fail_after.load();
  while (left > 0 && !fail_after.compare_exchange_weak(left, left - 1)) {
  }
  return left == 1;
}

// Blocks of kLarge bytes and more, straight from the system. The mutex is held for a few instructions, never for a
// system call.
class LargeBlocks {
 public:
  LargeBlocks() {
    int64_t memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    bound_ = std::clamp<int64_t>(memory / 32, 64 << 20, int64_t{1} << 30);
  }

  void* take(int64_t bytes, Use use) {
    // Results live as long as the user likes: they may not sit on much more than they need.
    const int64_t size = align_up(bytes, bytes >= 2 * kHugePage ? kHugePage : kPage);
    const int64_t most = use == Use::kTemporary ? INT64_MAX : size + size / 4;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      auto best = kept_.end();
      for (auto it = kept_.begin(); it != kept_.end(); ++it) {
        if (it->bytes >= bytes && it->bytes <= most && (best == kept_.end() || it->bytes < best->bytes)) best = it;
      }
      if (best != kept_.end()) {
        Kept found = *best;
        kept_.erase(best);
        kept_bytes_ -= found.bytes;
        sizes_[found.data] = found.bytes;
        return found.data;
      }
    }
    void* data = map(size);
    if (!data) return nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    sizes_[data] = size;
    return data;
  }

  void give_back(void* data) {
    std::vector<Kept> evicted;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      auto found = sizes_.find(data);
      kept_.push_back({data, found->second});
      kept_bytes_ += found->second;
      sizes_.erase(found);
      evicted = evict(bound_);
    }
    unmap(evicted);
  }

  void trim() {
    std::vector<Kept> evicted;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      evicted = evict(0);
    }
    unmap(evicted);
  }

  int64_t kept_bytes() {
    std::lock_guard<std::mutex> lock(mutex_);
    return kept_bytes_;
  }

  std::mutex& mutex() { return mutex_; }

 private:
  struct Kept {
    void* data;
    int64_t bytes;
  };

  void* map(int64_t bytes) {
    for (int attempt = 0; attempt < 2; attempt++) {
      void* data =
          mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (data != MAP_FAILED) {
        if (bytes >= kHugePage) madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a wish: may be refused
        return data;
      }
      trim();
    }
    return nullptr;
  }

  static void unmap(const std::vector<Kept>& blocks) {
    for (const Kept& block : blocks) munmap(block.data, static_cast<size_t>(block.bytes));
  }

  // Takes the oldest blocks out until at most `most` bytes are kept.
  std::vector<Kept> evict(int64_t most) {
    size_t count = 0;
    while (kept_bytes_ > most) kept_bytes_ -= kept_[count++].bytes;
    std::vector<Kept> evicted(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(count));
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(count));
    return evicted;
  }

  std::mutex mutex_;
  std::vector<Kept> kept_;  // oldest first
  int64_t kept_bytes_ = 0;
  int64_t bound_;
  std::unordered_map<void*, int64_t> sizes_;  // of blocks in use
};

// Never destroyed: results may be released after static destructors have run.
LargeBlocks& large_blocks() {
  static LargeBlocks* blocks = [] {
    auto* made = new LargeBlocks;
    static LargeBlocks* shared = made;
    // A child forked while another thread holds the mutex could never take it.
    pthread_atfork([] { shared->mutex().lock(); }, [] { shared->mutex().unlock(); }, [] { shared->mutex().unlock(); });
    return made;
  }();
  return *blocks;
}

void* allocate_small(int64_t bytes) {
  return std::aligned_alloc(RAL_ALIGNMENT, static_cast<size_t>(bytes ? align_up(bytes, RAL_ALIGNMENT) : RAL_ALIGNMENT));
}

}  // namespace

UseAllocator::UseAllocator(const Allocator* allocator) noexcept : before_(std::exchange(in_use, allocator)) {}
UseAllocator::~UseAllocator() { in_use = before_; }

const Allocator* allocator_in_use() noexcept { return in_use; }

void* allocate(int64_t bytes, Use use, const Allocator* from) noexcept {
  if (bytes < 0 || bytes > INT64_MAX / 2 || injected_failure()) return nullptr;
  void* block = from ? from->take(from->context, static_cast<size_t>(std::max<int64_t>(bytes, 1)), RAL_ALIGNMENT)
                : bytes >= kLarge ? large_blocks().take(bytes, use)
                                  : allocate_small(bytes);
  if (block) live.fetch_add(bytes, std::memory_order_relaxed);
  return block;
}

void release(void* block, int64_t bytes, const Allocator* from) noexcept {
  live.fetch_sub(bytes, std::memory_order_relaxed);
  if (from) {
    from->give_back(from->context, block, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  } else if (bytes >= kLarge) {
    large_blocks().give_back(block);
  } else {
    std::free(block);
  }
}

int64_t live_bytes() noexcept { return live.load(std::memory_order_relaxed); }

int64_t kept_bytes() noexcept { return large_blocks().kept_bytes(); }

void trim() noexcept { large_blocks().trim(); }

void fail_next_allocation(int64_t n) noexcept { fail_after.store(n); }

}  // namespace ral
