#include "library/fft/fft.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>

#include "library/fft/fft_lanes.h"
#include "library/library.h"

namespace ral {
namespace {

// Longer ones are taken apart, where they can be: two steps that work in fast memory.
constexpr int64_t kLong = 4096;
// So are shorter ones that are too few to fill the lanes.
constexpr int64_t kLongAlone = 256;
// Lanes-wide transforms may be as long as this; a longer one that cannot be taken apart is a convolution of ones that can.
constexpr int64_t kLongest = 1 << 16;
// Work in element visits that is worth handing to another thread.
constexpr double kShared = 1 << 15;

int64_t count_of(const int64_t* dims, int64_t rank) {
  int64_t count = 1;
  for (int64_t i = 0; i < rank; i++) count *= dims[i];
  return count;
}

Block allocate_or_throw(int64_t bytes) {
  Block block(bytes, Use::kTemporary);
  if (!block) out_of_memory(bytes, "a Fourier transform");
  return block;
}

// Runs fn(range) over `n` pieces on the call's workers, each with `bytes` of memory of its own. `fn` may not throw.
template <typename Fn>
void share(Run& run, int64_t n, double work, int64_t bytes, const Fn& fn) {
  const bool alone = work < kShared || n < 2;
  int64_t each = align_up(bytes, RAL_ALIGNMENT);
  Block block = allocate_or_throw(each * (alone ? 1 : run.workers));
  ral_block_fn body = [](const void* data, int64_t begin, int64_t end, void* fast) {
    for (int64_t i = begin; i < end; i++) (*static_cast<const Fn*>(data))(i, fast);
  };
  if (alone) return body(&fn, 0, n, block.data());
  // The call's scratch is the generated code's, which is not running now.
  char* scratch = block.data();
  std::swap(run.scratch, scratch);
  std::swap(run.scratch_bytes, each);
  ral_parallel_for(&run, body, &fn, n);
  std::swap(run.scratch, scratch);
  std::swap(run.scratch_bytes, each);
}

// `count` transforms of one length along one axis, complex to complex. The length is at least 1.
template <typename T>
class Axis {
 public:
  Axis(Run& run, int64_t n, int64_t count, bool inverse) : run_(run), n_(n), count_(count), inverse_(inverse) {
    int64_t divisor = 1;
    if (n > (count <= kFftLanes<T> / 4 ? kLongAlone : kLong)) {
      for (int64_t d = static_cast<int64_t>(std::sqrt(static_cast<double>(n))) + 1; d >= kFftLanes<T>; d--) {
        if (n % d == 0 && n / d >= d) {
          divisor = d;
          break;
        }
      }
    }
    if (divisor > 1 && n / divisor <= kLongest) {
      first_ = fft_plan<T>(n / divisor);
      second_ = fft_plan<T>(divisor);
      turns_ = std::make_unique<Roots>(n);
    } else if (n > kLongest) {
      convolution_ = std::make_unique<Axis>(run, smooth_length(2 * n - 1), 1, false);
    } else {
      first_ = fft_plan<T>(n);
    }
  }

  // inner, from, to: as FftJob has them.
  void transform(const T* source, T* target, int64_t inner, FftLayout from, FftLayout to) {
    const T scale = inverse_ ? static_cast<T>(1 / static_cast<long double>(n_)) : T(1);
    if (!convolution_ && !second_) {
      group_all({first_.get(), source, target, inner, from, to, inverse_, scale}, count_);
      return;
    }
    for (int64_t g = 0; g < count_; g++) {
      const T* source_row = source + 2 * (g / inner * from.outer + g % inner * from.lane);
      T* target_row = target + 2 * (g / inner * to.outer + g % inner * to.lane);
      if (convolution_) {
        convolve(source_row, target_row, from.element, to.element, scale);
      } else {
        in_steps(source_row, target_row, from.element, to.element, scale);
      }
    }
  }

 private:
  void group_all(const FftJob<T>& job, int64_t count) {
    const int64_t lanes = kFftLanes<T>, groups = (count + lanes - 1) / lanes, n = job.plan->n;
    const double work =
        static_cast<double>(count) * static_cast<double>(n) * (2 + std::log2(static_cast<double>(n)) / 2);
    share(run_, groups, work, job.plan->work() * 128,
          [&](int64_t g, void* fast) { fft_group(job, g * lanes, std::min(lanes, count - g * lanes), fast); });
  }

