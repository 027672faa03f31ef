// A GPU's threads on one core: every thread of a block is a fiber, which runs until it waits for others.
//
// Kernels are the functions of the GPU module itself, with the intrinsics of the machine as calls to the functions at the
// end of this file. A launch goes through its blocks one by one. Threads take turns in one of three orders (forward,
// backward, shuffled), shared memory starts as NaN, and what no machine defines is an error that names block and thread:
// threads at different barriers, an exchange with a thread that has left or is elsewhere, an exchange that is not
// by all its members, and what `accesses.cc` has of memory.
#include "simt/simt.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

using namespace simt;

namespace {

constexpr size_t kStack = 256 << 10;
constexpr size_t kShared = 256 << 10;

enum class State { kReady, kAtBarrier, kExchanging, kDone };

struct Fiber {
  void* stack_pointer;
  char* stack;
  State state;
  const void* site;  // where it waits
  uint64_t members;  // 0 for all that are there
  uint64_t offered;
  alignas(8) uint32_t words[8];  // what a function returns that LLVM has as a struct or a vector
};

using Kernel = void (*)(const void* record);

// The block that runs: one at a time, whichever thread of the process launches it.
struct Block {
  std::vector<Fiber> fibers;
  std::vector<int> order, warps;  // in which threads, and warps, take turns
  int warp = 32;  // threads of a warp
  int size = 0, current = 0;
  int64_t number = 0;
  void* scheduler = nullptr;
  Kernel kernel = nullptr;
  const void* record = nullptr;
  size_t dynamic = 0;  // bytes of shared memory that the launch asks for
  size_t written = kShared;  // at most so many bytes of shared memory are no longer NaN
  alignas(128) char shared[kShared];
};

std::mutex launches;
Block block;
thread_local std::string failure;

extern "C" void simt_switch(void** save, void* load);
asm(".text\n.globl simt_switch\nsimt_switch:\n"
    " push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    " mov %rsp,(%rdi)\n mov %rsi,%rsp\n"
    " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");

Fiber& self() { return block.fibers[block.current]; }

void leave(State state, const void* site) {
  self().state = state;
  self().site = site;
  simt_switch(&self().stack_pointer, block.scheduler);
}

void fiber_main() {
  block.kernel(block.record);
  leave(State::kDone, nullptr);
}

void start(Fiber& fiber) {
  if (!fiber.stack) {
    void* stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) abort();
    fiber.stack = static_cast<char*>(stack);
  }
  // What simt_switch pops, then a return into fiber_main with the stack as after a call.
  void** top = reinterpret_cast<void**>(fiber.stack + kStack) - 2;
  *top = reinterpret_cast<void*>(&fiber_main);
  std::fill(top - 6, top, nullptr);
  fiber.stack_pointer = top - 6;
  fiber.state = State::kReady;
}

// Lets the members of an exchange in a warp go on whose threads are all there. On a machine that names no members, they
// are the threads that have come to the same place when all have gone as far as they can.
bool release_exchange(int first) {
  bool moved = false;
  int end = std::min(first + block.warp, block.size);
  for (int i = first; i < end; i++) {
    Fiber& one = block.fibers[i];
    if (one.state != State::kExchanging) continue;
    uint64_t members = one.members, there = 0;
    for (int k = first; k < end; k++) {
      const Fiber& other = block.fibers[k];
      if (other.state == State::kExchanging && other.site == one.site && other.members == members)
        there |= uint64_t{1} << (k - first);
    }
    if (members & ~there) continue;
    moved = true;
    if (!members) members = there;
    for (int k = first; k < end; k++) {
      if (!(members >> (k - first) & 1)) continue;
      block.fibers[k].state = State::kReady;
      block.fibers[k].members = members;
    }
  }
  return moved;
}

// Lets all threads go on when they wait at one barrier; otherwise says what is wrong.
bool release_barrier() {
  bool left = false, elsewhere = false, different = false;
  const void* site = nullptr;
  for (const Fiber& fiber : block.fibers) {
    left |= fiber.state == State::kDone;
    elsewhere |= fiber.state == State::kExchanging;
    if (fiber.state == State::kAtBarrier) {
      different |= site && fiber.site != site;
      site = fiber.site;
    }
  }
  if (different || left || elsewhere) {
    failure = different ? "threads of a block wait at different barriers"
              : left    ? "threads wait for others that have left"
                        : "threads wait for others that are elsewhere";
    failure += " (block " + std::to_string(block.number) + ")";
    return false;
  }
  for (Fiber& fiber : block.fibers) fiber.state = State::kReady;
  begin_phase();
  count_barrier();
  return true;
}

