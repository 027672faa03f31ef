#include "gpu/products.h"

#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "program/program.h"

namespace ral {

// Name here, parameters, and the name behind "cublasLt" or "hipblasLt". All return 0, or the number of what went wrong.
#define RAL_PRODUCT_FUNCTIONS(X) \
  X(create, (void** handle), "Create") \
  X(create_product, (void** product, int compute, int scale), "MatmulDescCreate") \
  X(set_product, (void* product, int attribute, const void* value, size_t bytes), "MatmulDescSetAttribute") \
  X(destroy_product, (void* product), "MatmulDescDestroy") \
  X(create_matrix, (void** matrix, int type, uint64_t rows, uint64_t columns, int64_t leading), "MatrixLayoutCreate") \
  X(set_matrix, (void* matrix, int attribute, const void* value, size_t bytes), "MatrixLayoutSetAttribute") \
  X(destroy_matrix, (void* matrix), "MatrixLayoutDestroy") \
  X(create_preference, (void** preference), "MatmulPreferenceCreate") \
  X(set_preference, (void* preference, int attribute, const void* value, size_t bytes), \
    "MatmulPreferenceSetAttribute") \
  X(destroy_preference, (void* preference), "MatmulPreferenceDestroy") \
  X(choose, \
    (void* handle, void* product, void* a, void* b, void* c, void* d, void* preference, int wanted, void* results, \
     int* found), \
    "MatmulAlgoGetHeuristic") \
  X(multiply, \
    (void* handle, void* product, const void* alpha, const void* a, void* a_layout, const void* b, void* b_layout, \
     const void* beta, const void* c, void* c_layout, void* d, void* d_layout, const void* algorithm, void* workspace, \
     size_t bytes, void* stream), \
    "Matmul")

namespace {

// Numbers that differ between the APIs, by cublasLt.h and cublas_api.h of CUDA 12.9, hipblaslt.h and hipblas-common.h of
// ROCm 7. Older versions of hipBLASLt (libhipblaslt.so.0) number otherwise.
struct Numbers {
  const char* prefix;
  std::vector<const char*> libraries;  // newest first
  int f32, tf32, f64;                  // CUBLAS_COMPUTE_32F, which is exact, _32F_FAST_TF32, _64F
  int plain, transposed;               // CUBLAS_OP_N, _T
  int transpose_a, transpose_b;        // CUBLASLT_MATMUL_DESC_TRANSA, TRANSB
  int batch_count, batch_offset;       // CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, STRIDED_BATCH_OFFSET
  int not_supported;                   // CUBLAS_STATUS_NOT_SUPPORTED
  size_t algorithm_bytes;              // what a heuristic's result begins with; the workspace's bytes follow
  bool aligned;  // a preference says how matrices are aligned, and in what parts of sums are added
};

const Numbers kCuda{"cublasLt", {"libcublasLt.so.13", "libcublasLt.so.12"}, 68, 77, 70, 0, 1, 3, 4, 5, 6, 15, 64, true};
// AMD's products of f32 are exact, as our own are there.
const Numbers kHip{"hipblasLt", {"libhipblaslt.so.1"}, 2, 2, 7, 111, 112, 0, 1, 0, 1, 7, 24, false};

constexpr int kMostWorkspace = 1;  // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, and HIP's
constexpr int kReduction = 3;  // CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK
constexpr uint32_t kInComputeType = 2;  // CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
constexpr int kFirstAlignment = 5;  // CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; of B, C, D follow
constexpr int kF32 = 0, kF64 = 1;  // CUDA_R_32F, HIP_R_32F and so on
constexpr uint32_t kMostAligned = 256;
constexpr size_t kKept = 1024;  // choices

}  // namespace

struct ProductLibrary {
  const Numbers& numbers;
#define RAL_DECLARE(name, parameters, symbol) int(*name) parameters = nullptr;
  RAL_PRODUCT_FUNCTIONS(RAL_DECLARE)
#undef RAL_DECLARE

