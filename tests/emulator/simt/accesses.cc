// What loads and stores of kernels may be: inside of the memory that their address was made from, aligned as they say,
// and ordered with those of other threads.
//
// Threads of a block are ordered by barriers alone, blocks of a launch by nothing: an exchange between the threads of a
// warp says nothing of memory. So every byte remembers in which phase and by which thread it was last stored, loaded and
// updated. Phases are numbered through all blocks and launches. Two threads that store the same value race as well;
// atomic updates do not race with each other.
#include <deque>

#include "simt/simt.h"

namespace simt {
namespace {

// Who touched a byte: the phase, whether another block of the launch did as well, and the thread of the phase or kMany.
constexpr int kThreadBits = 11, kPhaseAt = kThreadBits + 1;
constexpr uint64_t kOtherBlock = 1 << kThreadBits, kMany = kOtherBlock - 1;

constexpr int32_t kUpdate = 2;

uint64_t phase = 0, launch = 0;
uint64_t launch_from = 0, block_from = 0, phase_from = 0;  // the first word of each
std::deque<Region> shared_regions;  // that blocks of this launch have asked for
size_t shared_bytes = 0;  // that the launch asks for

std::string name_of(uint64_t touched) {
  if (touched < block_from || touched & kOtherBlock) return "another block";
  uint64_t thread = touched & kMany;
  return thread == kMany ? "other threads" : "thread " + std::to_string(thread);
}

[[noreturn]] void fail_at(const Site* site, const std::string& what) { fail(what + " in " + site->text); }

// `since` is what is not forgotten: the launch, or of shared memory, which every block has for itself, the block.
bool races(uint64_t touched, uint64_t mine, uint64_t since) {
  if (touched < since) return false;
  if (touched & kOtherBlock || touched < block_from) return true;
  return touched >= phase_from && touched != mine;
}

// Both an earlier access to a byte and this one.
uint64_t both(uint64_t touched, uint64_t mine, uint64_t since) {
  if (touched < since) return mine;
  if (touched < block_from) return mine | kOtherBlock;
  uint64_t other = touched & kOtherBlock;
  if (touched < phase_from || (touched & ~kOtherBlock) == mine) return mine | other;
  return phase_from | kMany | other;
}

void touch(const Site* site, Region& region, size_t offset, size_t count, bool store, bool atomic) {
  Touched* bytes = region.touched(region.bytes) + offset;
  uint64_t since = region.shared ? block_from : launch_from;
  uint64_t mine = phase_from | static_cast<uint64_t>(thread());
  for (size_t i = 0; i < count; i++) {
    Touched& byte = bytes[i];
    if (races(byte.store, mine, since)) fail_at(site, "a race with a store of " + name_of(byte.store));
    if (!atomic && races(byte.update, mine, since)) fail_at(site, "a race with an update of " + name_of(byte.update));
    if (!store) {
      if (byte.load != mine) byte.load = both(byte.load, mine, since);
      continue;
    }
    if (races(byte.load, mine, since)) fail_at(site, "a race with a load of " + name_of(byte.load));
    if (!atomic) {
      byte.store = mine;
    } else if (byte.update != mine) {
      byte.update = both(byte.update, mine, since);
    }
  }
}

Region* region_of(uintptr_t base) {
  for (Region& region : shared_regions) {
    if (base - region.start <= region.bytes) return &region;
  }
  return find_region(base);
}

}  // namespace

uint64_t launch_number() { return launch; }

void begin_phase() { phase_from = ++phase << kPhaseAt; }

void begin_launch() {
  launch++;
  launch_from = (phase + 1) << kPhaseAt;
  shared_regions.clear();
}

void begin_block(size_t shared) {
  begin_phase();
  block_from = phase_from;
  shared_bytes = shared;
}

}  // namespace simt

using namespace simt;

extern "C" {

// Of shared memory, what begins there; -1 bytes are what the launch asks for.
void simt_shared_region(void* start, int64_t bytes) {
  auto at = reinterpret_cast<uintptr_t>(start);
  for (const Region& region : shared_regions) {
    if (region.start == at) return;
  }
  shared_regions.push_back({at, bytes < 0 ? shared_bytes : static_cast<size_t>(bytes), true});
}

// What comes before a load (0), store (1) or atomic update (2) of some elements side by side: those whose bit is set.
// `base` is what the address was made from.
void simt_access(uintptr_t base, uintptr_t at, uint64_t mask, int64_t element, int64_t alignment, int32_t store,
                 Site* site) {
  if (at % static_cast<uintptr_t>(alignment))
    fail_at(site, "an access that must be at a multiple of " + std::to_string(alignment) + " bytes is not,");
  if (!mask) return;
  if (site->base != base || site->launch != launch) {
    site->base = base;
    site->launch = launch;
    site->region = region_of(base);
  }
  if (!site->region) fail_at(site, "an access to what is no memory of the GPU");
  Region& region = *site->region;
  auto bytes = static_cast<size_t>(element);
  while (mask) {
    int first = __builtin_ctzll(mask);
    uint64_t rest = ~(mask >> first);
    int run = rest ? __builtin_ctzll(rest) : 64;
    mask = first + run == 64 ? 0 : mask >> (first + run) << (first + run);
    uintptr_t from = at + first * bytes;
    size_t offset = from - region.start, size = run * bytes;
    if (offset > region.bytes || size > region.bytes - offset) fail_at(site, "an access outside of its memory");
    touch(site, region, offset, size, store, store == kUpdate);
    if (counting()) count(site, region, from, size, static_cast<size_t>(alignment), store);
  }
}
}
