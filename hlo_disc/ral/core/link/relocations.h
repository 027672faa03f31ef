// Places in object code that depend on where it and what it calls lie: the rules of a machine, a file each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ral {

// The symbols of an object that is being linked, by their numbers. All throw std::invalid_argument.
class Symbols {
 public:
  virtual std::string name(uint64_t symbol) const = 0;
  virtual uint64_t value(uint64_t symbol) const = 0;
  // The address to which a call of it goes.
  virtual uint64_t callable(uint64_t symbol) = 0;
  // The address of a word nearby that holds its value.
  virtual uint64_t address_of_address(uint64_t symbol) = 0;

 protected:
  ~Symbols() = default;
};

// Bytes of a jump, with the address where it goes.
constexpr uint64_t kStub = 16;

// elf_machine: its number in ELF headers. jump: what goes to the address that follows it. bytes: that a relocation of a
// type changes. relocate: changes them at `at`, where they are to run; throws std::invalid_argument for a type that LLVM
// does not write, and for what is too far away.
struct RelocationRules {
  const char* machine;
  uint16_t elf_machine;
  std::string_view jump;
  uint64_t (*bytes)(uint64_t type);
  void (*relocate)(Symbols& symbols, uint64_t type, uint64_t symbol, uint64_t addend, char* at);
};

const RelocationRules& x86_64_relocations();
const RelocationRules& aarch64_relocations();

}  // namespace ral
