// A team of workers that share the blocks of one launch after another. It owns no threads: the standalone pool lends it
// its own, the XLA context lends it XLA's. The caller is worker 0 and works like the others.
//
// A slot is where a helper and the caller meet. Its states and who moves between them:
//   away ----- caller: post, then wake(slot) ----> posted     a thread has to be fetched for this slot
//   idle ----- caller: post ---------------------> posted     a thread spins here
//   posted --- helper: start --------------------> running
//   posted --- caller: take back ----------------> idle       the blocks are done and nobody had started; away when no
//                                                             thread had been fetched either
//   running -- helper: no block is left ---------> idle
//   idle ----- helper: spun long enough ---------> away
//   any ------ owner: the team ends -------------> ended
// The caller waits for running slots only, so a helper that never comes costs nothing. Fetching threads is shared out
// as a binary tree over the slots, because one wake-up costs microseconds and the caller has better things to do.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "ral.h"

namespace ral {

class Team {
 public:
  enum State : uint32_t { kAway, kIdle, kPosted, kRunning, kEnded };

  explicit Team(int workers);
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  virtual ~Team() = default;

  int workers() const { return workers_; }

  // Runs blocks 0 .. n-1 on at most `workers` workers, n >= 1. One thread at a time.
  void run(const ral_call& call, ral_block_fn fn, const void* args, int64_t n, int workers);

  // Serves a slot until it stood idle for `spin_ns`, or until the team ends. Returns false when the team ended.
  bool serve(int slot, int64_t spin_ns);

  // Sends every helper home, at the latest when it next looks. Only between runs.
  void end();

  // The word a helper may sleep on while it reads kAway.
  std::atomic<uint32_t>& state(int slot) { return slots_[slot].state; }

 protected:
  // Makes some thread call serve(slot) soon. Called by any worker, for a slot that was away.
  virtual void wake(int slot) = 0;

 private:
  // A worker's share of the blocks. Others take from it when theirs is done, so that consecutive launches over the same
  // rows keep their rows on the same core, and a late worker holds nobody up.
  struct alignas(128) Slot {
    std::atomic<uint32_t> state{kAway};
    std::atomic<bool> to_wake{false};  // posted while away, and wake() not called yet
    alignas(64) std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  void share_out(const ral_call& call, ral_block_fn fn, const void* args, int64_t n, int workers);
  void wake_children(int self);
  void work(int self);
  void wait_for_helpers();

  const int workers_;
  std::unique_ptr<Slot[]> slots_;
  ral_block_fn fn_ = nullptr;
  const void* args_ = nullptr;
  char* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
  int64_t grain_ = 1;
  int sharing_ = 1;
};

}  // namespace ral
