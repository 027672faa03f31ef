#include "digest.h"

#include <cstring>

namespace ral {
namespace {

// Words that take turns: as many as multiplications are under way at once.
constexpr int kLanes = 8;
constexpr int64_t kBlock = kLanes * sizeof(uint64_t);
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
  for (int i = 0; i < kLanes; i++) lanes[i] = mixed(lanes[i], words[i]);
}

}  // namespace

uint64_t digest(const void* data, int64_t bytes) noexcept {
  const char* at = static_cast<const char*>(data);
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

}  // namespace ral