  // n = a * b: b transforms of length a over elements b apart, turned, then a transforms of length b.
  void in_steps(const T* source, T* target, int64_t from, int64_t to, T scale) {
    const int64_t a = first_->n, b = second_->n;
    Block middle = allocate_or_throw(2 * n_ * static_cast<int64_t>(sizeof(T)));
    T* between = reinterpret_cast<T*>(middle.data());
    group_all({first_.get(), source, between, b, {0, from, b * from}, {0, 1, b}, inverse_, 1, turns_.get()}, b);
    group_all({second_.get(), between, target, a, {0, b, 1}, {0, to, a * to}, inverse_, scale}, a);
  }

  // Bluestein's algorithm; see FftPlan.
  void convolve(const T* source, T* target, int64_t from, int64_t to, T scale) {
    const int64_t n = n_, m = convolution_->n_;
    const int64_t bytes = 2 * m * static_cast<int64_t>(sizeof(T));
    if (!spectrum_) {
      chirp_ = allocate_or_throw(2 * n * static_cast<int64_t>(sizeof(T)));
      spectrum_ = allocate_or_throw(bytes);
      T *chirp = numbers(chirp_), *x = numbers(spectrum_);
      std::memset(x, 0, static_cast<size_t>(bytes));
      const Roots roots(2 * n);
      for (int64_t k = 0; k < n; k++) {
        const Root root = roots.at(static_cast<int64_t>(static_cast<__int128>(k) * k % (2 * n)));
        chirp[2 * k] = static_cast<T>(root.re);
        chirp[2 * k + 1] = static_cast<T>(root.im);
        for (int64_t at : {k, (m - k) % m}) {
          x[2 * at] = chirp[2 * k];
          x[2 * at + 1] = -chirp[2 * k + 1];
        }
      }
      convolution_->whole(x);
      for (int64_t k = 0; k < 2 * m; k++) x[k] /= static_cast<T>(m);
    }
    Block block = allocate_or_throw(bytes);
    T *x = numbers(block), *chirp = numbers(chirp_), *spectrum = numbers(spectrum_);
    std::memset(x, 0, static_cast<size_t>(bytes));
    const int re = inverse_, im = !inverse_;
    for (int64_t k = 0; k < n; k++)
      multiply(source[2 * k * from + re], source[2 * k * from + im], chirp + 2 * k, x[2 * k], x[2 * k + 1]);
    convolution_->whole(x);
    for (int64_t k = 0; k < m; k++)
      multiply(x[2 * k], x[2 * k + 1], spectrum + 2 * k, x[2 * k + 1], x[2 * k]);  // swapped: the way back
    convolution_->whole(x);
    for (int64_t k = 0; k < n; k++) {
      T r, i;
      multiply(x[2 * k + 1], x[2 * k], chirp + 2 * k, r, i);
      target[2 * k * to + re] = r * scale;
      target[2 * k * to + im] = i * scale;
    }
  }

  static T* numbers(const Block& block) { return reinterpret_cast<T*>(block.data()); }

  static void multiply(T re, T im, const T* by, T& to_re, T& to_im) {
    const T r = re * by[0] - im * by[1], i = re * by[1] + im * by[0];
    to_re = r;
    to_im = i;
  }

  void whole(T* x) { transform(x, x, 1, {n_, 0, 1}, {n_, 0, 1}); }

  Run& run_;
  int64_t n_, count_;
  bool inverse_;
  std::shared_ptr<const FftPlan<T>> first_, second_;
  std::unique_ptr<Roots> turns_;
  std::unique_ptr<Axis> convolution_;
  Block chirp_, spectrum_;
};

// One call: the last `axes` axes of an array, the innermost one perhaps between n real numbers and n / 2 + 1 complex.
template <typename T>
struct Transform {
  Run& run;
  const int64_t* dims;  // of the complex side
  int64_t rank, axes;