// A warp runs as far as it can before the next one does, so that whatever no barrier orders is seen in one order or the
// other.
bool run_warp(int first) {
  do {
    for (int i : block.order) {
      if (i < first || i >= first + block.warp || block.fibers[i].state != State::kReady) continue;
      block.current = i;
      simt_switch(&block.scheduler, block.fibers[i].stack_pointer);
      if (!failure.empty()) return false;
    }
  } while (release_exchange(first));
  return true;
}

bool run_block() {
  memset(block.shared, 0xff, std::exchange(block.written, 0));
  begin_block(block.dynamic);
  for (int i = 0; i < block.size; i++) start(block.fibers[i]);
  for (;;) {
    for (int warp : block.warps) {
      if (!run_warp(warp * block.warp)) return false;
    }
    if (std::all_of(block.fibers.begin(), block.fibers.end(), [](const Fiber& f) { return f.state == State::kDone; })) {
      count_block();
      return true;
    }
    if (!release_barrier()) return false;
  }
}

int lane() { return block.current % block.warp; }

// What a warp exchanges: everybody offers a word, or the address of more, and `read` takes what it wants of the fibers of
// the warp when all are there.
template <typename Read>
auto meet(uint64_t members, uint64_t offered, const void* site, Read read) {
  if (members && !(members >> lane() & 1)) fail("a thread exchanges values without being a member");
  self().members = members;
  self().offered = offered;
  leave(State::kExchanging, site);
  auto result = read(&block.fibers[block.current - lane()]);
  // Nobody offers the next word before all have read this one.
  leave(State::kExchanging, static_cast<const char*>(site) + 1);
  return result;
}

uint32_t exchange(uint64_t members, uint32_t word, int source, const void* site, bool must_be_there = true) {
  return meet(members, word, site, [&](const Fiber* warp) {
    bool there = self().members >> source & 1;
    if (!there && must_be_there) fail("a thread reads a value of no member");
    return there ? static_cast<uint32_t>(warp[source].offered) : UINT32_MAX;
  });
}

int order_of_threads = 0, fault = 0;
std::set<int> faults_met;

}  // namespace

int simt::thread() { return block.current; }
int64_t simt::block_number() { return block.number; }

[[noreturn]] void simt::fail(const std::string& what) {
  failure = what + " (block " + std::to_string(block.number) + ", thread " + std::to_string(block.current) + ")";
  leave(State::kDone, nullptr);
  abort();  // never runs again
}

