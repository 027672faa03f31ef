// What the parts of the emulator know of each other: fibers (`simt.cc`), the driver (`driver.cc`, with its streams
// in `queues.cc` and its memory in `memory.cc`), what accesses to memory
// may be (`accesses.cc`) and what they cost (`counts.cc`).
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

namespace simt {

// Threads whose accesses are counted together.
constexpr int kWarp = 32;

// An array of zeros, which takes memory where it is touched.
template <typename T>
struct Zeros {
  std::unique_ptr<T, decltype(&free)> data{nullptr, &free};
  T* operator()(size_t count) {
    if (!data) data.reset(static_cast<T*>(calloc(count, sizeof(T))));
    if (!data) abort();
    return data.get();
  }
};

// Who touched a byte last: a thread in a phase, see `accesses.cc`.
struct Touched {
  uint64_t store, load, update;
};

// Which bytes of 32 a block has touched, and which all blocks of a launch: see `counts.cc`.
struct Sector {
  uint64_t block, launch;
  uint32_t of_block[2], of_launch[2];
};

// Memory of kernels: a block of the driver's, or what a kernel has of shared memory under one name.
struct Region {
  uintptr_t start;
  size_t bytes;
  bool shared;
  int device = 0;
  Zeros<Touched> touched{};
  Zeros<Sector> sectors{};
};

// A load or store in a kernel: constant data of the program, and the memory that its last address was of.
struct Site {
  uintptr_t base;
  Region* region;
  uint64_t launch;
  char text[];
};

// Of the fibers.
int thread();
int64_t block_number();
[[noreturn]] void fail(const std::string& what);

// Of the driver: the block of memory that has an address, or null. A kernel reaches no other GPU's.
Region* find_region(uintptr_t address);

// Of accesses. A phase of a block is what its threads do between two barriers.
void begin_launch();
void begin_block(size_t shared);
void begin_phase();
uint64_t launch_number();

// Of counts.
bool counting();
void count(const Site* site, Region& region, uintptr_t at, size_t bytes, size_t piece, bool store);
void count_block();
void count_launch();
void count_barrier();

}  // namespace simt
