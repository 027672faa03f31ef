// A stand-in for cuBLASLt, and with -DHIP for hipBLASLt: plain loops over the memory of the tests' own driver, beside
// which it is linked. What a library would refuse is an error, as is what the emulator finds wrong. The functions fail
// when the driver's calls do.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "driver/driver.h"
#include "driver/queues.h"

extern "C" {
bool fake_inside(uintptr_t address, size_t bytes);
int fake_outcome();
bool fake_takes(void* stream);
void fake_launched(void* stream);
}

namespace {

#ifdef HIP
#define NAME(x) hipblasLt##x
constexpr int kF32 = 2, kTF32 = kF32, kF64 = 7, kPlain = 111, kTransposed = 112, kTransposeA = 0, kTransposeB = 1;
constexpr int kBatchCount = 0, kBatchOffset = 1, kNotSupported = 7;
constexpr size_t kAlgorithm = 24;
constexpr bool kAligned = false;
#else
#define NAME(x) cublasLt##x
constexpr int kF32 = 68, kTF32 = 77, kF64 = 70, kPlain = 0, kTransposed = 1, kTransposeA = 3, kTransposeB = 4;
constexpr int kBatchCount = 5, kBatchOffset = 6, kNotSupported = 15;
constexpr size_t kAlgorithm = 64;
constexpr bool kAligned = true;
#endif
constexpr int kInvalid = 13;
constexpr int64_t kWorkspace = 1 << 10, kForEach = 64, kWord = 0x5eed5eed;

struct Product {
  int compute, scale, a = kPlain, b = kPlain;
};
struct Matrix {
  int type;
  int64_t rows, columns, leading;
  int32_t batch = 1;
  int64_t offset = 0;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t aligned[4] = {256, 256, 256, 256}, reduction = 7;
};

int live = 0, multiplied = 0, asked = 0, computed = 0;
enum { kTakes, kDeclines, kFindsNone, kFindsOthers, kRefuses } mood = kTakes;

size_t bytes_of(int type) { return type == 1 ? 8 : type == 0 ? 4 : 2; }

double load(int type, const char* at) {
  if (type == 1) return *reinterpret_cast<const double*>(at);
  if (type == 0) return *reinterpret_cast<const float*>(at);
  if (type == 2) return static_cast<double>(*reinterpret_cast<const _Float16*>(at));
  uint32_t word = static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(at)) << 16;
  float x;
  memcpy(&x, &word, 4);
  return x;
}

void store(int type, char* at, double x) {
  if (type == 1) {
    *reinterpret_cast<double*>(at) = x;
  } else if (type == 0) {
    *reinterpret_cast<float*>(at) = static_cast<float>(x);
  } else if (type == 2) {
    *reinterpret_cast<_Float16*>(at) = static_cast<_Float16>(static_cast<float>(x));
  } else {
    auto f = static_cast<float>(x);
    uint32_t word;
    memcpy(&word, &f, 4);
    if (!std::isnan(f)) word += 0x7fff + (word >> 16 & 1);
    *reinterpret_cast<uint16_t*>(at) = static_cast<uint16_t>(word >> 16);
  }
}

bool fits(const Matrix& x) { return x.rows > 0 && x.columns > 0 && x.leading >= x.rows && x.batch > 0; }

bool is_inside(const Matrix& x, const void* data) {
  int64_t last = (x.batch - 1) * x.offset + (x.columns - 1) * x.leading + x.rows;
  return fake_inside(reinterpret_cast<uintptr_t>(data), static_cast<size_t>(last) * bytes_of(x.type)) &&
         reinterpret_cast<uintptr_t>(data) % bytes_of(x.type) == 0;
}

bool agree(const Product& p, const Matrix& a, const Matrix& b, const Matrix& d) {
  bool wide = a.type == 1;
  bool known = wide ? p.compute == kF64 : p.compute == kF32 || (a.type == 0 && p.compute == kTF32);
  if (!known || p.scale != (wide ? 1 : 0)) return false;
  if (!fits(a) || !fits(b) || !fits(d) || a.type != b.type || a.batch != d.batch || b.batch != d.batch) return false;
  int64_t rows = p.a == kPlain ? a.rows : a.columns, depth = p.a == kPlain ? a.columns : a.rows;
  int64_t again = p.b == kPlain ? b.rows : b.columns, columns = p.b == kPlain ? b.columns : b.rows;
  return rows == d.rows && columns == d.columns && depth == again && (p.a == kPlain || p.a == kTransposed) &&
         (p.b == kPlain || p.b == kTransposed);
}