extern "C" {

// How many threads a warp has in launches of this thread.
void simt_warp(int threads) { block.warp = threads; }

// 0 forward, -1 backward, any other is a seed.
void simt_order(int order) { order_of_threads = order; }

// What went wrong in a launch of this thread since it was last asked, or an empty text.
const char* simt_failure() {
  static thread_local std::string text;
  text = std::exchange(failure, "");
  return text.c_str();
}

// Whether something did.
bool simt_failed() { return !failure.empty(); }

void simt_shared_region(void* start, int64_t bytes);

// What a kernel has of shared memory from there on: so many bytes, or what the launch asks for if they are -1.
void* simt_shared(int64_t at, int64_t bytes) {
  simt_shared_region(block.shared + at, bytes);
  size_t end = static_cast<size_t>(at) + (bytes < 0 ? block.dynamic : static_cast<size_t>(bytes));
  block.written = std::max(block.written, end);
  return block.shared + at;
}

// Which of the faults that stand in the code is one, 0 for none: see `faults.py`. Forgets which were met.
void simt_plant(int number) {
  fault = number;
  faults_met.clear();
}

// Whether a kernel has come to this fault.
int simt_met(int number) { return static_cast<int>(faults_met.count(number)); }

// Whether this fault is one, of all threads or of every second one.
bool simt_planted(int32_t number, int32_t every) {
  faults_met.insert(number);
  return number == fault && block.current % every == 0;
}

void simt_no_barrier(int32_t) {}

// Notes what a launch, or the driver, found wrong.
void simt_fail(const char* what) {
  if (failure.empty()) failure = what;
}

void simt_launch(Kernel kernel, int64_t blocks, int64_t threads, int64_t shared, const void* record) {
  std::lock_guard<std::mutex> lock(launches);
  if (!failure.empty()) return;
  if (shared > static_cast<int64_t>(kShared)) {
    failure = "a kernel asks for " + std::to_string(shared) + " bytes of shared memory";
    return;
  }
  block.kernel = kernel;
  block.record = record;
  block.dynamic = static_cast<size_t>(shared);
  block.size = static_cast<int>(threads);
  if (block.fibers.size() != static_cast<size_t>(threads)) {
    for (Fiber& fiber : block.fibers) munmap(fiber.stack, kStack);
    block.fibers.assign(threads, Fiber{});
  }
  auto in_order = [](std::vector<int>& all, size_t count) {
    all.resize(count);
    std::iota(all.begin(), all.end(), 0);
    if (order_of_threads < 0) std::reverse(all.begin(), all.end());
    if (order_of_threads > 0) std::shuffle(all.begin(), all.end(), std::mt19937(order_of_threads));
  };
  in_order(block.order, threads);
  in_order(block.warps, (threads + block.warp - 1) / block.warp);
  begin_launch();
  for (block.number = 0; block.number < blocks; block.number++) {
    if (!run_block()) return;
  }
  count_launch();
}

// The machine's intrinsics, with underscores for the dots.

int32_t llvm_nvvm_read_ptx_sreg_tid_x() { return block.current; }
int32_t llvm_nvvm_read_ptx_sreg_ctaid_x() { return static_cast<int32_t>(block.number); }
int32_t llvm_nvvm_read_ptx_sreg_laneid() { return lane(); }
void llvm_nvvm_barrier_cta_sync_aligned_all(int32_t) { leave(State::kAtBarrier, __builtin_return_address(0)); }

// PTX's shfl.sync: the segment mask in bits 8 to 12 of c is what a thread's number has in common with its source; the rest
// of the last one that is read is in bits 0 to 4, for "up" of the first.
static int32_t shuffled(int32_t members, int32_t word, int source, bool inside, const void* site) {
  return static_cast<int32_t>(
      exchange(static_cast<uint32_t>(members), static_cast<uint32_t>(word), inside ? source : lane(), site));
}
#define SHUFFLE(name, source, inside) \
  int32_t llvm_nvvm_shfl_sync_##name##_i32(int32_t members, int32_t word, int32_t by, int32_t c) { \
    int lane = ::lane(), segment = c >> 8 & 31, end = (lane & segment) | (c & 31 & ~segment); \
    int from = source; \
    return shuffled(members, word, from, inside, __builtin_return_address(0)); \
  }
SHUFFLE(bfly, lane ^ by, from <= end)
SHUFFLE(up, lane - by, from >= end)
SHUFFLE(down, lane + by, from <= end)
SHUFFLE(idx, (lane & segment) | (by & 31 & ~segment), from <= end)

// Matrices of a warp, as "Warp Level Matrix Instructions" in the PTX ISA has them. All threads take part.
constexpr uint64_t kWarpOfAll = 0xffffffff;

// ldmatrix .m8n8.x4: thread t says where row t % 8 of matrix t / 8 is, and gets two neighbours of row t / 4 of each; turned,
// of column t / 4.
static const void* four_matrices(const uint16_t* row, bool turned, const void* site) {
  meet(kWarpOfAll, reinterpret_cast<uint64_t>(row), site, [&](const Fiber* warp) {
    int along = lane() / 4, pair = lane() % 4 * 2;
    for (int matrix = 0; matrix < 4; matrix++) {
      auto element = [&](int r, int c) -> uint32_t {
        return reinterpret_cast<const uint16_t*>(warp[8 * matrix + r].offered)[c];
      };
      self().words[matrix] = turned ? element(pair, along) | element(pair + 1, along) << 16
                                    : element(along, pair) | element(along, pair + 1) << 16;
    }
    return 0;
  });
  return self().words;
}
const void* llvm_nvvm_ldmatrix_sync_aligned_m8n8_x4_b16_p3(const uint16_t* row) {
  return four_matrices(row, false, __builtin_return_address(0));
}
const void* llvm_nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16_p3(const uint16_t* row) {
  return four_matrices(row, true, __builtin_return_address(0));
}

