// The floating-point mode in which all that belongs to a program computes: rounding to nearest, denormal numbers as they
// are, no traps. Whoever calls may have another one (as torch.set_flush_denormal, fesetround or a process's start make
// it, and XLA and TensorFlow on their threads), and results must not depend on that, nor on which thread computes which
// part. It is asked for wherever a thread begins to compute for a program; where it is there already, that takes 10 to 20 ns.
#pragma once

#include <cfenv>
#include <cstdint>

namespace ral {

#if defined(__x86_64__)

// Control bits of MXCSR (rounding, traps, FTZ, DAZ) and of the x87, which some functions of LAPACK and libm use.
constexpr uint32_t kOwnSse = 0x1f80, kSseControl = 0xffc0;
constexpr uint16_t kOwnX87 = 0x037f, kX87Control = 0x0f3f;

inline bool floats_are_own() {
  uint16_t x87;
  asm volatile("fnstcw %0" : "=m"(x87));
  return (__builtin_ia32_stmxcsr() & kSseControl) == kOwnSse && ((x87 ^ kOwnX87) & kX87Control) == 0;
}

inline void set_own_floats() {
  __builtin_ia32_ldmxcsr(kOwnSse);
  asm volatile("fldcw %0" : : "m"(kOwnX87));
}

#elif defined(__aarch64__)

inline bool floats_are_own() {
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return control == 0;
}

inline void set_own_floats() { asm volatile("msr fpcr, xzr"); }

#else

inline bool floats_are_own() { return false; }
inline void set_own_floats() { std::fesetenv(FE_DFL_ENV); }

#endif

// While it lives, the thread has this mode; then another one that it had before, with the flags of that time.
class OwnFloats {
 public:
  OwnFloats() : other_(!floats_are_own()) {
    if (!other_) return;
    std::fegetenv(&before_);
    set_own_floats();
  }
  OwnFloats(const OwnFloats&) = delete;
  ~OwnFloats() {
    if (other_) std::fesetenv(&before_);
  }

 private:
  const bool other_;
  std::fenv_t before_;
};

}  // namespace ral