// Bytes of memory that it needs beside its matrices: more for large results.
int64_t workspace_of(const Matrix& d) { return kWorkspace * (1 + d.batch * d.rows * d.columns / kForEach); }

// What a product does when its stream comes to it.
void multiply(const Product& p, const Matrix& x, const void* a, const Matrix& y, const void* b, const Matrix& z,
              void* d, void* workspace, size_t bytes) {
  if (static_cast<int64_t>(bytes) < workspace_of(z) || !fake_inside(reinterpret_cast<uintptr_t>(workspace), bytes))
    return queues::fail("a library's workspace is no memory of the GPU");
  if (!is_inside(x, a) || !is_inside(y, b) || !is_inside(z, d))
    return queues::fail("a library's matrix is no memory of the GPU");
  memset(workspace, 0xff, bytes);
  int64_t depth = p.a == kPlain ? x.columns : x.rows;
  for (int64_t n = 0; n < z.batch; n++) {
    for (int64_t j = 0; j < z.columns; j++) {
      for (int64_t i = 0; i < z.rows; i++) {
        double sum = 0;
        for (int64_t k = 0; k < depth; k++) {
          int64_t from_a = n * x.offset + (p.a == kPlain ? k * x.leading + i : i * x.leading + k);
          int64_t from_b = n * y.offset + (p.b == kPlain ? j * y.leading + k : k * y.leading + j);
          sum += load(x.type, static_cast<const char*>(a) + from_a * static_cast<int64_t>(bytes_of(x.type))) *
                 load(y.type, static_cast<const char*>(b) + from_b * static_cast<int64_t>(bytes_of(y.type)));
        }
        int64_t to = n * z.offset + j * z.leading + i;
        store(z.type, static_cast<char*>(d) + to * static_cast<int64_t>(bytes_of(z.type)), sum);
      }
    }
  }
}

}  // namespace