static double of_bf16(uint32_t bits) {
  bits <<= 16;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
static double of_f16(uint32_t bits) {
  int exponent = bits >> 10 & 31;
  double rest = bits & 1023, sign = bits >> 15 ? -1 : 1;
  if (exponent == 31) return rest ? NAN : sign * INFINITY;
  return sign * (exponent ? ldexp(1024 + rest, exponent - 25) : ldexp(rest, -24));
}

// Of TF32 the last 13 bits are ignored.
static double of_tf32(uint32_t bits) {
  bits &= ~0x1fffu;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
static double of_s8(uint32_t bits) { return static_cast<int8_t>(bits); }
static double of_u8(uint32_t bits) { return bits; }

// What a thread has of the operands of an mma: words of neighbours along K.
struct Operands {
  uint32_t a[4], b[2];
};

// mma .m16n8 with `per` elements in a word, of K = 8 per. groupID is lane / 4, threadID_in_group lane % 4. A word of A has
// neighbours along K, from threadID_in_group * per on: words 0 and 1 of the rows groupID and groupID + 8, words 2 and 3
// the same of the other half of K. So has one of B, of column groupID, each word of a half of K. Of C, c0 to c3, row and
// column are groupID + 8 (i / 2) and threadID_in_group * 2 + i % 2.
static const void* multiplied(const Operands& mine, const double (&c)[4], int per, double (*number)(uint32_t),
                              bool whole, const void* site) {
  meet(kWarpOfAll, reinterpret_cast<uint64_t>(&mine), site, [&](const Fiber* warp) {
    int half = 4 * per, bits = 32 / per;
    auto element = [&](uint32_t word, int k) {
      return number(static_cast<uint32_t>(word >> bits * (k % per) & ((uint64_t{1} << bits) - 1)));
    };
    for (int i = 0; i < 4; i++) {
      int row = lane() / 4 + 8 * (i / 2), column = lane() % 4 * 2 + i % 2;
      double sum = 0;
      for (int k = 0; k < 2 * half; k++) {
        auto& of_row = *reinterpret_cast<const Operands*>(warp[row % 8 * 4 + k % half / per].offered);
        auto& of_column = *reinterpret_cast<const Operands*>(warp[column * 4 + k % half / per].offered);
        sum += element(of_row.a[row / 8 + 2 * (k / half)], k) * element(of_column.b[k / half], k);
      }
      float rounded = static_cast<float>(c[i] + sum);
      auto wrapped = static_cast<uint32_t>(static_cast<int64_t>(c[i] + sum));
      memcpy(&self().words[i], whole ? static_cast<void*>(&wrapped) : &rounded, 4);
    }
    return 0;
  });
  return self().words;
}
#define MMA(name, Sum, per, number) \
  const void* llvm_nvvm_mma_##name(uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, \
                                   Sum c0, Sum c1, Sum c2, Sum c3) { \
    const double c[4] = {double(c0), double(c1), double(c2), double(c3)}; \
    return multiplied({{a0, a1, a2, a3}, {b0, b1}}, c, per, number, std::is_integral_v<Sum>, \
                      __builtin_return_address(0)); \
  }
MMA(m16n8k16_row_col_bf16, float, 2, of_bf16)
MMA(m16n8k16_row_col_f32_f32, float, 2, of_f16)
MMA(m16n8k8_row_col_tf32, float, 1, of_tf32)
MMA(m16n8k32_row_col_s8, int32_t, 4, of_s8)
MMA(m16n8k32_row_col_u8, int32_t, 4, of_u8)

// mma .m8n8k4 of f64: A has row lane / 4 and column lane % 4, B row lane % 4 and column lane / 4, and of C, c0 and c1, row
// and column are lane / 4 and lane % 4 * 2 + i.
const void* llvm_nvvm_mma_m8n8k4_row_col_f64(double a, double b, double c0, double c1) {
  const double mine[2] = {a, b}, c[2] = {c0, c1};
  meet(kWarpOfAll, reinterpret_cast<uint64_t>(mine), __builtin_return_address(0), [&](const Fiber* warp) {
    for (int i = 0; i < 2; i++) {
      double result = c[i];
      for (int k = 0; k < 4; k++) {
        auto of_row = reinterpret_cast<const double*>(warp[lane() / 4 * 4 + k].offered);
        auto of_column = reinterpret_cast<const double*>(warp[(lane() % 4 * 2 + i) * 4 + k].offered);
        result = std::fma(of_row[0], of_column[1], result);
      }
      memcpy(&self().words[2 * i], &result, 8);
    }
    return 0;
  });
  return self().words;
}

// cvt.rna.tf32.f32: to nearest, ties away from zero.
int32_t llvm_nvvm_f2tf32_rna(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return std::isnan(x) ? 0x7fffffff : static_cast<int32_t>((bits + 0x1000) & ~0x1fffu);
}

// cvt.rn.bf16x2.f32: to nearest, ties to even; NaN is 0x7fff.
const void* llvm_nvvm_ff2bf16x2_rn(float high, float low) {
  static thread_local uint16_t pair[2];
  auto rounded = [](float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return static_cast<uint16_t>(std::isnan(x) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  };
  pair[0] = rounded(low);
  pair[1] = rounded(high);
  return pair;
}

// AMD's products of small matrices, of a wave that is all there, as the Matrix Instruction Calculator of AMD has them. All
// are 16 x 16.
constexpr uint64_t kWaveOfAll = ~uint64_t{0};

// On CDNA2 denormal operands of 16 bits count as zero, and so do such results.
static double normal_of_f16(uint32_t bits) { return bits >> 10 & 31 ? of_f16(bits) : 0; }
static double normal_of_bf16(uint32_t bits) { return bits >> 7 & 255 ? of_bf16(bits) : 0; }

// v_mfma_f32_16x16x16 of 16 bits: A[i][k] is element k % 4 of lane 16 (k / 4) + i, B[k][j] of lane 16 (k / 4) + j, and
// D[i][j] is register i % 4 of lane 16 (i / 4) + j.
static const void* mfma_of_16_bits(uint64_t a, uint64_t b, const float (&c)[4], double (*number)(uint32_t),
                                   const void* site) {
  const uint64_t mine[2] = {a, b};
  meet(kWaveOfAll, reinterpret_cast<uint64_t>(mine), site, [&](const Fiber* wave) {
    auto element = [&](int operand, int line, int k) {
      uint64_t four = reinterpret_cast<const uint64_t*>(wave[16 * (k / 4) + line].offered)[operand];
      return number(four >> 16 * (k % 4) & 0xffff);
    };
    for (int r = 0; r < 4; r++) {
      double sum = 0;
      for (int k = 0; k < 16; k++) sum += element(0, 4 * (lane() / 16) + r, k) * element(1, lane() % 16, k);
      float result = static_cast<float>(c[r] + sum);
      if (std::fpclassify(result) == FP_SUBNORMAL) result = std::copysign(0.0f, result);
      memcpy(&self().words[r], &result, 4);
    }
    return 0;
  });
  return self().words;
}
const void* llvm_amdgcn_mfma_f32_16x16x16bf16_1k(uint64_t a, uint64_t b, float c0, float c1, float c2, float c3) {
  return mfma_of_16_bits(a, b, {c0, c1, c2, c3}, normal_of_bf16, __builtin_return_address(0));
}
const void* llvm_amdgcn_mfma_f32_16x16x16f16(uint64_t a, uint64_t b, float c0, float c1, float c2, float c3) {
  return mfma_of_16_bits(a, b, {c0, c1, c2, c3}, normal_of_f16, __builtin_return_address(0));
}

// v_mfma_f32_16x16x4f32: A[i][k] is in lane 16 k + i, B[k][j] in lane 16 k + j, and D is as above.
const void* llvm_amdgcn_mfma_f32_16x16x4f32(float a, float b, float c0, float c1, float c2, float c3) {
  const float mine[2] = {a, b}, c[4] = {c0, c1, c2, c3};
  meet(kWaveOfAll, reinterpret_cast<uint64_t>(mine), __builtin_return_address(0), [&](const Fiber* wave) {
    auto element = [&](int operand, int line, int k) {
      return reinterpret_cast<const float*>(wave[16 * k + line].offered)[operand];
    };
    for (int r = 0; r < 4; r++) {
      float result = c[r];
      for (int k = 0; k < 4; k++)
        result = std::fma(element(0, 4 * (lane() / 16) + r, k), element(1, lane() % 16, k), result);
      memcpy(&self().words[r], &result, 4);
    }
    return 0;
  });
  return self().words;
}

// v_mfma_f64_16x16x4f64: A[i][k] is in lane 16 k + i, B[k][j] in lane 16 k + j, and D[i][j] is number i / 4 of lane
// 16 (i % 4) + j.
const void* llvm_amdgcn_mfma_f64_16x16x4f64(double a, double b, double c0, double c1, double c2, double c3) {
  const double mine[2] = {a, b}, c[4] = {c0, c1, c2, c3};
  meet(kWaveOfAll, reinterpret_cast<uint64_t>(mine), __builtin_return_address(0), [&](const Fiber* wave) {
    auto element = [&](int operand, int line, int k) {
      return reinterpret_cast<const double*>(wave[16 * k + line].offered)[operand];
    };
    for (int r = 0; r < 4; r++) {
      double result = c[r];
      for (int k = 0; k < 4; k++)
        result = std::fma(element(0, 4 * r + lane() / 16, k), element(1, lane() % 16, k), result);
      memcpy(&self().words[2 * r], &result, 8);
    }
    return 0;
  });
  return self().words;
}

// What a machine approximates is as wrong as its maker says that it may be, for some numbers more than for others:
// `error` at most, relative to the result. Numbers below the normal ones are taken for zero, and so are such results.
static float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
static float about(double exact, float x, double error) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits ^ bits >> 15) * 0x2c1b3c6d;
  double part = static_cast<double>(static_cast<int32_t>(bits ^ bits >> 13)) / 0x80000000u;
  return flushed(static_cast<float>(exact * (1 + part * error)));
}
static float exp2_about(float x) { return about(std::exp2(static_cast<double>(flushed(x))), x, 0x1p-22); }
static float reciprocal_about(float x) { return about(1.0 / static_cast<double>(flushed(x)), x, 0x1p-23); }
float llvm_nvvm_ex2_approx_ftz_f(float x) { return exp2_about(x); }
float llvm_nvvm_rcp_approx_ftz_f(float x) { return reciprocal_about(x); }
float llvm_amdgcn_exp2_f32(float x) { return exp2_about(x); }