  void check(int error, const char* function) const {
    if (!error) return;
    throw Error(Error::kDevice,
                std::string(numbers.prefix) + function + " failed (error " + std::to_string(error) + ")");
  }
};

namespace {

// A library with all of the functions. flags: RTLD_NOLOAD for one that the process has loaded.
std::unique_ptr<ProductLibrary> opened(const Numbers& numbers, int flags) {
  for (const char* name : numbers.libraries) {
    void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | flags);
    if (!handle) continue;
    auto library = std::unique_ptr<ProductLibrary>(new ProductLibrary{numbers});
    bool all = true;
    auto find = [&](auto& function, const char* symbol) {
      std::string full = std::string(numbers.prefix) + symbol;
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, full.c_str()));
      all &= function != nullptr;
    };
#define RAL_FIND(name, parameters, symbol) find(library->name, symbol);
    RAL_PRODUCT_FUNCTIONS(RAL_FIND)
#undef RAL_FIND
    if (all) return library;
    dlclose(handle);
  }
  return nullptr;
}

// A matrix whose columns are contiguous, or whose rows are: then it is the transpose of one as it lies in memory.
struct Layout {
  int64_t rows, columns, leading;
  bool transposed;
};

std::optional<Layout> layout(int64_t rows, int64_t columns, const ral_matrix& matrix) {
  if (matrix.row_stride == 1 && matrix.column_stride >= rows) return Layout{rows, columns, matrix.column_stride, false};
  if (matrix.column_stride == 1 && matrix.row_stride >= columns) return Layout{columns, rows, matrix.row_stride, true};
  return std::nullopt;
}

ral_matrix transposed(const ral_matrix& x) { return {x.address, x.column_stride, x.row_stride, x.batch_stride}; }

int64_t alignment(const ral_matrix& matrix) {
  int64_t most = kMostAligned;
  while (matrix.address % most) most /= 2;
  return most;
}

}  // namespace

// A product and its matrices as the library describes them.
struct Products::Description {
  explicit Description(const ProductLibrary& library) : library(library) {}
  Description(const Description&) = delete;
  ~Description() {
    for (void* matrix : matrices) {
      if (matrix) library.destroy_matrix(matrix);
    }
    if (product) library.destroy_product(product);
  }

  void build(const ral_product_args& p, const Layout& a, const Layout& b, const Layout& d) {
    const Numbers& numbers = library.numbers;
    bool wide = p.type == kF64;
    int compute = wide ? numbers.f64 : p.tf32 ? numbers.tf32 : numbers.f32;
    library.check(library.create_product(&product, compute, wide ? kF64 : kF32), "MatmulDescCreate");
    for (auto [attribute, turned] :
         {std::pair(numbers.transpose_a, a.transposed), {numbers.transpose_b, b.transposed}}) {
      int32_t value = turned ? numbers.transposed : numbers.plain;
      library.check(library.set_product(product, attribute, &value, sizeof value), "MatmulDescSetAttribute");
    }
    add(0, p.type, a, p.left, p.batch);
    add(1, p.type, b, p.right, p.batch);
    add(2, p.result_type, d, p.result, p.batch);
  }

  const ProductLibrary& library;
  void* product = nullptr;
  void* matrices[3] = {};

 private:
  void add(int number, int64_t type, const Layout& layout, const ral_matrix& matrix, int64_t batch) {
    library.check(library.create_matrix(&matrices[number], static_cast<int>(type), static_cast<uint64_t>(layout.rows),
                                        static_cast<uint64_t>(layout.columns), layout.leading),
                  "MatrixLayoutCreate");
    auto count = static_cast<int32_t>(batch);
    library.check(library.set_matrix(matrices[number], library.numbers.batch_count, &count, sizeof count),
                  "MatrixLayoutSetAttribute");
    library.check(library.set_matrix(matrices[number], library.numbers.batch_offset, &matrix.batch_stride,
                                     sizeof matrix.batch_stride),
                  "MatrixLayoutSetAttribute");
  }
};

Products* Products::find(const std::string& api, Gpu& gpu) {
  static auto* libraries = new std::map<std::string, std::unique_ptr<ProductLibrary>>;
  static auto* products = new std::map<Gpu*, std::unique_ptr<Products>>;
  static auto* searched = new std::set<std::string>;  // in the system, which takes long
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Products>& found = (*products)[&gpu];
  if (found) return found.get();
  std::unique_ptr<ProductLibrary>& library = (*libraries)[api];
  const Numbers& numbers = api == "hip" ? kHip : kCuda;
  if (!library) library = opened(numbers, RTLD_NOLOAD);  // a framework may load one later
  if (!library && searched->insert(api).second) library = opened(numbers, 0);
  if (!library) return nullptr;
  void* handle = nullptr;
  library->check(library->create(&handle), "Create");
  found.reset(new Products(*library, handle));
  return found.get();
}