extern "C" {

// What was made and not destroyed, but handles; how often this multiplied, and chose.
int fake_live() { return live; }
int fake_multiplied() { return multiplied; }
int fake_asked() { return asked; }
// What the last product was computed in.
int fake_computed() { return computed; }
// From now on it has an algorithm for all products (0), or for none, of which there are four ways to say so.
void fake_decline(int how) { mood = static_cast<decltype(mood)>(how); }

int NAME(Create)(void** handle) {
  *handle = &live;
  return fake_outcome();
}
int NAME(MatmulDescCreate)(void** product, int compute, int scale) {
  if (int error = driver::outcome_of_any()) return error;
  live++;
  *product = new Product{compute, scale};
  return 0;
}
int NAME(MatmulDescSetAttribute)(void* product, int attribute, const void* value, size_t bytes) {
  if (bytes != 4 || (attribute != kTransposeA && attribute != kTransposeB)) return kInvalid;
  auto* p = static_cast<Product*>(product);
  memcpy(attribute == kTransposeA ? &p->a : &p->b, value, 4);
  return driver::outcome_of_any();
}
int NAME(MatmulDescDestroy)(void* product) {
  live--;
  delete static_cast<Product*>(product);
  return 0;
}
int NAME(MatrixLayoutCreate)(void** matrix, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  if (int error = driver::outcome_of_any()) return error;
  live++;
  *matrix = new Matrix{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading};
  return 0;
}
int NAME(MatrixLayoutSetAttribute)(void* matrix, int attribute, const void* value, size_t bytes) {
  auto* x = static_cast<Matrix*>(matrix);
  if (attribute == kBatchCount && bytes == 4) {
    memcpy(&x->batch, value, 4);
  } else if (attribute == kBatchOffset && bytes == 8) {
    memcpy(&x->offset, value, 8);
  } else {
    return kInvalid;
  }
  return driver::outcome_of_any();
}
int NAME(MatrixLayoutDestroy)(void* matrix) {
  live--;
  delete static_cast<Matrix*>(matrix);
  return 0;
}
int NAME(MatmulPreferenceCreate)(void** preference) {
  if (int error = driver::outcome_of_any()) return error;
  live++;
  *preference = new Preference;
  return 0;
}
int NAME(MatmulPreferenceSetAttribute)(void* preference, int attribute, const void* value, size_t bytes) {
  auto* p = static_cast<Preference*>(preference);
  if (attribute == 1 && bytes == 8) {
    memcpy(&p->workspace, value, 8);
  } else if (kAligned && attribute == 3 && bytes == 4) {
    memcpy(&p->reduction, value, 4);
  } else if (kAligned && attribute >= 5 && attribute <= 8 && bytes == 4) {
    memcpy(&p->aligned[attribute - 5], value, 4);
  } else {
    return kInvalid;
  }
  return driver::outcome_of_any();
}
int NAME(MatmulPreferenceDestroy)(void* preference) {
  live--;
  delete static_cast<Preference*>(preference);
  return 0;
}
int NAME(MatmulAlgoGetHeuristic)(void* handle, void* product, void* a, void* b, void* c, void* d, void* preference,
                                 int wanted, void* results, int* found) {
  auto* p = static_cast<Preference*>(preference);
  if (handle != &live || wanted != 1 || c != d || p->workspace < kWorkspace) return kInvalid;
  if (kAligned && p->reduction != 2) return kInvalid;
  if (!agree(*static_cast<Product*>(product), *static_cast<Matrix*>(a), *static_cast<Matrix*>(b),
             *static_cast<Matrix*>(d)))
    return kInvalid;
  if (int error = driver::outcome_of_any()) return error;
  asked++;
  *found = 0;
  if (mood == kDeclines) return kNotSupported;
  if (mood == kFindsNone) return 0;
  *found = 1;
  auto* words = static_cast<int64_t*>(results);
  words[0] = kWord;
  for (int i = 0; i < 3; i++) {  // in what an algorithm has: how matrices must be aligned, at least
    uint16_t aligned = kAligned ? static_cast<uint16_t>(p->aligned[i == 2 ? 3 : i]) : 1;
    memcpy(reinterpret_cast<char*>(results) + 8 + 2 * i, &aligned, 2);
  }
  int64_t needed = workspace_of(*static_cast<Matrix*>(d));
  memcpy(static_cast<char*>(results) + kAlgorithm, &needed, 8);
  int32_t state = mood == kFindsOthers ? kNotSupported : 0;
  memcpy(static_cast<char*>(results) + kAlgorithm + 8, &state, 4);
  return 0;
}
int NAME(Matmul)(void* handle, void* product, const void* alpha, const void* a, void* a_layout, const void* b,
                 void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                 const void* algorithm, void* workspace, size_t bytes, void* stream) {
  const auto& p = *static_cast<Product*>(product);
  const auto &x = *static_cast<Matrix*>(a_layout), &y = *static_cast<Matrix*>(b_layout);
  const auto& z = *static_cast<Matrix*>(d_layout);
  int64_t word;
  uint16_t aligned[3];
  memcpy(&word, algorithm, 8);
  memcpy(aligned, static_cast<const char*>(algorithm) + 8, 6);
  const void* at[] = {a, b, d};
  for (int i = 0; i < 3; i++) {
    if (reinterpret_cast<uintptr_t>(at[i]) % aligned[i]) return kInvalid;
  }
  if (handle != &live || word != kWord || !agree(p, x, y, z) || c != d || c_layout != d_layout) return kInvalid;
  if (load(p.scale, static_cast<const char*>(alpha)) != 1 || load(p.scale, static_cast<const char*>(beta)) != 0)
    return kInvalid;
  if (mood == kRefuses) return kNotSupported;
  if (!fake_takes(stream)) return kInvalid;
  if (int error = driver::outcome_of_any()) return error;
  fake_launched(stream);
  multiplied++;
  computed = p.compute;
  auto work = [=] { multiply(p, x, a, y, b, z, d, workspace, bytes); };
  if (driver::is_recording()) return driver::keep(work);
  queues::put(stream, work);
  return 0;
}
}
