// The numbers for x86-64 are those of Intel's Software Developer's Manual, volume 2: CPUID, XGETBV.
#include "cpu.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace ral {
#if defined(__x86_64__)
namespace {

enum Register { kEax, kEbx, kEcx, kEdx };

// State of a thread that the system has to keep: bits of XCR0.
constexpr uint64_t kNothing = 0, kAvx = 0x6, kAvx512 = kAvx | 0xe0, kTiles = kAvx | 0x60000;

struct Feature {
  const char* name;
  uint32_t leaf, part;
  Register where;
  int bit;
  uint64_t kept;
};

constexpr Feature kFeatures[] = {
    {"sse4.2", 1, 0, kEcx, 20, kNothing},
    {"movbe", 1, 0, kEcx, 22, kNothing},
    {"popcnt", 1, 0, kEcx, 23, kNothing},
    {"lzcnt", 0x80000001, 0, kEcx, 5, kNothing},
    {"bmi", 7, 0, kEbx, 3, kNothing},
    {"bmi2", 7, 0, kEbx, 8, kNothing},
    {"avx", 1, 0, kEcx, 28, kAvx},
    {"f16c", 1, 0, kEcx, 29, kAvx},
    {"fma", 1, 0, kEcx, 12, kAvx},
    {"avx2", 7, 0, kEbx, 5, kAvx},
    {"avx512f", 7, 0, kEbx, 16, kAvx512},
    {"avx512dq", 7, 0, kEbx, 17, kAvx512},
    {"avx512cd", 7, 0, kEbx, 28, kAvx512},
    {"avx512bw", 7, 0, kEbx, 30, kAvx512},
    {"avx512vl", 7, 0, kEbx, 31, kAvx512},
    {"avx512vbmi", 7, 0, kEcx, 1, kAvx512},
    {"avx512vbmi2", 7, 0, kEcx, 6, kAvx512},
    {"avx512bitalg", 7, 0, kEcx, 12, kAvx512},
    {"avx512vpopcntdq", 7, 0, kEcx, 14, kAvx512},
    {"avx512bf16", 7, 1, kEax, 5, kAvx512},
    {"amx-bf16", 7, 0, kEdx, 22, kTiles},
    {"amx-tile", 7, 0, kEdx, 24, kTiles},
};
// Linux has to be asked for registers of small matrices, for all threads of the process:
// arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
constexpr int kRequest = 0x1023, kTileData = 18;
constexpr int kSavesMore = 27;  // of ECX in leaf 1: whether there is an XCR0

uint64_t kept_state() {
  uint32_t registers[4];
  if (!__get_cpuid(1, &registers[0], &registers[1], &registers[2], &registers[3])) return 0;
  if (!(registers[kEcx] >> kSavesMore & 1)) return 0;
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

bool tiles_granted() {
  static const bool granted = syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return granted;
}

}  // namespace

std::vector<std::string> cpu_features() {
  std::vector<std::string> found;
  uint64_t kept = kept_state();
  for (const Feature& f : kFeatures) {
    uint32_t registers[4];
    if ((kept & f.kept) == f.kept &&
        __get_cpuid_count(f.leaf, f.part, &registers[0], &registers[1], &registers[2], &registers[3]) &&
        (registers[f.where] >> f.bit & 1) && (f.kept != kTiles || tiles_granted())) {
      found.push_back(f.name);
    }
  }
  return found;
}
#elif defined(__aarch64__)
std::vector<std::string> cpu_features() {
  return getauxval(AT_HWCAP) & HWCAP_ASIMD ? std::vector<std::string>{"neon"} : std::vector<std::string>{};
}
#else
std::vector<std::string> cpu_features() { return {}; }
#endif
}  // namespace ral
