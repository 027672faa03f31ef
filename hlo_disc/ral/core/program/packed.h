// Packed forms of immutable arrays that arrive as inputs, and how many bytes of them there may be.
#pragma once

#include <memory>
#include <utility>

#include "memory/memory.h"

namespace ral {

// Packed bytes in memory or about to be, over all executables.
class PackBudget {
 public:
  // Memory for a packed form, or an empty block when the budget or the memory is used up.
  static Block take(int64_t bytes, int64_t limit);
  static void give_back(int64_t bytes);
};

// One packed form; its memory and budget return with the last user.
class Packed {
 public:
  explicit Packed(Block block) : block_(std::move(block)) {}
  Packed(const Packed&) = delete;
  ~Packed() { PackBudget::give_back(block_.bytes()); }
  void* data() const { return block_.data(); }
  int64_t bytes() const { return block_.bytes(); }

 private:
  Block block_;
};

// An array for one pack: whether it has come before, and its packed form, null when there is none.
struct PackedForm {
  bool seen = false;
  std::shared_ptr<Packed> packed;
};

}  // namespace ral
