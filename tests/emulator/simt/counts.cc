// What accesses of kernels cost, when somebody asks: of each block, and of all blocks of a launch together, the sectors of
// 32 bytes that it touches in global memory and how many bytes of them, and what its warps ask of memory at once.
//
// A warp asks at once for what its threads access by the same instruction for the same time in the block. An
// instruction moves up to 16 bytes a thread; of vectors no more than they are aligned to.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "simt/simt.h"

namespace simt {
namespace {

constexpr size_t kSector = 32, kBanks = 32, kWord = 4, kLine = kBanks * kWord, kWidest = 16;

// `emulated.py` has the same record. block: -1 for all of the launch.
struct Counts {
  int64_t launch = 0, block = 0;
  int64_t sectors[2] = {}, bytes[2] = {};  // loaded and stored
  int64_t requests = 0, asked = 0;  // of warps to global memory, and the sectors of each
  int64_t shared = 0, conflicts = 0;  // requests to shared memory, and turns that they take beyond the fewest
  int64_t barriers = 0;
};

// What the threads of a warp do by one instruction.
struct Request {
  uintptr_t at[kWarp];
  uint32_t lanes = 0;
};

// An instruction: its requests by warps, in order, and how often each thread has come to it.
struct Instruction {
  size_t bytes;
  bool shared;
  std::map<int, std::vector<Request>> of_warp;
  std::map<int, size_t> times;
};

bool is_counting = false;
uint64_t block_serial = 0;
Counts of_block, of_launch;
std::vector<Counts> all;
std::map<std::pair<const Site*, size_t>, Instruction> instructions;  // since the block began

void mark(uint32_t& marked, uint32_t bits, int64_t& sectors, int64_t& bytes) {
  sectors += !marked;
  bytes += __builtin_popcount(bits & ~marked);
  marked |= bits;
}

void count_sectors(Region& region, uintptr_t at, size_t bytes, bool store) {
  Sector* sectors = region.sectors(region.bytes / kSector + 2);
  uintptr_t origin = region.start / kSector * kSector;
  for (uintptr_t end = at + bytes; at < end;) {
    uintptr_t next = std::min(end, at / kSector * kSector + kSector);
    uint32_t bits = static_cast<uint32_t>(((uint64_t{1} << (next - at)) - 1) << at % kSector);
    Sector& sector = sectors[(at - origin) / kSector];
    if (sector.block != block_serial) sector.of_block[0] = sector.of_block[1] = 0;
    if (sector.launch != launch_number()) sector.of_launch[0] = sector.of_launch[1] = 0;
    sector.block = block_serial;
    sector.launch = launch_number();
    mark(sector.of_block[store], bits, of_block.sectors[store], of_block.bytes[store]);
    mark(sector.of_launch[store], bits, of_launch.sectors[store], of_launch.bytes[store]);
    at = next;
  }
}

// Turns that shared memory takes beyond the fewest. A turn serves as many threads as 128 bytes are for, and of each bank
// one word: see "Shared Memory" of NVIDIA's CUDA C++ Programming Guide.
int64_t conflicts(const Request& request, size_t bytes) {
  size_t threads = std::min<size_t>(kWarp, kLine / std::max(bytes, kWord));
  int64_t beyond = 0;
  for (size_t first = 0; first < kWarp; first += threads) {
    std::vector<uintptr_t> words[kBanks];
    size_t most = 0;
    for (size_t lane = first; lane < first + threads; lane++) {
      if (!(request.lanes >> lane & 1)) continue;
      for (uintptr_t word = request.at[lane] / kWord; word <= (request.at[lane] + bytes - 1) / kWord; word++) {
        auto& bank = words[word % kBanks];
        if (std::find(bank.begin(), bank.end(), word) == bank.end()) bank.push_back(word);
        most = std::max(most, bank.size());
      }
    }
    beyond += most > 1 ? static_cast<int64_t>(most) - 1 : 0;
  }
  return beyond;
}

int64_t sectors_of(const Request& request, size_t bytes) {
  std::vector<uintptr_t> sectors;
  for (int lane = 0; lane < kWarp; lane++) {
    if (!(request.lanes >> lane & 1)) continue;
    for (uintptr_t at = request.at[lane] / kSector; at <= (request.at[lane] + bytes - 1) / kSector; at++)
      sectors.push_back(at);
  }
  std::sort(sectors.begin(), sectors.end());
  return std::unique(sectors.begin(), sectors.end()) - sectors.begin();
}

void add(Counts& sum, const Counts& one) {
  sum.requests += one.requests;
  sum.asked += one.asked;
  sum.shared += one.shared;
  sum.conflicts += one.conflicts;
  sum.barriers += one.barriers;
}

}  // namespace

bool counting() { return is_counting; }

void count(const Site* site, Region& region, uintptr_t at, size_t bytes, size_t piece, bool store) {
  if (!region.shared) count_sectors(region, at, bytes, store);
  piece = std::min(piece, kWidest);
  for (size_t done = 0; done < bytes; done += piece) {
    Instruction& one = instructions[{site, done}];
    one.bytes = std::min(piece, bytes - done);
    one.shared = region.shared;
    auto& requests = one.of_warp[thread() / kWarp];
    size_t time = one.times[thread()]++;
    if (requests.size() <= time) requests.resize(time + 1);
    requests[time].at[thread() % kWarp] = at + done;
    requests[time].lanes |= 1u << thread() % kWarp;
  }
}

void count_barrier() { of_block.barriers++; }

void count_block() {
  if (!is_counting) return;
  for (const auto& [_, one] : instructions) {
    for (const auto& [_, requests] : one.of_warp) {
      for (const Request& request : requests) {
        (one.shared ? of_block.shared : of_block.requests)++;
        if (one.shared) {
          of_block.conflicts += conflicts(request, one.bytes);
        } else {
          of_block.asked += sectors_of(request, one.bytes);
        }
      }
    }
  }
  instructions.clear();
  of_block.launch = static_cast<int64_t>(launch_number());
  of_block.block = block_number();
  add(of_launch, of_block);
  all.push_back(std::exchange(of_block, {}));
  block_serial++;
}

void count_launch() {
  if (!is_counting) return;
  of_launch.launch = static_cast<int64_t>(launch_number());
  of_launch.block = -1;
  all.push_back(std::exchange(of_launch, {}));
}

}  // namespace simt

using namespace simt;

extern "C" {

// From now on, or no longer; forgets what was counted.
void simt_counting(int on) {
  is_counting = on;
  block_serial++;
  all.clear();
  instructions.clear();
  of_block = of_launch = {};
}

// What was counted: of each block when it has ended, and behind them of their launch.
const Counts* simt_counts(int64_t* count) {
  *count = static_cast<int64_t>(all.size());
  return all.data();
}
}
