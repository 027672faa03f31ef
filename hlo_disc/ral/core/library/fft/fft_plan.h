// The plan of a Fourier transform of one length: factors and roots of unity, made once a length and shared.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace ral {

struct Root {
  double re, im;
};

// The roots of unity exp(-2 pi i k / n) as products of two table entries: about 2 sqrt(n / 2) of them, from angles of an
// eighth of a turn. In double precision, as numpy and XLA have them: the same results follow.
class Roots {
 public:
  explicit Roots(int64_t n);

  // 0 <= k < n
  Root at(int64_t k) const {
    const bool upper = 2 * k <= n_;
    if (!upper) k = n_ - k;
    const Root a = fine_[static_cast<size_t>(k & ((int64_t{1} << shift_) - 1))],
               b = coarse_[static_cast<size_t>(k >> shift_)];
    const double im = a.re * b.im + a.im * b.re;
    return {a.re * b.re - a.im * b.im, upper ? -im : im};
  }

 private:
  int64_t n_;
  int shift_;
  std::vector<Root> fine_, coarse_;  // of exp(+2 pi i k / n)
};

// Lanes-wide transforms of length n: passes of small radices (Stockham's ordering: no bit reversal), or Bluestein's
// convolution through a longer transform when n has a large prime factor.
template <typename T>
struct FftPlan {
  explicit FftPlan(int64_t n);

  struct Pass {
    int64_t radix, before, after;  // n = before * radix * after; before: the product of the earlier radices
    std::vector<T> twiddles;       // (radix - 1) * after complex numbers: j * i * before / n, by j, then i
    std::vector<T> cosines, sines; // of the radix itself, where it has no butterfly of its own
  };

  int64_t n;
  std::vector<Pass> passes;
  // Bluestein's: chirp[k] = exp(-pi i k^2 / n), and the spectrum of its conjugate, over the length of `longer`.
  std::shared_ptr<const FftPlan> longer;
  std::vector<T> chirp, spectrum;

  // Complex vectors that a transform works in.
  int64_t work() const { return 2 * (longer ? longer->n : n); }
};

// The plan for a length, from a cache of the last ones. Any thread.
template <typename T>
std::shared_ptr<const FftPlan<T>> fft_plan(int64_t n);

// Whether Bluestein's convolution is cheaper than passes of n's own factors.
bool wants_bluestein(int64_t n);

// The smallest length of at least n that has no factors but 2, 3 and 5.
int64_t smooth_length(int64_t n);

}  // namespace ral
