#include "program/packed.h"

#include <atomic>

namespace ral {
namespace {

std::atomic<int64_t> total{0};

}  // namespace

Block PackBudget::take(int64_t bytes, int64_t limit) {
  int64_t used = total.load();
  do {
    if (bytes > limit - used) return Block();
  } while (!total.compare_exchange_weak(used, used + bytes));
  Block block(bytes, Use::kResult);
  if (!block) give_back(bytes);
  return block;
}

void PackBudget::give_back(int64_t bytes) { total.fetch_sub(bytes); }

}  // namespace ral