// AMD's: whoever is there takes part in an exchange.
static int32_t received(int32_t word, int source, const void* site) {
  return static_cast<int32_t>(exchange(0, static_cast<uint32_t>(word), source, site));
}

int32_t llvm_amdgcn_workitem_id_x() { return block.current; }
int32_t llvm_amdgcn_workgroup_id_x() { return static_cast<int32_t>(block.number); }
void llvm_amdgcn_s_barrier() { leave(State::kAtBarrier, __builtin_return_address(0)); }

// How many of the mask's threads, of the first or the last 32, come before this one.
static int32_t before(int32_t mask, int first) {
  int count = std::clamp(lane() - first, 0, 32);
  return __builtin_popcountll(static_cast<uint32_t>(mask) & ((uint64_t{1} << count) - 1));
}
int32_t llvm_amdgcn_mbcnt_lo(int32_t mask, int32_t more) { return more + before(mask, 0); }
int32_t llvm_amdgcn_mbcnt_hi(int32_t mask, int32_t more) { return more + before(mask, 32); }

// Of a thread that is elsewhere, it reads anything.
int32_t llvm_amdgcn_ds_bpermute(int32_t address, int32_t word) {
  return static_cast<int32_t>(
      exchange(0, static_cast<uint32_t>(word), address >> 2 & 63, __builtin_return_address(0), false));
}
int32_t llvm_amdgcn_readlane_i32(int32_t word, int32_t source) {
  return received(word, source & 63, __builtin_return_address(0));
}

