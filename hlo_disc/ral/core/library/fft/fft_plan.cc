#include "library/fft/fft_plan.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <mutex>
#include <utility>

#include "library/fft/fft_lanes.h"

namespace ral {
namespace {

constexpr size_t kKept = 32;          // plans
constexpr int64_t kMaxRadix = 127;    // of a pass; a larger prime factor is Bluestein's
constexpr long double kPi = 3.141592653589793238462643383279502884L;

std::vector<int64_t> factors_of(int64_t n) {
  std::vector<int64_t> factors;
  for (int64_t radix : {8, 4, 2, 3, 5}) {
    for (; n % radix == 0; n /= radix) factors.push_back(radix);
  }
  for (int64_t p = 7; p * p <= n; p += 2) {
    for (; n % p == 0; n /= p) factors.push_back(p);
  }
  if (n > 1) factors.push_back(n);
  return factors;
}

double cost_of(const std::vector<int64_t>& factors, int64_t n) {
  double sum = 0;
  for (int64_t radix : factors)
    sum += radix <= 8 ? std::log2(static_cast<double>(radix)) * 2 : 1.1 * static_cast<double>(radix);
  return sum * static_cast<double>(n);
}

template <typename T>
void push(std::vector<T>& to, Root root) {
  to.push_back(static_cast<T>(root.re));
  to.push_back(static_cast<T>(root.im));
}

// exp(+2 pi i k / n) from the cosine and sine of at most an eighth of a turn.
Root root_of_unity(int64_t k, int64_t n) {
  const double unit = static_cast<double>(0.25L * kPi / static_cast<long double>(n));
  int64_t eighths = 8 * k;  // of n: the octants of the circle
  const bool lower = eighths >= 4 * n;
  if (lower) eighths = 8 * n - eighths;
  const bool left = eighths >= 2 * n;
  if (left) eighths = 4 * n - eighths;
  const bool steep = eighths >= n;
  const double angle = static_cast<double>(steep ? 2 * n - eighths : eighths) * unit;
  double re = std::cos(angle), im = std::sin(angle);
  if (steep) std::swap(re, im);
  return {left ? -re : re, lower ? -im : im};
}

// k^2 mod 2n without overflow.
int64_t chirp_index(int64_t k, int64_t n) { return static_cast<int64_t>(static_cast<__int128>(k) * k % (2 * n)); }

template <typename T>
struct Cache {
  std::mutex mutex;
  std::list<std::shared_ptr<const FftPlan<T>>> plans;  // the last used first
};

}  // namespace

Roots::Roots(int64_t n) : n_(n), shift_(1) {
  const int64_t half = (n + 2) / 2;
  while ((int64_t{1} << 2 * shift_) < half) shift_++;
  const int64_t fine = int64_t{1} << shift_;
  for (int64_t k = 0; k < fine; k++) fine_.push_back(root_of_unity(k % n, n));
  for (int64_t k = 0; k < half; k += fine) coarse_.push_back(root_of_unity(k, n));
}

bool wants_bluestein(int64_t n) {
  std::vector<int64_t> factors = factors_of(n);
  if (factors.empty() || factors.back() <= 31) return false;
  if (factors.back() > kMaxRadix) return true;
  const int64_t longer = smooth_length(2 * n - 1);
  return 2.5 * cost_of(factors_of(longer), longer) < cost_of(factors, n);
}

int64_t smooth_length(int64_t n) {
  int64_t best = 1;
  while (best < n) best *= 2;
  for (int64_t fives = 1; fives < best; fives *= 5) {
    for (int64_t threes = fives; threes < best; threes *= 3) {
      int64_t length = threes;
      while (length < n) length *= 2;
      best = std::min(best, length);
    }
  }
  return best;
}

template <typename T>
FftPlan<T>::FftPlan(int64_t n) : n(n) {
  if (wants_bluestein(n)) {
    longer = fft_plan<T>(smooth_length(2 * n - 1));
    const int64_t m = longer->n;
    const Roots roots(2 * n);
    for (int64_t k = 0; k < n; k++) push(chirp, roots.at(chirp_index(k, n)));
    std::vector<T> conjugate(2 * m);
    for (int64_t k = 0; k < n; k++) {
      for (int64_t at : {k, (m - k) % m}) {
        conjugate[2 * at] = chirp[2 * k];
        conjugate[2 * at + 1] = -chirp[2 * k + 1];
      }
    }
    spectrum.resize(2 * m);
    fft_alone<T>(*longer, conjugate.data(), spectrum.data());
    for (T& x : spectrum) x /= static_cast<T>(m);  // the way back is not scaled
    return;
  }
  int64_t before = 1;
  for (int64_t radix : factors_of(n)) {
    Pass pass{radix, before, n / before / radix, {}, {}, {}};
    const Roots all(n / before), own(radix);
    for (int64_t j = 1; j < radix; j++) {
      for (int64_t i = 0; i < pass.after; i++) push(pass.twiddles, all.at(j * i));
    }
    if (radix > 5 && radix != 8) {
      for (int64_t k = 0; k < radix; k++) {
        const Root root = own.at(k);
        pass.cosines.push_back(static_cast<T>(root.re));
        pass.sines.push_back(static_cast<T>(root.im));
      }
    }
    before *= radix;
    passes.push_back(std::move(pass));
  }
}

template <typename T>
std::shared_ptr<const FftPlan<T>> fft_plan(int64_t n) {
  static auto* cache = new Cache<T>;
  {
    std::lock_guard<std::mutex> lock(cache->mutex);
    for (auto it = cache->plans.begin(); it != cache->plans.end(); ++it) {
      if ((*it)->n != n) continue;
      cache->plans.splice(cache->plans.begin(), cache->plans, it);
      return *it;
    }
  }
  auto made = std::make_shared<const FftPlan<T>>(n);
  std::shared_ptr<const FftPlan<T>> dropped;  // freed outside of the mutex
  std::lock_guard<std::mutex> lock(cache->mutex);
  cache->plans.push_front(made);
  if (cache->plans.size() > kKept) {
    dropped = cache->plans.back();
    cache->plans.pop_back();
  }
  return made;
}

template struct FftPlan<float>;
template struct FftPlan<double>;
template std::shared_ptr<const FftPlan<float>> fft_plan(int64_t);
template std::shared_ptr<const FftPlan<double>> fft_plan(int64_t);

}  // namespace ral
