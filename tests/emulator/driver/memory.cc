#include "driver/memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "driver/devices.h"
#include "driver/queues.h"
#include "simt/simt.h"

namespace memory {
namespace {

constexpr uint64_t kGuard = 0x5eadbeef5eadbeef;
constexpr size_t kMargin = 256;
constexpr size_t kMost = size_t{1} << 34;

struct Given {
  size_t bytes;
  uint64_t number;  // of the allocation
  int device;
};

// What was taken back, and may be handed out again in the stream that frees it; once that is done, in any.
struct Resting {
  uintptr_t address;
  size_t size;
  uint64_t number;
  void* stream;
  bool is_free;
  int device;
};

std::mutex mutex;
std::map<uintptr_t, simt::Region> blocks;  // that are there
std::map<uintptr_t, Given> given;          // that were handed out
std::vector<Resting> resting;
std::set<uint64_t> ended;  // allocations that have ended, and do not rest yet
uint64_t last_number = 0;
std::map<uintptr_t, size_t> pinned;
size_t most = kMost, taken[devices::kCount];  // bytes of each GPU, and those that are no longer the driver's

size_t size_of(size_t bytes) { return (bytes + kMargin - 1) / kMargin * kMargin; }

void fill(uintptr_t address, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 8) memcpy(reinterpret_cast<void*>(address + i), &kGuard, 8);
}

bool whole(uintptr_t address, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 8) {
    if (memcmp(reinterpret_cast<void*>(address + i), &kGuard, 8) != 0) return false;
  }
  return true;
}

void give_back(const Resting& block) {
  free(reinterpret_cast<void*>(block.address - kMargin));
  taken[block.device] -= block.size;
}

// Memory for a block of this size, from what rests or from the host. The last that was freed is the first to go.
uintptr_t take(size_t size, void* stream, int device, bool again) {
  std::lock_guard<std::mutex> lock(mutex);
  for (auto found = resting.rbegin(); again && found != resting.rend(); found++) {
    if (found->size != size || found->device != device || (!found->is_free && found->stream != stream)) continue;
    uintptr_t address = found->address;
    resting.erase(std::next(found).base());
    return address;
  }
  if (size > most - std::min(most, taken[device])) return 0;
  auto start = reinterpret_cast<uintptr_t>(aligned_alloc(kMargin, size + 2 * kMargin));
  if (!start) return 0;
  taken[device] += size;
  fill(start, kMargin);
  memset(reinterpret_cast<void*>(start + kMargin), 0xff, size);
  fill(start + kMargin + size, kMargin);
  return start + kMargin;
}

void begin(uintptr_t address, size_t bytes, int device) {
  memset(reinterpret_cast<void*>(address + bytes), 0xee, size_of(bytes) - bytes);
  std::lock_guard<std::mutex> lock(mutex);
  blocks.emplace(address, simt::Region{address, bytes, false, device});
}

void end(uintptr_t address, size_t bytes, uint64_t number) {
  size_t size = size_of(bytes);
  std::lock_guard<std::mutex> lock(mutex);
  if (!blocks.erase(address)) return queues::fail("memory is freed before it is there");
  bool kept = whole(address - kMargin, kMargin) && whole(address + size, kMargin);
  for (size_t i = bytes; i < size; i++) kept &= reinterpret_cast<unsigned char*>(address)[i] == 0xee;
  if (!kept) queues::fail("a kernel wrote outside of its memory");
  memset(reinterpret_cast<void*>(address), 0xff, size);
  for (Resting& one : resting) {
    if (one.number == number) return void(one.is_free = true);
  }
  ended.insert(number);
}

}  // namespace

uintptr_t allocate(size_t bytes, void* stream, int device) {
  uintptr_t address = take(size_of(bytes), stream, device, queues::random(8) != 0);
  if (!address) return 0;
  {
    std::lock_guard<std::mutex> lock(mutex);
    given[address] = {bytes, ++last_number, device};
  }
  queues::put(stream, [=] { begin(address, bytes, device); });
  return address;
}

bool release(uintptr_t address, void* stream) {
  Given block;
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = given.find(address);
    if (found == given.end() || found->second.device != devices::here()) return false;
    block = found->second;
    given.erase(found);
  }
  queues::put(stream, [=] { end(address, block.bytes, block.number); });
  {
    // Not earlier: another thread would take it, and begin to use it in this stream before it has ended there.
    std::lock_guard<std::mutex> lock(mutex);
    bool is_free = ended.erase(block.number) > 0;
    resting.push_back({address, size_of(block.bytes), block.number, stream, is_free, block.device});
  }
  if (!queues::is_hostile()) trim();
  return true;
}

void trim() {
  std::lock_guard<std::mutex> lock(mutex);
  auto kept = std::partition(resting.begin(), resting.end(), [](const Resting& one) { return !one.is_free; });
  for (auto one = kept; one != resting.end(); one++) give_back(*one);
  resting.erase(kept, resting.end());
}

bool is_inside(uintptr_t address, size_t bytes) {
  simt::Region* block = simt::find_region(address);
  return block && bytes <= block->bytes - (address - block->start);
}

void set_most(size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  most = bytes ? bytes : kMost;
}

void look(int device, size_t* free, size_t* total) {
  std::lock_guard<std::mutex> lock(mutex);
  *total = most;
  *free = most - std::min(most, taken[device]);
}

size_t count() {
  std::lock_guard<std::mutex> lock(mutex);
  return given.size();
}

void declare_pinned(uintptr_t address, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  pinned.erase(address);
  if (bytes) pinned.emplace(address, bytes);
}

bool is_pinned(const void* address, size_t bytes) {
  auto at = reinterpret_cast<uintptr_t>(address);
  std::lock_guard<std::mutex> lock(mutex);
  auto after = pinned.upper_bound(at);
  if (after == pinned.begin()) return false;
  auto& [start, size] = *--after;
  return at - start + bytes <= size;
}

bool read_host(void* to, const void* from, size_t bytes) {
  // The kernel tells that memory is gone, where a load would end the process.
  iovec target{to, bytes}, source{const_cast<void*>(from), bytes};
  return bytes == 0 || process_vm_readv(getpid(), &target, 1, &source, 1, 0) == static_cast<ssize_t>(bytes);
}

}  // namespace memory

simt::Region* simt::find_region(uintptr_t address) {
  std::lock_guard<std::mutex> lock(memory::mutex);
  auto after = memory::blocks.upper_bound(address);
  if (after == memory::blocks.begin()) return nullptr;
  Region& found = (--after)->second;
  bool reached = address - found.start <= found.bytes && found.device == queues::device();
  return reached ? &found : nullptr;
}