// Among 32 threads, by masks that a number goes through.
int32_t llvm_amdgcn_ds_swizzle(int32_t word, int32_t masks) {
  const void* site = __builtin_return_address(0);
  if (masks & 0x8000) fail("the emulator does not know this kind of ds_swizzle");
  int source = ((lane() & masks & 31) | (masks >> 5 & 31)) ^ (masks >> 10 & 31);
  return received(word, (lane() & 32) | source, site);
}

// Among 16 threads ("a row"); rows and quarters of a row ("banks") that do not read keep `old`.
int32_t llvm_amdgcn_update_dpp_i32(int32_t old, int32_t word, int32_t control, int32_t rows, int32_t banks,
                                   bool zero_outside) {
  const void* site = __builtin_return_address(0);
  int place = lane() & 15, by = control & 15, source = -1;
  switch (control >> 4) {
    case 0x10:  // row_shl: from those behind
      source = place + by;
      break;
    case 0x11:  // row_shr: from those before
      source = place - by;
      break;
    case 0x12:  // row_ror
      source = (place - by) & 15;
      break;
    default:
      if (control > 0xff) fail("the emulator does not know this kind of DPP");
      source = (place & ~3) | (control >> 2 * (place & 3) & 3);  // quad_perm
  }
  bool reads = (rows >> (lane() >> 4) & 1) && (banks >> (place >> 2) & 1), inside = source >= 0 && source < 16;
  int32_t found = received(word, reads && inside ? (lane() & ~15) | source : lane(), site);
  return !reads ? old : inside ? found : zero_outside ? 0 : old;
}
}
