#include "library/fft/fft_lanes.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace ral {
namespace {

#define INLINE inline __attribute__((always_inline))

template <typename T>
struct Vectors;
template <>
struct Vectors<float> {
  typedef float V __attribute__((vector_size(64)));
  typedef float Unaligned __attribute__((vector_size(64), aligned(4)));
};
template <>
struct Vectors<double> {
  typedef double V __attribute__((vector_size(64)));
  typedef double Unaligned __attribute__((vector_size(64), aligned(8)));
};
typedef long long Words __attribute__((vector_size(64)));

template <typename V>
struct Complex {
  V re, im;
};

template <typename V>
INLINE Complex<V> operator+(const Complex<V>& a, const Complex<V>& b) {
  return {a.re + b.re, a.im + b.im};
}
template <typename V>
INLINE Complex<V> operator-(const Complex<V>& a, const Complex<V>& b) {
  return {a.re - b.re, a.im - b.im};
}
template <typename V, typename T>
INLINE Complex<V> turned(const Complex<V>& a, T re, T im) {
  return {a.re * re - a.im * im, a.re * im + a.im * re};
}
// times -i
template <typename V>
INLINE Complex<V> quarter(const Complex<V>& a) {
  return {a.im, -a.re};
}

// ---------------------------------------------------------------------------------------- between memory and lanes

// Even and odd elements of a ++ b, and the reverse.
INLINE void part(Vectors<float>::V a, Vectors<float>::V b, Complex<Vectors<float>::V>& c) {
  c.re = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  c.im = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}
INLINE void part(Vectors<double>::V a, Vectors<double>::V b, Complex<Vectors<double>::V>& c) {
  c.re = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
  c.im = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
}
INLINE void join(const Complex<Vectors<float>::V>& c, Vectors<float>::V& a, Vectors<float>::V& b) {
  a = __builtin_shufflevector(c.re, c.im, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  b = __builtin_shufflevector(c.re, c.im, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
INLINE void join(const Complex<Vectors<double>::V>& c, Vectors<double>::V& a, Vectors<double>::V& b) {
  a = __builtin_shufflevector(c.re, c.im, 0, 8, 1, 9, 2, 10, 3, 11);
  b = __builtin_shufflevector(c.re, c.im, 4, 12, 5, 13, 6, 14, 7, 15);
}

// Transposes a square of complex numbers: 8 rows of 8 (8 bytes each), or 4 rows of 4 (16 bytes each).
template <int kRows>
INLINE void transpose(Words* rows) {
  if (kRows == 8) {
    for (int i = 0; i < 8; i += 2) {
      Words a = rows[i], b = rows[i + 1];
      rows[i] = __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14);
      rows[i + 1] = __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
    }
  }
  constexpr int kStep = kRows / 4;
  for (int i = 0; i < kRows; i++) {
    if (i & kStep) continue;
    Words a = rows[i], b = rows[i + kStep];
    rows[i] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
    rows[i + kStep] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
  }
  for (int i = 0; i < kRows / 2; i++) {
    Words a = rows[i], b = rows[i + kRows / 2];
    rows[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
    rows[i + kRows / 2] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

template <typename To, typename From>
INLINE To bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// The offsets of a group's transforms in one of the two layouts.
struct Offsets {
  int64_t at[16];
  bool adjacent;  // all lanes are there, side by side

  INLINE Offsets(const FftLayout& layout, int64_t inner, int64_t first, int64_t count, int64_t lanes) {
    adjacent = count == lanes;
    for (int64_t l = 0; l < count; l++) {
      int64_t g = first + l;
      at[l] = g / inner * layout.outer + g % inner * layout.lane;
      adjacent &= at[l] == at[0] + l;
    }
  }
};

template <typename T>
struct Group {
  using V = typename Vectors<T>::V;
  using Unaligned = typename Vectors<T>::Unaligned;
  using C = Complex<V>;
  static constexpr int64_t kLanes = kFftLanes<T>;
  static constexpr int kHalf = static_cast<int>(kLanes / 2);  // complex numbers in a vector

  static INLINE V load(const T* from) { return *reinterpret_cast<const Unaligned*>(from); }
  static INLINE void store(T* to, V x) { *reinterpret_cast<Unaligned*>(to) = x; }

  static INLINE void read(const FftJob<T>& job, int64_t first, int64_t count, C* to) {
    const Offsets offsets(job.from, job.inner, first, count, kLanes);
    const int64_t n = job.plan->n, step = job.from.element;
    const T* source = job.source;
    int64_t j = 0;
    if (offsets.adjacent) {
      for (; j < n; j++) {
        const T* at = source + 2 * (offsets.at[0] + j * step);
        part(load(at), load(at + kLanes), to[j]);
      }
    } else if (count == kLanes && step == 1) {
      for (; j + kHalf <= n; j += kHalf) {
        Words rows[2][kHalf];
        for (int half = 0; half < 2; half++) {
          for (int r = 0; r < kHalf; r++)
            rows[half][r] = bits<Words>(load(source + 2 * (offsets.at[half * kHalf + r] + j)));
          transpose<kHalf>(rows[half]);
        }
        for (int c = 0; c < kHalf; c++) part(bits<V>(rows[0][c]), bits<V>(rows[1][c]), to[j + c]);
      }
    }
    for (; j < n; j++) {
      C x = {};
      for (int64_t l = 0; l < count; l++) {
        const T* at = source + 2 * (offsets.at[l] + j * step);
        x.re[l] = at[0];
        x.im[l] = at[1];
      }
      to[j] = x;
    }
    if (job.inverse) swap_parts(to, n);
  }

  // The inverse transform is the forward one of numbers whose parts are swapped, swapped back.
  static INLINE void swap_parts(C* x, int64_t n) {
    for (int64_t j = 0; j < n; j++) x[j] = {x[j].im, x[j].re};
  }

  static INLINE void write(const FftJob<T>& job, int64_t first, int64_t count, C* from) {
    const Offsets offsets(job.to, job.inner, first, count, kLanes);
    const int64_t n = job.plan->n, step = job.to.element;
    if (job.inverse) swap_parts(from, n);
    if (job.scale != 1) {
      for (int64_t j = 0; j < n; j++) from[j] = {from[j].re * job.scale, from[j].im * job.scale};
    }
    T* target = job.target;
    int64_t j = 0;
    if (offsets.adjacent) {
      for (; j < n; j++) {
        V a, b;
        join(from[j], a, b);
        T* at = target + 2 * (offsets.at[0] + j * step);
        store(at, a);
        store(at + kLanes, b);
      }
    } else if (count == kLanes && step == 1) {
      for (; j + kHalf <= n; j += kHalf) {
        Words rows[2][kHalf];
        for (int c = 0; c < kHalf; c++) {
          V a, b;
          join(from[j + c], a, b);
          rows[0][c] = bits<Words>(a);
          rows[1][c] = bits<Words>(b);
        }
        for (int half = 0; half < 2; half++) {
          transpose<kHalf>(rows[half]);
          for (int r = 0; r < kHalf; r++)
            store(target + 2 * (offsets.at[half * kHalf + r] + j), bits<V>(rows[half][r]));
        }
      }
    }
    for (; j < n; j++) {
      for (int64_t l = 0; l < count; l++) {
        T* at = target + 2 * (offsets.at[l] + j * step);
        at[0] = from[j].re[l];
        at[1] = from[j].im[l];
      }
    }
  }

  // -------------------------------------------------------------------------------------------------- butterflies

  static INLINE void butterfly2(C* x) {
    C a = x[0], b = x[1];
    x[0] = a + b;
    x[1] = a - b;
  }

  static INLINE void butterfly3(C* x) {
    const T sine = static_cast<T>(0.866025403784438646763723170752936183L);
    C sum = x[1] + x[2], difference = x[1] - x[2];
    C middle = {x[0].re - sum.re * T(0.5), x[0].im - sum.im * T(0.5)};
    C side = quarter(C{difference.re * sine, difference.im * sine});
    x[0] = x[0] + sum;
    x[1] = middle + side;
    x[2] = middle - side;
  }

  static INLINE void butterfly4(C* x) {
    C a = x[0] + x[2], b = x[0] - x[2], c = x[1] + x[3], d = quarter(x[1] - x[3]);
    x[0] = a + c;
    x[1] = b + d;
    x[2] = a - c;
    x[3] = b - d;
  }

  static INLINE void butterfly5(C* x) {
    const T c1 = static_cast<T>(0.309016994374947424102293417182819059L),
            c2 = static_cast<T>(-0.809016994374947424102293417182819059L);
    const T s1 = static_cast<T>(0.951056516295153572116439333379382143L),
            s2 = static_cast<T>(0.587785252292473129168705954639072769L);
    C a = x[1] + x[4], b = x[1] - x[4], c = x[2] + x[3], d = x[2] - x[3];
    C m1 = {x[0].re + a.re * c1 + c.re * c2, x[0].im + a.im * c1 + c.im * c2};
    C m2 = {x[0].re + a.re * c2 + c.re * c1, x[0].im + a.im * c2 + c.im * c1};
    C t1 = quarter(C{b.re * s1 + d.re * s2, b.im * s1 + d.im * s2});
    C t2 = quarter(C{b.re * s2 - d.re * s1, b.im * s2 - d.im * s1});
    x[0] = x[0] + a + c;
    x[1] = m1 + t1;
    x[2] = m2 + t2;
    x[3] = m2 - t2;
    x[4] = m1 - t1;
  }

  static INLINE void butterfly8(C* x) {
    const T half = static_cast<T>(0.707106781186547524400844362104849039L);
    C even[4] = {x[0], x[2], x[4], x[6]}, odd[4] = {x[1], x[3], x[5], x[7]};
    butterfly4(even);
    butterfly4(odd);
    C turns[4] = {odd[0],
                  {(odd[1].re + odd[1].im) * half, (odd[1].im - odd[1].re) * half},
                  quarter(odd[2]),
                  {(odd[3].im - odd[3].re) * half, -(odd[3].re + odd[3].im) * half}};
    for (int k = 0; k < 4; k++) {
      x[k] = even[k] + turns[k];
      x[k + 4] = even[k] - turns[k];
    }
  }

  template <int kRadix>
  static INLINE void pass(const typename FftPlan<T>::Pass& pass, const C* from, C* to) {
    const int64_t before = pass.before, after = pass.after;
    const T* twiddles = pass.twiddles.data();
    for (int64_t k = 0; k < before; k++) {
      for (int64_t i = 0; i < after; i++) {
        C x[kRadix];
        for (int r = 0; r < kRadix; r++) x[r] = from[i + after * (r + kRadix * k)];
        switch (kRadix) {
          case 2: butterfly2(x); break;
          case 3: butterfly3(x); break;
          case 4: butterfly4(x); break;
          case 5: butterfly5(x); break;
          default: butterfly8(x);
        }
        to[i + after * k] = x[0];
        for (int r = 1; r < kRadix; r++) {
          const T* w = twiddles + 2 * ((r - 1) * after + i);
          to[i + after * (k + before * r)] = after == 1 ? x[r] : turned(x[r], w[0], w[1]);
        }
      }
    }
  }

  // Any odd radix: sums and differences of opposite elements against the cosines and sines of the radix.
  static INLINE void pass_any(const typename FftPlan<T>::Pass& pass, const C* from, C* to) {
    const int64_t radix = pass.radix, before = pass.before, after = pass.after, half = radix / 2;
    const T* twiddles = pass.twiddles.data();
    C sums[64], differences[64];
    for (int64_t k = 0; k < before; k++) {
      for (int64_t i = 0; i < after; i++) {
        const C* x = from + i + after * radix * k;
        C total = x[0];
        for (int64_t r = 1; r <= half; r++) {
          sums[r] = x[after * r] + x[after * (radix - r)];
          differences[r] = x[after * r] - x[after * (radix - r)];
          total = total + sums[r];
        }
        to[i + after * k] = total;
        for (int64_t j = 1; j <= half; j++) {
          C middle = x[0], side = {};
          int64_t at = 0;
          for (int64_t r = 1; r <= half;) {
            // Two, then by fours, by twos, and the rest, as other libraries add them up: fewer roundings in a row, and
            // equal results.
            const int64_t left = half - r + 1, width = r > 1 && left >= 4 ? 4 : left >= 2 ? 2 : 1;
            C a = r > 1 ? C{} : middle, b = {};
            for (int64_t end = r + width; r < end; r++) {
              at = at + j < radix ? at + j : at + j - radix;
              const T c = pass.cosines[at], s = pass.sines[at];
              a = {a.re + sums[r].re * c, a.im + sums[r].im * c};
              b = {b.re - differences[r].im * s, b.im + differences[r].re * s};
            }
            middle = r - width > 1 ? middle + a : a;
            side = side + b;
          }
          const T* w = twiddles + 2 * ((j - 1) * after + i);
          const T* v = twiddles + 2 * ((radix - j - 1) * after + i);
          to[i + after * (k + before * j)] = turned(middle + side, w[0], w[1]);
          to[i + after * (k + before * (radix - j))] = turned(middle - side, v[0], v[1]);
        }
      }
    }
  }

  // Transforms `from` and returns where the result is: there or in `other`.
  static INLINE C* passes(const FftPlan<T>& plan, C* from, C* other) {
    for (const auto& step : plan.passes) {
      switch (step.radix) {
        case 2: pass<2>(step, from, other); break;
        case 3: pass<3>(step, from, other); break;
        case 4: pass<4>(step, from, other); break;
        case 5: pass<5>(step, from, other); break;
        case 8: pass<8>(step, from, other); break;
        default: pass_any(step, from, other);
      }
      C* swap = from;
      from = other;
      other = swap;
    }
    return from;
  }

  static INLINE C* transform(const FftPlan<T>& plan, C* x, C* other) {
    if (!plan.longer) return passes(plan, x, other);
    const int64_t n = plan.n, m = plan.longer->n;
    for (int64_t k = 0; k < n; k++) x[k] = turned(x[k], plan.chirp[2 * k], plan.chirp[2 * k + 1]);
    for (int64_t k = n; k < m; k++) x[k] = C{};
    C* made = passes(*plan.longer, x, other);
    other = made == x ? other : x;
    for (int64_t k = 0; k < m; k++) {
      C y = turned(made[k], plan.spectrum[2 * k], plan.spectrum[2 * k + 1]);
      made[k] = {y.im, y.re};
    }
    C* back = passes(*plan.longer, made, other);
    for (int64_t k = 0; k < n; k++)
      back[k] = turned(C{back[k].im, back[k].re}, plan.chirp[2 * k], plan.chirp[2 * k + 1]);
    return back;
  }

  // Result k of transform first + l times the root (first + l) * k.
  static INLINE void turn(const FftJob<T>& job, int64_t first, C* x) {
    const int64_t n = job.plan->n;
    for (int64_t k = 0; k < n; k++) {
      const Root start = job.turns->at(first * k), step = job.turns->at(k);
      // Powers of the step by doubling, in double precision: log2(lanes) roundings.
      double re[kLanes], im[kLanes];
      re[0] = start.re;
      im[0] = start.im;
      double pr = step.re, pi = step.im;
      for (int64_t width = 1; width < kLanes; width *= 2) {
        for (int64_t l = 0; l < width; l++) {
          re[width + l] = re[l] * pr - im[l] * pi;
          im[width + l] = re[l] * pi + im[l] * pr;
        }
        const double square = pr * pr - pi * pi;
        pi = 2 * pr * pi;
        pr = square;
      }
      V wr, wi;
      for (int64_t l = 0; l < kLanes; l++) {
        wr[l] = static_cast<T>(re[l]);
        wi[l] = static_cast<T>(im[l]);
      }
      const C y = x[k];
      x[k] = {y.re * wr - y.im * wi, y.re * wi + y.im * wr};
    }
  }

  static INLINE void run(const FftJob<T>& job, int64_t first, int64_t count, void* work) {
    C* x = static_cast<C*>(work);
    C* other = x + job.plan->work() / 2;
    read(job, first, count, x);
    x = transform(*job.plan, x, other);
    if (job.turns) turn(job, first, x);  // before the parts are swapped back: the same for both directions
    write(job, first, count, x);
  }
};

#define VARIANT(name, type, ...) \
  __attribute__((__VA_ARGS__)) void name(const FftJob<type>& job, int64_t first, int64_t count, void* work) { \
    Group<type>::run(job, first, count, work); \
  }

VARIANT(float_plain, float, noinline)
VARIANT(double_plain, double, noinline)
#if defined(__x86_64__)
VARIANT(float_avx2, float, target("avx2,fma"))
VARIANT(double_avx2, double, target("avx2,fma"))
VARIANT(float_avx512, float, target("avx512f,avx512dq,avx512bw,avx512vl,fma"))
VARIANT(double_avx512, double, target("avx512f,avx512dq,avx512bw,avx512vl,fma"))
#endif

template <typename T>
using Run = void (*)(const FftJob<T>& job, int64_t first, int64_t count, void* work);

#if defined(__x86_64__)
template <typename T>
Run<T> choose(Run<T> plain, Run<T> avx2, Run<T> avx512) {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    return avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2;
  return plain;
}
const Run<float> float_run = choose<float>(float_plain, float_avx2, float_avx512);
const Run<double> double_run = choose<double>(double_plain, double_avx2, double_avx512);
#else
const Run<float> float_run = float_plain;
const Run<double> double_run = double_plain;
#endif

}  // namespace

template <>
void fft_group(const FftJob<float>& job, int64_t first, int64_t count, void* work) {
  float_run(job, first, count, work);
}

template <>
void fft_group(const FftJob<double>& job, int64_t first, int64_t count, void* work) {
  double_run(job, first, count, work);
}

template <typename T>
void fft_alone(const FftPlan<T>& plan, const T* source, T* target) {
  const FftLayout rows{plan.n, 0, 1};
  FftJob<T> job{&plan, source, target, 1, rows, rows, false, 1};
  std::unique_ptr<void, decltype(&std::free)> work(std::aligned_alloc(64, static_cast<size_t>(plan.work()) * 128),
                                                   std::free);
  if (!work) throw std::bad_alloc();
  fft_group(job, 0, 1, work.get());
}

template void fft_alone(const FftPlan<float>&, const float*, float*);
template void fft_alone(const FftPlan<double>&, const double*, double*);

}  // namespace ral