  // Complex to complex along one axis, in place but for the first.
  void along(int64_t axis, const T* source, T* target, bool inverse) {
    const int64_t n = dims[axis], inner = count_of(dims + axis + 1, rank - axis - 1),
                  count = count_of(dims, axis) * inner;
    if (n == 0 || count == 0) return;
    const FftLayout layout{n * inner, 1, inner};
    Axis<T>(run, n, count, inverse).transform(source, target, inner, layout, layout);
  }

  void complex(const T* source, T* target, bool inverse) {
    const T* from = source;
    for (int64_t axis = rank - 1; axis >= rank - axes; axis--) {
      along(axis, from, target, inverse);
      from = target;
    }
  }

  // Rows of n real numbers to rows of n / 2 + 1 complex ones.
  void from_real(const T* source, T* target, int64_t n) {
    const int64_t rows = count_of(dims, rank - 1), half = n / 2, width = half + 1;
    if (rows == 0) return;
    if (n % 2) {
      Block block = allocate_or_throw(2 * rows * n * static_cast<int64_t>(sizeof(T)));
      T* x = reinterpret_cast<T*>(block.data());
      each_row(rows, n, [&](int64_t row) {
        for (int64_t j = 0; j < n; j++) {
          x[2 * (row * n + j)] = source[row * n + j];
          x[2 * (row * n + j) + 1] = 0;
        }
      });
      Axis<T>(run, n, rows, false).transform(x, x, 1, {n, 0, 1}, {n, 0, 1});
      each_row(rows, n, [&](int64_t row) {
        std::memcpy(target + 2 * row * width, x + 2 * row * n, static_cast<size_t>(width) * 2 * sizeof(T));
      });
    } else {
      // Pairs of real numbers as complex ones: half the length, then the spectra of even and odd elements taken apart.
      Axis<T>(run, half, rows, false).transform(source, target, 1, {half, 0, 1}, {width, 0, 1});
      const Roots roots(n);
      each_row(rows, n, [&](int64_t row) { split(target + 2 * row * width, half, roots); });
    }
  }

  // Rows of n / 2 + 1 complex numbers to rows of n real ones.
  void to_real(const T* source, T* target, int64_t n) {
    const int64_t rows = count_of(dims, rank - 1), half = n / 2, width = half + 1;
    if (rows == 0 || n == 0) return;
    if (n % 2) {
      Block block = allocate_or_throw(2 * rows * n * static_cast<int64_t>(sizeof(T)));
      T* x = reinterpret_cast<T*>(block.data());
      each_row(rows, n, [&](int64_t row) {
        const T* from = source + 2 * row * width;
        T* to = x + 2 * row * n;
        to[0] = from[0];
        to[1] = 0;
        for (int64_t k = 1; k < width; k++) {
          to[2 * k] = to[2 * (n - k)] = from[2 * k];
          to[2 * k + 1] = from[2 * k + 1];
          to[2 * (n - k) + 1] = -from[2 * k + 1];
        }
      });
      Axis<T>(run, n, rows, true).transform(x, x, 1, {n, 0, 1}, {n, 0, 1});
      each_row(rows, n, [&](int64_t row) {
        for (int64_t j = 0; j < n; j++) target[row * n + j] = x[2 * (row * n + j)];
      });
    } else {
      const Roots roots(n);
      each_row(rows, n, [&](int64_t row) { merge(source + 2 * row * width, target + row * n, half, roots); });
      Axis<T>(run, half, rows, true).transform(target, target, 1, {half, 0, 1}, {half, 0, 1});
    }
  }

 private:
  template <typename Fn>
  void each_row(int64_t rows, int64_t n, const Fn& fn) {
    share(run, rows, static_cast<double>(rows) * static_cast<double>(n), 0, [&](int64_t row, void*) { fn(row); });
  }

