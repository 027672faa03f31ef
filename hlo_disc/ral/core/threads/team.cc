#include "threads/team.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "threads/floats.h"

namespace ral {
namespace {

// A worker takes its share in about this many pieces, so that a late or slow one leaves most of it to the others.
constexpr int64_t kPieces = 16;

constexpr int kSpinsBeforeYield = 4000;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Team::Team(int workers) : workers_(workers), slots_(new Slot[workers]) {}

void Team::run(const ral_call& call, ral_block_fn fn, const void* args, int64_t n, int workers) {
  share_out(call, fn, args, n, static_cast<int>(std::min<int64_t>(n, workers)));
  // Children before their parents, so that a helper that starts at once finds all it has to wake.
  for (int slot = sharing_ - 1; slot > 0; slot--) {
    if (slots_[slot].state.exchange(kPosted) == kAway) slots_[slot].to_wake.store(true);
  }
  wake_children(0);
  work(0);
  wait_for_helpers();
}

void Team::share_out(const ral_call& call, ral_block_fn fn, const void* args, int64_t n, int workers) {
  fn_ = fn;
  args_ = args;
  scratch_ = call.scratch;
  scratch_bytes_ = call.scratch_bytes;
  sharing_ = workers;
  grain_ = n / (workers * kPieces);
  if (grain_ < 1) grain_ = 1;
  int64_t share = n / workers, extra = n % workers, begin = 0;
  for (int w = 0; w < workers; w++) {
    slots_[w].next.store(begin, std::memory_order_relaxed);
    begin += share + (w < extra);
    slots_[w].end = begin;
  }
}

void Team::work(int self) {
  void* fast = scratch_ ? scratch_ + self * scratch_bytes_ : nullptr;
  for (int i = 0, w = self; i < sharing_; i++, w = w + 1 == sharing_ ? 0 : w + 1) {
    Slot& share = slots_[w];
    for (;;) {
      int64_t begin = share.next.load(std::memory_order_relaxed);
      if (begin >= share.end) break;
      begin = share.next.fetch_add(grain_, std::memory_order_relaxed);
      if (begin >= share.end) break;
      int64_t end = begin + grain_;
      fn_(args_, begin, end < share.end ? end : share.end, fast);
    }
  }
}

void Team::wake_children(int self) {
  for (int slot = 2 * self + 1; slot <= 2 * self + 2 && slot < sharing_; slot++) {
    if (slots_[slot].to_wake.load(std::memory_order_relaxed) && slots_[slot].to_wake.exchange(false)) wake(slot);
  }
}

void Team::wait_for_helpers() {
  for (int slot = 1; slot < sharing_; slot++) {
    std::atomic<uint32_t>& state = slots_[slot].state;
    uint32_t seen = kPosted;
    if (state.compare_exchange_strong(seen, slots_[slot].to_wake.exchange(false) ? kAway : kIdle)) continue;
    for (int spins = 0; state.load(std::memory_order_acquire) == kRunning; spins++) {
      if (spins < kSpinsBeforeYield) {
        pause();
      } else {
        sched_yield();  // the helper has been descheduled: let it have this core
      }
    }
  }
}

bool Team::serve(int slot, int64_t spin_ns) {
  OwnFloats floats;
  std::atomic<uint32_t>& state = slots_[slot].state;
  int64_t idle_since = 0;
  for (int spins = 0;; spins++) {
    uint32_t seen = state.load(std::memory_order_acquire);
    if (seen == kEnded) return false;
    if (seen == kPosted) {
      if (!state.compare_exchange_strong(seen, kRunning, std::memory_order_acq_rel)) continue;
      wake_children(slot);
      work(slot);
      state.store(kIdle, std::memory_order_release);
      idle_since = 0;
      continue;
    }
    pause();
    if (spins % 32) continue;
    int64_t now = now_ns();
    if (!idle_since) idle_since = now;
    if (now - idle_since < spin_ns) continue;
    seen = kIdle;
    if (state.compare_exchange_strong(seen, kAway) || seen == kAway) return true;
  }
}

void Team::end() {
  for (int slot = 1; slot < workers_; slot++) slots_[slot].state.store(kEnded);
}

}  // namespace ral
