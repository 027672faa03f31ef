#include "threads/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdio>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "library/library.h"
#include "threads/signals.h"
#include "threads/team.h"

namespace ral {
namespace {

// Longer than what main does between two launches, shorter than what anybody would notice.
constexpr int64_t kSpinNs = 50'000;

// Callers may ask for more threads than there are cores, up to this many.
constexpr int kMinSlots = 64;

void futex(std::atomic<uint32_t>& word, int op, uint32_t value) {
  syscall(SYS_futex, &word, op | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
}

class Pool : public Team {
 public:
  Pool() : Team(std::max(usable_cores(), kMinSlots)) {}

  // False when another thread is using the pool, or when it has been stopped.
  bool try_run(const ral_call& call, ral_block_fn fn, const void* args, int64_t n) {
    std::unique_lock<std::mutex> lock(busy_, std::try_to_lock);
    if (!lock || stopped_) return false;
    start_threads(call.workers);
    run(call, fn, args, n, std::min<int>(call.workers, static_cast<int>(threads_.size()) + 1));
    return true;
  }

  void stop() {
    std::lock_guard<std::mutex> lock(busy_);
    if (stopped_) return;
    stopped_ = true;
    end();
    for (int slot = 1; slot < workers(); slot++) wake(slot);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    started_.store(0);
  }

  int threads() const { return started_.load(); }

 protected:
  void wake(int slot) override { futex(state(slot), FUTEX_WAKE, 1); }

 private:
  void start_threads(int wanted) {
    wanted = std::min(wanted, workers());
    if (static_cast<int>(threads_.size()) + 1 >= wanted) return;
    SignalsBlocked blocked;
    while (static_cast<int>(threads_.size()) + 1 < wanted) {
      int slot = static_cast<int>(threads_.size()) + 1;
      try {
        threads_.emplace_back([this, slot] { serve_or_park(slot); });
      } catch (const std::system_error&) {
        return;  // the system gives no more threads: those that there are do the work
      }
      started_.store(static_cast<int>(threads_.size()));
    }
  }

  void serve_or_park(int slot) {
    while (serve(slot, kSpinNs)) {
      while (state(slot).load(std::memory_order_acquire) == kAway) futex(state(slot), FUTEX_WAIT, kAway);
    }
  }

  std::mutex busy_;  // held for one launch
  bool stopped_ = false;
  std::vector<std::thread> threads_;
  std::atomic<int> started_{0};
};

// Never destroyed: helpers may outlive static destructors. A forked child has none of the threads and perhaps a locked
// mutex, so it starts over with a new pool and leaves the old one's memory alone.
std::atomic<Pool*> the_pool{nullptr};

Pool& pool() {
  Pool* current = the_pool.load(std::memory_order_acquire);
  if (current) return *current;
  static const int registered = pthread_atfork(nullptr, nullptr, [] { the_pool.store(nullptr); });
  (void)registered;
  auto* fresh = new Pool;
  if (the_pool.compare_exchange_strong(current, fresh)) return *fresh;
  delete fresh;  // another thread was faster; this one has no helpers yet
  return *current;
}

void pool_parallel_for(ral_call* call, ral_block_fn fn, const void* args, int64_t n) {
  if (call->workers < 2 || !pool().try_run(*call, fn, args, n)) fn(args, 0, n, call->scratch);
}

// CPU time that the control group grants, in cores, rounded up; INT_MAX where there is no limit.
int granted_cores() {
  std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "re");
  if (!file) return INT_MAX;
  long long quota = 0, period = 0;
  int fields = std::fscanf(file, "%lld %lld", &quota, &period);
  std::fclose(file);
  if (fields != 2 || quota <= 0 || period <= 0) return INT_MAX;
  return static_cast<int>(std::min<long long>((quota + period - 1) / period, INT_MAX));
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                          : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, std::min(cores, granted_cores()));
}

ral_call standalone_call(int workers, char* scratch, int64_t scratch_bytes) {
  return ral_call{RAL_VERSION, workers, scratch, scratch_bytes, pool_parallel_for, run_library_call, run_allocate,
                  nullptr,     nullptr, nullptr, nullptr};
}

void stop_pool() { pool().stop(); }

int pool_threads() { return pool().threads(); }

}  // namespace ral

extern "C" void ral_parallel_for(ral_call* call, ral_block_fn fn, const void* args, int64_t n) {
  if (n > 1) {
    call->parallel_for(call, fn, args, n);
  } else if (n == 1) {
    fn(args, 0, 1, call->scratch);
  }
}
