// Object code linked into this process: an ELF object for its machine, position independent, whose parts lie in 2 GiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace ral {

class Code {
 public:
  // symbols: where the functions are that the object calls; all others are this process's own.
  // Throws std::invalid_argument for bytes that are no such object, and for a function that is nowhere.
  Code(const char* object, size_t size, const std::unordered_map<std::string, uintptr_t>& symbols);
  Code(const Code&) = delete;

  // Gives its memory back: nothing of it may run any more, which nobody knows where the process ends.
  void close();

  // The address of a symbol that the object exports; 0 for none of that name.
  uintptr_t address(const std::string& name) const;

  // All functions by name, those that it keeps for itself too.
  const std::unordered_map<std::string, uintptr_t>& functions() const { return functions_; }

 private:
  char* memory_ = nullptr;
  size_t size_ = 0;
  std::unordered_map<std::string, uintptr_t> exports_, functions_;
};

}  // namespace ral
