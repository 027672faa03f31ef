// The numbers are those of the System V ABI for AMD64, chapter 4.
#include <elf.h>

#include <cstring>
#include <stdexcept>

#include "link/relocations.h"

namespace ral {
namespace {

constexpr std::string_view kJump("\xff\x25\0\0\0\0", 6);  // jmp *0(%rip)

void write(char* at, uint64_t value) { std::memcpy(at, &value, sizeof value); }

void write_near(const Symbols& symbols, uint64_t symbol, char* at, uint64_t distance) {
  int64_t far = static_cast<int64_t>(distance);
  if (far != static_cast<int32_t>(far)) throw std::invalid_argument("@" + symbols.name(symbol) + " is too far away");
  int32_t value = static_cast<int32_t>(far);
  std::memcpy(at, &value, sizeof value);
}

uint64_t bytes(uint64_t type) { return type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4; }

void relocate(Symbols& symbols, uint64_t type, uint64_t symbol, uint64_t addend, char* at) {
  uint64_t here = reinterpret_cast<uintptr_t>(at);
  switch (type) {
    case R_X86_64_NONE: return;
    case R_X86_64_64: return write(at, symbols.value(symbol) + addend);
    case R_X86_64_PC64: return write(at, symbols.value(symbol) + addend - here);
    case R_X86_64_PC32: return write_near(symbols, symbol, at, symbols.value(symbol) + addend - here);
    case R_X86_64_PLT32: return write_near(symbols, symbol, at, symbols.callable(symbol) + addend - here);
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX:
      return write_near(symbols, symbol, at, symbols.address_of_address(symbol) + addend - here);
    default: throw std::invalid_argument("it has relocations of type " + std::to_string(type));
  }
}

}  // namespace

const RelocationRules& x86_64_relocations() {
  static constexpr RelocationRules kRules{"x86-64", EM_X86_64, kJump, bytes, relocate};
  return kRules;
}

}  // namespace ral
