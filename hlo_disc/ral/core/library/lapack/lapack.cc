#include "library/lapack/lapack.h"

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "library/lapack/lapack_call.h"

namespace ral {
namespace {

// As the length of memory: LAPACK says how much it wants.
constexpr int kAsk = -1;

// A routine without a result that says whether it succeeded fails for wrong arguments only. Those are found before: of
// some LAPACKs they end the process.
void succeeded(int info) { expect(info == 0, "LAPACK refuses the arguments"); }

template <typename T>
struct Cholesky {
  static constexpr const char* form = "Tnn>TnnI";
  static void run(const LapackCall& x) {
    char uplo = x.letter("uplo", "LU");
    int n = x.size('n');
    x.copy<T>(0, 1);
    for (int64_t b = 0; b < x.batch(); b++) x.call(&uplo, &n, x.at<T>(1, b), &n, x.at<int>(2, b));
  }
};

template <typename T>
struct TriangularSolve {
  static constexpr const char* form = "TkkTmn>Tmn";
  static void run(const LapackCall& x) {
    char side = x.letter("side", "LR"), uplo = x.letter("uplo", "LU"), trans = x.letter("trans_x", "NTC"),
         diag = x.letter("diag", "UN");
    int k = x.size('k'), m = x.size('m'), n = x.size('n');
    expect(k == (side == 'L' ? m : n), "the triangular matrix and the other operand differ in size");
    T one = 1;
    x.copy<T>(1, 2);
    for (int64_t b = 0; b < x.batch(); b++)
      x.call(&side, &uplo, &trans, &diag, &m, &n, &one, x.at<T>(0, b), &k, x.at<T>(2, b), &m);
  }
};

template <typename T>
struct Lu {
  static constexpr const char* form = "Tmn>TmnIqI";
  static void run(const LapackCall& x) {
    int m = x.size('m'), n = x.size('n');
    x.copy<T>(0, 1);
    for (int64_t b = 0; b < x.batch(); b++) x.call(&m, &n, x.at<T>(1, b), &m, x.at<int>(2, b), x.at<int>(3, b));
  }
};

// `solve(b, work, length, info)` for each matrix, after it has said how long its work is to be. What it says of a matrix
// is the last result, where that is for it.
template <typename T, typename Solve>
void with_work(const LapackCall& x, const Solve& solve) {
  T answer{};
  int ask = kAsk, info = 0;
  solve(0, &answer, &ask, &info);
  succeeded(info);
  Work<T> work(wanted(answer));
  for (int64_t b = 0; b < x.batch(); b++) {
    solve(b, work.data(), &work.length, x.has_info() ? x.info(b) : &info);
    succeeded(info);
  }
}

template <typename T>
struct Qr {
  static constexpr const char* form = "Tmn>TmnTq";
  static void run(const LapackCall& x) {
    int m = x.size('m'), n = x.size('n');
    x.copy<T>(0, 1);
    with_work<T>(x, [&](int64_t b, T* work, int* length, int* info) {
      x.call(&m, &n, x.at<T>(1, b), &m, x.at<T>(2, b), work, length, info);
    });
  }
};

template <typename T>
struct PivotedQr {
  static constexpr const char* form = "TmnIn>TmnInTq";
  static void run(const LapackCall& x) {
    int m = x.size('m'), n = x.size('n');
    x.copy<T>(0, 2);
    x.copy<int>(1, 3);
    Work<Real<T>> real(kIsComplex<T> ? 2 * int64_t{n} : 0);
    with_work<T>(x, [&](int64_t b, T* work, int* length, int* info) {
      T *a = x.at<T>(2, b), *tau = x.at<T>(4, b);
      int* order = x.at<int>(3, b);
      if constexpr (kIsComplex<T>) {
        x.call(&m, &n, a, &m, order, tau, work, length, real.data(), info);
      } else {
        x.call(&m, &n, a, &m, order, tau, work, length, info);
      }
    });
  }
};

template <typename T>
struct OrthogonalFactor {
  static constexpr const char* form = "TmnTk>Tmn";
  static void run(const LapackCall& x) {
    int m = x.size('m'), n = x.size('n'), k = x.size('k');
    expect(k <= n && n <= m, "there are more reflectors than columns, or more columns than rows");
    x.copy<T>(0, 2);
    with_work<T>(x, [&](int64_t b, T* work, int* length, int* info) {
      x.call(&m, &n, &k, x.at<T>(2, b), &m, x.at<T>(1, b), work, length, info);
    });
  }
};

template <typename T>
struct OrthogonalProduct {
  static constexpr const char* form = "TrcTkTmn>Tmn";
  static void run(const LapackCall& x) {
    char side = x.flag("left") ? 'L' : 'R', trans = !x.flag("transpose") ? 'N' : kIsComplex<T> ? 'C' : 'T';
    int r = x.size('r'), k = x.size('k'), m = x.size('m'), n = x.size('n');
    expect(r == (side == 'L' ? m : n) && k <= x.size('c'), "the reflectors and the other operand differ in size");
    x.copy<T>(2, 3);
    // LAPACK writes to the reflectors and takes it back: others may read them meanwhile, or nobody may write there.
    const int64_t count = int64_t{r} * k;
    Work<T> reflectors(std::max<int64_t>(count, 1));
    with_work<T>(x, [&](int64_t b, T* work, int* length, int* info) {
      T* own = reflectors.data();
      std::copy_n(x.at<T>(0, b), count, own);
      x.call(&side, &trans, &m, &n, &k, own, &r, x.at<T>(1, b), x.at<T>(3, b), &m, work, length, info);
    });
  }
};

// The sizes of u and vt fit what is computed: all of them, or as many as there are singular values.
char svd_mode(const LapackCall& x) {
  const char mode = x.letter("mode", "ASN");
  const int m = x.size('m'), n = x.size('n'), u = x.size('u'), v = x.size('v');
  const bool fits = mode == 'N' ? v > 0 : mode == 'A' ? u == m && v == n : u == std::min(m, n) && v == u;
  expect(fits, "the results of a singular value decomposition have other sizes than its mode says");
  return mode;
}

template <typename T>
struct Svd {
  static constexpr const char* form = "Tmn>TmnRqTmuTvnI";
  static void run(const LapackCall& x) {
    char mode = svd_mode(x);
    int m = x.size('m'), n = x.size('n'), v = x.size('v');
    const int64_t least = std::min(m, n), most = std::max(m, n);
    x.copy<T>(0, 1);
    Work<int> integers(8 * least);
    // what LAPACK's documentation says, and more of 'N', where its earlier versions asked for more
    Work<Real<T>> real(!kIsComplex<T> ? 0
                       : mode == 'N'  ? 7 * least
                                      : std::max(5 * least + 5, 2 * (most + least) + 1) * least);
    with_work<T>(x, [&](int64_t b, T* work, int* length, int* info) {
      T *a = x.at<T>(1, b), *left = x.at<T>(3, b), *right = x.at<T>(4, b);
      Real<T>* values = x.at<Real<T>>(2, b);
      if constexpr (kIsComplex<T>) {
        x.call(&mode, &m, &n, a, &m, values, left, &m, right, &v, work, length, real.data(), integers.data(), info);
      } else {
        x.call(&mode, &m, &n, a, &m, values, left, &m, right, &v, work, length, integers.data(), info);
      }
    });
  }
};

template <typename T>
struct SvdByQr {
  static constexpr const char* form = Svd<T>::form;
  static void run(const LapackCall& x) {
    char mode = svd_mode(x);
    int m = x.size('m'), n = x.size('n'), v = x.size('v');
    x.copy<T>(0, 1);
    Work<Real<T>> real(kIsComplex<T> ? 5 * int64_t{std::min(m, n)} : 0);
    with_work<T>(x, [&](int64_t b, T* work, int* length, int* info) {
      T *a = x.at<T>(1, b), *left = x.at<T>(3, b), *right = x.at<T>(4, b);
      Real<T>* values = x.at<Real<T>>(2, b);
      if constexpr (kIsComplex<T>) {
        x.call(&mode, &mode, &m, &n, a, &m, values, left, &m, right, &v, work, length, real.data(), info);
      } else {
        x.call(&mode, &mode, &m, &n, a, &m, values, left, &m, right, &v, work, length, info);
      }
    });
  }
};

template <typename T>
struct Eigh {
  static constexpr const char* form = "Tnn>TnnRnI";
  static void run(const LapackCall& x) {
    char mode = x.letter("mode", "VN"), uplo = x.letter("uplo", "LU");
    int n = x.size('n'), ask = kAsk, info = 0, integer_answer = 0;
    T answer{};
    Real<T> real_answer{};
    auto solve = [&](int64_t b, T* work, int* length, Real<T>* real, int* real_length, int* integers,
                     int* integers_length, int* done) {
      T* a = x.at<T>(1, b);
      Real<T>* values = x.at<Real<T>>(2, b);
      if constexpr (kIsComplex<T>) {
        x.call(&mode, &uplo, &n, a, &n, values, work, length, real, real_length, integers, integers_length, done);
      } else {
        x.call(&mode, &uplo, &n, a, &n, values, work, length, integers, integers_length, done);
      }
    };
    x.copy<T>(0, 1);
    solve(0, &answer, &ask, &real_answer, &ask, &integer_answer, &ask, &info);
    succeeded(info);
    Work<T> work(wanted(answer));
    Work<Real<T>> real(wanted(real_answer));
    Work<int> integers(wanted(integer_answer));
    for (int64_t b = 0; b < x.batch(); b++)
      solve(b, work.data(), &work.length, real.data(), &real.length, integers.data(), &integers.length,
            x.at<int>(3, b));
  }
};

// Some LAPACKs do not return from numbers that are not finite.
template <typename T>
bool all_finite(const T* x, int64_t count) {
  return std::all_of(x, x + count, [](T y) { return std::isfinite(std::real(y)) && std::isfinite(std::imag(y)); });
}

// Eigenvectors of a real matrix: where eigenvalues are conjugates, two columns are the real and the imaginary parts of two.
template <typename T>
void unpack_vectors(int n, const T* imaginary, const T* packed, std::complex<T>* vectors) {
  for (int64_t j = 0; j < n; j++) {
    const T* column = packed + j * n;
    std::complex<T>* to = vectors + j * n;
    const bool pair = imaginary[j] != 0 && j + 1 < n;
    for (int64_t i = 0; i < n; i++) {
      to[i] = {column[i], pair ? column[n + i] : 0};
      if (pair) to[n + i] = std::conj(to[i]);
    }
    if (pair) j++;
  }
}

template <typename T>
struct Eig {
  static constexpr const char* form = kIsComplex<T> ? "Tnn>TnCnnCnnI" : "Tnn>TnTnCnnCnnI";
  static constexpr int kVectors = kIsComplex<T> ? 2 : 3;  // the buffer of the left ones, behind eigenvalues
  static void run(const LapackCall& x) {
    char left = x.letter("compute_left", "VN"), right = x.letter("compute_right", "VN");
    int n = x.size('n');
    const int64_t count = int64_t{n} * n;
    Work<T> a(count);
    Work<Real<T>> packed_left(kIsComplex<T> ? 0 : count), packed_right(kIsComplex<T> ? 0 : count);
    Work<Real<T>> real(kIsComplex<T> ? 2 * int64_t{n} : 0);
    with_work<T>(x, [&](int64_t b, T* work, int* length, int* info) {
      using Complex = std::complex<Real<T>>;
      T* values = x.at<T>(1, b);
      Complex *lefts = x.at<Complex>(kVectors, b), *rights = x.at<Complex>(kVectors + 1, b);
      const bool asks = *length == kAsk;
      const T* source = x.at<T>(0, b);
      if (!asks && !all_finite(source, count)) {
        *info = -4;  // as if LAPACK refused the matrix
        return;
      }
      std::copy(source, source + count, a.data());
      if constexpr (kIsComplex<T>) {
        x.call(&left, &right, &n, a.data(), &n, values, lefts, &n, rights, &n, work, length, real.data(), info);
      } else {
        T* imaginary = x.at<T>(2, b);
        x.call(&left, &right, &n, a.data(), &n, values, imaginary, packed_left.data(), &n, packed_right.data(), &n,
               work, length, info);
        if (!asks && left == 'V') unpack_vectors(n, imaginary, packed_left.data(), lefts);
        if (!asks && right == 'V') unpack_vectors(n, imaginary, packed_right.data(), rights);
      }
    });
  }
};

template <typename T>
struct Schur {
  static constexpr const char* form = kIsComplex<T> ? "Tnn>TnnTnnTnII" : "Tnn>TnnTnnTnTnII";
  static void run(const LapackCall& x) {
    char mode = x.letter("mode", "VN"), sort = x.letter("sort", "N");
    int n = x.size('n');
    Function* select = nullptr;  // nothing is sorted
    int* none = nullptr;
    x.copy<T>(0, 1);
    Work<Real<T>> real(kIsComplex<T> ? n : 0);
    with_work<T>(x, [&](int64_t b, T* work, int* length, int* info) {
      T *a = x.at<T>(1, b), *vectors = x.at<T>(2, b), *values = x.at<T>(3, b);
      const bool asks = *length == kAsk;
      int sorted = 0;
      if constexpr (kIsComplex<T>) {
        x.call(&mode, &sort, select, &n, a, &n, &sorted, values, vectors, &n, work, length, real.data(), none, info);
        if (!asks) *x.at<int>(4, b) = sorted;
      } else {
        x.call(&mode, &sort, select, &n, a, &n, &sorted, values, x.at<T>(4, b), vectors, &n, work, length, none, info);
        if (!asks) *x.at<int>(5, b) = sorted;
      }
    });
  }
};

template <typename T>
struct Hessenberg {
  static constexpr const char* form = "Tnn>TnnTpI";
  static void run(const LapackCall& x) {
    int n = x.size('n'), low = x.number("low"), high = x.number("high");
    expect(1 <= low && low <= high && high <= n, "attributes low and high are no range of rows");
    x.copy<T>(0, 1);
    with_work<T>(x, [&](int64_t b, T* work, int* length, int* info) {
      x.call(&n, &low, &high, x.at<T>(1, b), &n, x.at<T>(2, b), work, length, info);
    });
  }
};

template <typename T>
struct Tridiagonal {
  static constexpr const char* form = "Tnn>TnnRnRpTpI";
  static void run(const LapackCall& x) {
    char uplo = x.letter("uplo", "LU");
    int n = x.size('n');
    x.copy<T>(0, 1);
    with_work<T>(x, [&](int64_t b, T* work, int* length, int* info) {
      x.call(&uplo, &n, x.at<T>(1, b), &n, x.at<Real<T>>(2, b), x.at<Real<T>>(3, b), x.at<T>(4, b), work, length, info);
    });
  }
};

// The lower diagonal starts with a number that counts for nothing, the upper one ends with one.
template <typename T>
struct TridiagonalSolve {
  static constexpr const char* form = "TnTnTnTnm>TnTnTnTnmI";
  static void run(const LapackCall& x) {
    int n = x.size('n'), m = x.size('m');
    for (int i = 0; i < 4; i++) x.copy<T>(i, 4 + i);
    for (int64_t b = 0; b < x.batch(); b++)
      x.call(&n, &m, x.at<T>(4, b) + 1, x.at<T>(5, b), x.at<T>(6, b), x.at<T>(7, b), &n, x.at<int>(8, b));
  }
};

template <typename Routine>
XLA_FFI_Error* handle(XLA_FFI_CallFrame* frame, const LapackTypes& types) {
  if (tells_version(frame)) return nullptr;
  try {
    Routine::run(LapackCall(*frame, Routine::form, types));
    return nullptr;
  } catch (const std::invalid_argument& error) {
    return new XLA_FFI_Error{XLA_FFI_Error_Code_INVALID_ARGUMENT, error.what(), nullptr};
  }  // no memory is for run_library_call, which is the only caller
}

}  // namespace

#define RAL_LAPACK_DEFINE_ONE(name, Routine, ...) \
  XLA_FFI_Error* lapack_##name##_ffi(XLA_FFI_CallFrame* frame) { \
    return handle<Routine<__VA_ARGS__>>(frame, RealOf<__VA_ARGS__>::types); \
  }
#define RAL_LAPACK_DEFINE(of_reals, of_complex, Routine) \
  RAL_LAPACK_DEFINE_ONE(s##of_reals, Routine, float) \
  RAL_LAPACK_DEFINE_ONE(d##of_reals, Routine, double) \
  RAL_LAPACK_DEFINE_ONE(c##of_complex, Routine, std::complex<float>) \
  RAL_LAPACK_DEFINE_ONE(z##of_complex, Routine, std::complex<double>)
RAL_LAPACK_ROUTINES(RAL_LAPACK_DEFINE)

std::unordered_map<std::string, XLA_FFI_Handler*> lapack_handlers() {
#define RAL_LAPACK_NAME(of_reals, of_complex, Routine) \
  {"lapack_s" #of_reals "_ffi", lapack_s##of_reals##_ffi}, {"lapack_d" #of_reals "_ffi", lapack_d##of_reals##_ffi}, \
      {"lapack_c" #of_complex "_ffi", lapack_c##of_complex##_ffi}, \
      {"lapack_z" #of_complex "_ffi", lapack_z##of_complex##_ffi},
  return {RAL_LAPACK_ROUTINES(RAL_LAPACK_NAME)};
}

}  // namespace ral
