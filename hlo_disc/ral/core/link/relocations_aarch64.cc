// The numbers are those of ELF for the Arm 64-bit Architecture, "Relocation types"; instructions: Arm Architecture
// Reference Manual, C4.
#include <elf.h>

#include <cstring>
#include <stdexcept>

#include "link/relocations.h"

namespace ral {
namespace {

// By register 16, which is for this: ldr x16, #8; br x16.
constexpr std::string_view kJump("\x50\x00\x00\x58\x00\x02\x1f\xd6", 8);
constexpr uint64_t kInPage = 0xfff;

template <typename T>
void write(char* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

// Puts the low bits of a value into those bits of an instruction from `first` on.
void insert(char* at, uint64_t value, int bits, int first) {
  uint32_t word, mask = ((uint32_t{1} << bits) - 1) << first;
  std::memcpy(&word, at, sizeof word);
  write(at, (word & ~mask) | (static_cast<uint32_t>(value << first) & mask));
}

int64_t near(const Symbols& symbols, uint64_t symbol, uint64_t distance, int bits) {
  int64_t far = static_cast<int64_t>(distance), most = int64_t{1} << (bits - 1);
  if (far < -most || far >= most) throw std::invalid_argument("@" + symbols.name(symbol) + " is too far away");
  return far;
}

// adrp: how many pages of 4 KiB away it is.
void write_page(const Symbols& symbols, uint64_t symbol, char* at, uint64_t target) {
  uint64_t here = reinterpret_cast<uintptr_t>(at);
  int64_t pages = near(symbols, symbol, (target & ~kInPage) - (here & ~kInPage), 33) >> 12;
  insert(at, static_cast<uint64_t>(pages), 2, 29);
  insert(at, static_cast<uint64_t>(pages) >> 2, 19, 5);
}

// A load or store: where in its page it is, in elements of 2^shift bytes.
void write_offset(const Symbols& symbols, uint64_t symbol, char* at, uint64_t target, int shift) {
  if (target & ((uint64_t{1} << shift) - 1))
    throw std::invalid_argument("@" + symbols.name(symbol) + " is not aligned");
  insert(at, (target & kInPage) >> shift, 12, 10);
}

uint64_t bytes(uint64_t type) { return type == R_AARCH64_ABS64 || type == R_AARCH64_PREL64 ? 8 : 4; }

void relocate(Symbols& symbols, uint64_t type, uint64_t symbol, uint64_t addend, char* at) {
  uint64_t here = reinterpret_cast<uintptr_t>(at);
  auto value = [&] { return symbols.value(symbol) + addend; };
  switch (type) {
    case R_AARCH64_NONE: return;
    case R_AARCH64_ABS64: return write(at, value());
    case R_AARCH64_PREL64: return write(at, value() - here);
    case R_AARCH64_PREL32: return write(at, static_cast<int32_t>(near(symbols, symbol, value() - here, 32)));
    case R_AARCH64_ADR_PREL_PG_HI21: return write_page(symbols, symbol, at, value());
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC: return write_offset(symbols, symbol, at, value(), 0);
    case R_AARCH64_LDST16_ABS_LO12_NC: return write_offset(symbols, symbol, at, value(), 1);
    case R_AARCH64_LDST32_ABS_LO12_NC: return write_offset(symbols, symbol, at, value(), 2);
    case R_AARCH64_LDST64_ABS_LO12_NC: return write_offset(symbols, symbol, at, value(), 3);
    case R_AARCH64_LDST128_ABS_LO12_NC: return write_offset(symbols, symbol, at, value(), 4);
    case R_AARCH64_ADR_GOT_PAGE: return write_page(symbols, symbol, at, symbols.address_of_address(symbol) + addend);
    case R_AARCH64_LD64_GOT_LO12_NC:
      return write_offset(symbols, symbol, at, symbols.address_of_address(symbol) + addend, 3);
    case R_AARCH64_CALL26:
    case R_AARCH64_JUMP26: {
      int64_t far = near(symbols, symbol, symbols.callable(symbol) + addend - here, 28);
      return insert(at, static_cast<uint64_t>(far >> 2), 26, 0);
    }
    default: throw std::invalid_argument("it has relocations of type " + std::to_string(type));
  }
}

}  // namespace

const RelocationRules& aarch64_relocations() {
  static constexpr RelocationRules kRules{"AArch64", EM_AARCH64, kJump, bytes, relocate};
  return kRules;
}

}  // namespace ral
