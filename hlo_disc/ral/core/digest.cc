#include "digest.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "threads/pool.h"
#include "threads/signals.h"

namespace ral {
namespace {

// Words that take turns: as many as multiplications are under way at once.
constexpr int kLanes = 8;
constexpr int64_t kBlock = kLanes * sizeof(uint64_t);
// Bytes that a thread takes at once, and the most threads: more do not read faster.
constexpr int64_t kPiece = 1 << 20;
constexpr int64_t kMostThreads = 8;
// Odd, so that different words stay different.
constexpr uint64_t kWord = 0x9E3779B97F4A7C55, kState = 0xD6E8FEB86659FD93;

// One step of a sum in which every bit of a word soon reaches all others, as xxHash has it: multiply, add, turn, multiply.
inline uint64_t mixed(uint64_t state, uint64_t word) {
  uint64_t sum = state + word * kWord;
  return (sum << 31 | sum >> 33) * kState;
}

inline void add_block(uint64_t* lanes, const char* block) {
  uint64_t words[kLanes];
  std::memcpy(words, block, kBlock);
#pragma GCC unroll 8  // and the words stay in registers
  for (int i = 0; i < kLanes; i++) lanes[i] = mixed(lanes[i], words[i]);
}

uint64_t digest_of_piece(const char* at, int64_t bytes) {
  const char* end = at + bytes;
  uint64_t lanes[kLanes] = {1, 2, 3, 4, 5, 6, 7, 8};
  for (; end - at >= kBlock; at += kBlock) add_block(lanes, at);
  char rest[kBlock] = {};
  if (at != end) std::memcpy(rest, at, static_cast<size_t>(end - at));
  add_block(lanes, rest);
  uint64_t all = static_cast<uint64_t>(bytes);
  for (uint64_t lane : lanes) all = mixed(all, lane);
  return mixed(all, 0);
}

// f(0) to f(count - 1), by as many threads as one core alone would keep waiting for memory.
template <typename F>
void shared(int64_t count, F f) {
  std::atomic<int64_t> next{0};
  auto work = [&] {
    for (int64_t i; (i = next.fetch_add(1)) < count;) f(i);
  };
  std::vector<std::thread> helpers;
  const int64_t wanted = std::min<int64_t>({count, usable_cores(), kMostThreads}) - 1;
  {
    SignalsBlocked blocked;
    try {
      while (static_cast<int64_t>(helpers.size()) < wanted) helpers.emplace_back(work);
    } catch (const std::exception&) {  // the system gives no more
    }
  }
  work();
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace

uint64_t digest(const void* data, int64_t bytes) noexcept {
  const char* at = static_cast<const char*>(data);
  if (bytes <= kPiece) return digest_of_piece(at, bytes);
  const int64_t count = (bytes + kPiece - 1) / kPiece;
  std::unique_ptr<uint64_t[]> pieces(new (std::nothrow) uint64_t[static_cast<size_t>(count)]);
  auto piece = [&](int64_t i) { return digest_of_piece(at + i * kPiece, std::min(kPiece, bytes - i * kPiece)); };
  if (pieces) shared(count, [&](int64_t i) { pieces[static_cast<size_t>(i)] = piece(i); });
  uint64_t all = static_cast<uint64_t>(bytes);
  for (int64_t i = 0; i < count; i++) all = mixed(all, pieces ? pieces[static_cast<size_t>(i)] : piece(i));
  return mixed(all, 0);
}

}  // namespace ral