  // In place: Z of length h becomes X of length h + 1, X[k] = (Z[k] + conj Z[h-k]) / 2 - i w^k (Z[k] - conj Z[h-k]) / 2.
  static void split(T* x, int64_t h, const Roots& roots) {
    const T first = x[0], second = x[1];
    for (int64_t k = 1; k <= h / 2; k++) {
      const int64_t m = h - k;
      const Root w = roots.at(k);
      const T even_re = (x[2 * k] + x[2 * m]) / 2, even_im = (x[2 * k + 1] - x[2 * m + 1]) / 2;
      const T odd_re = (x[2 * k + 1] + x[2 * m + 1]) / 2, odd_im = (x[2 * m] - x[2 * k]) / 2;
      const T c = static_cast<T>(w.re), s = static_cast<T>(w.im);
      const T re = odd_re * c - odd_im * s, im = odd_re * s + odd_im * c;
      x[2 * k] = even_re + re;
      x[2 * k + 1] = even_im + im;
      x[2 * m] = even_re - re;
      x[2 * m + 1] = im - even_im;
    }
    x[0] = first + second;
    x[1] = 0;
    x[2 * h] = first - second;
    x[2 * h + 1] = 0;
  }

  // The reverse, for an inverse transform of length h: Z[k] = (X[k] + conj X[h-k] + i w^-k (X[k] - conj X[h-k])) / 2.
  // The imaginary parts of X[0] and X[h] count for nothing.
  static void merge(const T* x, T* z, int64_t h, const Roots& roots) {
    z[0] = (x[0] + x[2 * h]) / 2;
    z[1] = (x[0] - x[2 * h]) / 2;
    for (int64_t k = 1; k <= h / 2; k++) {
      const int64_t m = h - k;
      const Root w = roots.at(k);
      const T even_re = (x[2 * k] + x[2 * m]) / 2, even_im = (x[2 * k + 1] - x[2 * m + 1]) / 2;
      const T odd_re = (x[2 * k] - x[2 * m]) / 2, odd_im = (x[2 * k + 1] + x[2 * m + 1]) / 2;
      const T c = static_cast<T>(w.re), s = static_cast<T>(-w.im);
      const T re = -(odd_re * s + odd_im * c), im = odd_re * c - odd_im * s;  // i times the product
      z[2 * k] = even_re + re;
      z[2 * k + 1] = even_im + im;
      z[2 * m] = even_re - re;
      z[2 * m + 1] = im - even_im;
    }
  }
};

template <typename T>
void compute(Run& run, const XLA_FFI_Buffer& from, const XLA_FFI_Buffer& to, int64_t axes, std::string_view kind) {
  const T* source = static_cast<const T*>(from.data);
  T* target = static_cast<T*>(to.data);
  const int64_t rank = from.rank;
  if (kind == "FFT" || kind == "IFFT") {
    Transform<T>{run, to.dims, rank, axes}.complex(source, target, kind == "IFFT");
  } else if (kind == "RFFT") {
    Transform<T> transform{run, to.dims, rank, axes};
    transform.from_real(source, target, from.dims[rank - 1]);
    for (int64_t axis = rank - 2; axis >= rank - axes; axis--) transform.along(axis, target, target, false);
  } else {
    Transform<T> transform{run, from.dims, rank, axes};
    Block block;
    for (int64_t axis = rank - axes; axis < rank - 1; axis++) {
      if (!block) block = allocate_or_throw(2 * count_of(from.dims, rank) * static_cast<int64_t>(sizeof(T)));
      T* between = reinterpret_cast<T*>(block.data());
      transform.along(axis, source, between, true);
      source = between;
    }
    transform.to_real(source, target, to.dims[rank - 1]);
  }
}

}  // namespace

XLA_FFI_Error* fft_handler(XLA_FFI_CallFrame* frame) {
  if (tells_version(frame)) return nullptr;
  const auto& from = *static_cast<const XLA_FFI_Buffer*>(frame->args.args[0]);
  const auto& to = *static_cast<const XLA_FFI_Buffer*>(frame->rets.rets[0]);
  const auto* axes = static_cast<const XLA_FFI_Scalar*>(attribute(frame->attrs, "axes", XLA_FFI_AttrType_SCALAR));
  const auto* kind =
      static_cast<const XLA_FFI_ByteSpan*>(attribute(frame->attrs, "transform", XLA_FFI_AttrType_STRING));
  const bool wide = from.dtype == XLA_FFI_DataType_F64 || from.dtype == XLA_FFI_DataType_C128;
  // Errors are thrown to run_library_call, which is the only caller.
  (wide ? compute<double> : compute<float>)(*frame->ctx->run, from, to, *static_cast<const int64_t*>(axes->value),
                                            std::string_view(kind->ptr, kind->len));
  return nullptr;
}

}  // namespace ral