Products::Algorithm Products::choose(const Description& made, const ral_product_args& question) {
  const Numbers& numbers = library_.numbers;
  struct Preference {
    const ProductLibrary& library;
    void* handle = nullptr;
    ~Preference() {
      if (handle) library.destroy_preference(handle);
    }
  } preference{library_};
  library_.check(library_.create_preference(&preference.handle), "MatmulPreferenceCreate");
  auto set = [&](int attribute, const auto& value) {
    library_.check(library_.set_preference(preference.handle, attribute, &value, sizeof value),
                   "MatmulPreferenceSetAttribute");
  };
  set(kMostWorkspace, static_cast<uint64_t>(kProductWorkspace));
  if (numbers.aligned) {
    set(kReduction, kInComputeType);
    int attribute = kFirstAlignment;
    for (const ral_matrix* matrix : {&question.left, &question.right, &question.result, &question.result})
      set(attribute++, static_cast<uint32_t>(matrix->address));
  }
  alignas(8) char result[256] = {};
  int count = 0;
  void* const* at = made.matrices;
  int error = library_.choose(handle_, made.product, at[0], at[1], at[2], at[2], preference.handle, 1, result, &count);
  if (error != numbers.not_supported) library_.check(error, "MatmulAlgoGetHeuristic");
  Algorithm chosen{};
  const char* after = result + numbers.algorithm_bytes;
  int32_t state;  // of this result: whether the rest of it means anything
  memcpy(chosen.data, result, numbers.algorithm_bytes);
  memcpy(&chosen.workspace, after, sizeof chosen.workspace);
  memcpy(&state, after + sizeof chosen.workspace, sizeof state);
  if (error || count == 0 || state) chosen.workspace = -1;
  return chosen;
}

bool Products::run(const ral_product_args& given, void* stream, const std::function<void*(int64_t)>& workspace) {
  ral_product_args p = given;
  // The library's results have contiguous columns; of one with contiguous rows it makes the transpose.
  if (p.result.column_stride == 1) {
    std::swap(p.rows, p.columns);
    p.left = transposed(given.right);
    p.right = transposed(given.left);
    p.result = transposed(given.result);
  }
  auto a = layout(p.rows, p.depth, p.left), b = layout(p.depth, p.columns, p.right);
  auto d = layout(p.rows, p.columns, p.result);
  if (!a || !b || !d || d->transposed || p.batch > INT_MAX) return false;
  for (const Layout& x : {*a, *b, *d}) {
    if (std::max({x.rows, x.columns, x.leading}) > INT_MAX) return false;
  }
  ral_product_args question = p;
  for (ral_matrix* matrix : {&question.left, &question.right, &question.result}) matrix->address = alignment(*matrix);

  // Not all versions say that several threads may use a handle at once.
  std::lock_guard<std::mutex> lock(mutex_);
  auto known = chosen_.find(question);
  Description made(library_);
  made.build(p, *a, *b, *d);
  if (known == chosen_.end()) {
    Algorithm algorithm = choose(made, question);
    if (chosen_.size() >= kKept) chosen_.clear();
    known = chosen_.emplace(question, algorithm).first;
  }
  Algorithm& algorithm = known->second;
  if (algorithm.workspace < 0) return false;
  if (!workspace) return true;
  void* room = algorithm.workspace ? workspace(algorithm.workspace) : nullptr;
  const double one_f64 = 1, zero_f64 = 0;
  const float one_f32 = 1, zero_f32 = 0;
  bool wide = p.type == kF64;
  auto data = [](const ral_matrix& matrix) { return reinterpret_cast<void*>(matrix.address); };
  int error = library_.multiply(handle_, made.product, wide ? static_cast<const void*>(&one_f64) : &one_f32,
                                data(p.left), made.matrices[0], data(p.right), made.matrices[1],
                                wide ? static_cast<const void*>(&zero_f64) : &zero_f32, data(p.result),
                                made.matrices[2], data(p.result), made.matrices[2], algorithm.data, room,
                                static_cast<size_t>(algorithm.workspace), stream);
  if (error != library_.numbers.not_supported) library_.check(error, "Matmul");
  if (error) algorithm.workspace = -1;
  return !error;
}

}  // namespace ral
