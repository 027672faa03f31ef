// Fourier transforms of one length, many at a time: one in each lane of the vectors.
#pragma once

#include <cstdint>

#include "library/fft/fft_plan.h"

namespace ral {

// Lanes of a vector of 64 bytes.
template <typename T>
constexpr int64_t kFftLanes = 64 / static_cast<int64_t>(sizeof(T));

// The places of the transforms' elements, in complex numbers: element j of transform g is at
// (g / inner) * outer + (g % inner) * lane + j * element.
struct FftLayout {
  int64_t outer, lane, element;
};

// Many transforms of one length. In place is fine where the two layouts are one.
template <typename T>
struct FftJob {
  const FftPlan<T>* plan;
  const T* source;
  T* target;
  int64_t inner;
  FftLayout from, to;
  bool inverse;
  T scale;  // of the results
  // Step one of a long transform, whose roots these are: result k of transform g is turned by the root g * k.
  const Roots* turns = nullptr;
};

// Transforms first .. first + count - 1 (count <= kFftLanes). work: plan->work() complex vectors, aligned to 64 bytes.
template <typename T>
void fft_group(const FftJob<T>& job, int64_t first, int64_t count, void* work);

// One forward transform of contiguous numbers.
template <typename T>
void fft_alone(const FftPlan<T>& plan, const T* source, T* target);

}  // namespace ral
