#include "fft_plan.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <mutex>

#include "fft_lanes.h"

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
  for (int64_t radix : factors) sum += radix <= 8 ? std::log2(static_cast<double>(radix)) * 2 : 1.1 * static_cast<double>(radix);
  return sum * static_cast<double>(n);
}

template <typename T>
void push(std::vector<T>& to, Root root) {
  to.push_back(static_cast<T>(root.re));
  to.push_back(static_cast<T>(root.im));
}

// k^2 mod 2n without overflow.
int64_t chirp_index(int64_t k, int64_t n) { return static_cast<int64_t>(static_cast<__int128>(k) * k % (2 * n)); }

template <typename T>
struct Cache {
  std::mutex mutex;
  std::list<std::shared_ptr<const FftPlan<T>>> plans;  // the last used first
};

}  // namespace

Root root_of_unity(int64_t k, int64_t n) {
  // Only angles of an eighth of a turn are computed with, so that symmetric roots are symmetric to the last bit.
  k %= n;
  const __int128 eight = static_cast<__int128>(k) * 8;
  const int64_t octant = static_cast<int64_t>(eight / n);
  const bool mirrored = octant % 2;
  const __int128 turn = mirrored ? static_cast<__int128>(n) * (octant + 1) - eight : eight - static_cast<__int128>(n) * octant;  // of 8 n
  const long double angle = kPi / 4 * static_cast<long double>(turn) / static_cast<long double>(n);
  const double c = static_cast<double>(std::cos(angle)), s = static_cast<double>(std::sin(angle));
  switch (octant) {
    case 0: return {c, -s};
    case 1: return {s, -c};
    case 2: return {-s, -c};
    case 3: return {-c, -s};
    case 4: return {-c, s};
    case 5: return {-s, c};
    case 6: return {s, c};
    default: return {c, s};
  }
}

Roots::Roots(int64_t n) : shift_(0) {
  while ((int64_t{1} << 2 * shift_) < n) shift_++;
  const int64_t fine = int64_t{1} << shift_;
  for (int64_t k = 0; k < fine; k++) fine_.push_back(root_of_unity(k, n));
  for (int64_t k = 0; k < n; k += fine) coarse_.push_back(root_of_unity(k, n));
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
    for (int64_t k = 0; k < n; k++) push(chirp, root_of_unity(chirp_index(k, n), 2 * n));
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
    for (int64_t j = 1; j < radix; j++) {
      for (int64_t i = 0; i < pass.after; i++) push(pass.twiddles, root_of_unity(j * i % (n / before), n / before));
    }
    if (radix > 5 && radix != 8) {
      for (int64_t k = 0; k < radix; k++) {
        Root root = root_of_unity(k, radix);
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
