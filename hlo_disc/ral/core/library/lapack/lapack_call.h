// One call of a routine of LAPACK's: its buffers, attributes and work, over the function that the LibraryCall has.
#pragma once

#include <climits>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "library/library.h"

namespace ral {

// The types of elements that a form speaks of.
struct LapackTypes {
  XLA_FFI_DataType own, real, complex;
};

template <typename T>
struct RealOf {
  using type = T;
  static constexpr LapackTypes types =
      std::is_same_v<T, float> ? LapackTypes{XLA_FFI_DataType_F32, XLA_FFI_DataType_F32, XLA_FFI_DataType_C64}
                               : LapackTypes{XLA_FFI_DataType_F64, XLA_FFI_DataType_F64, XLA_FFI_DataType_C128};
};
template <typename T>
struct RealOf<std::complex<T>> {
  using type = T;
  static constexpr LapackTypes types = {RealOf<T>::types.complex, RealOf<T>::types.real, RealOf<T>::types.complex};
};
template <typename T>
using Real = typename RealOf<T>::type;
template <typename T>
inline constexpr bool kIsComplex = !std::is_same_v<T, Real<T>>;

class LapackCall {
 public:
  // form: the operands, '>', and the results; of each its type (T the routine's own, R real, C complex, I integer) and
  // its last sizes, a letter each: what has the same letter has the same size, q is the lesser one of m and n, and p is
  // n - 1. Sizes before them are batches, the same for all. Throws std::invalid_argument for others.
  LapackCall(const XLA_FFI_CallFrame& frame, const char* form, const LapackTypes& types);

  int64_t batch() const { return batch_; }
  int size(char letter) const { return sizes_[static_cast<unsigned char>(letter)]; }

  // Matrix number `b` of a buffer, operands first: its columns lie one behind the other.
  template <typename T>
  T* at(int buffer, int64_t b) const {
    return static_cast<T*>(buffers_[static_cast<size_t>(buffer)]->data) + b * steps_[static_cast<size_t>(buffer)];
  }

  // Whether the last result is what LAPACK says of each matrix, and where that of number `b` is.
  bool has_info() const { return has_info_; }
  int* info(int64_t b) const { return at<int>(static_cast<int>(buffers_.size()) - 1, b); }

  // A buffer, an operand or a result, starts as an operand, where that is not so already.
  template <typename T>
  void copy(int operand, int buffer) const {
    T *from = at<T>(operand, 0), *to = at<T>(buffer, 0);
    const int64_t count = batch_ * steps_[static_cast<size_t>(operand)];
    if (from != to) std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
  }

  // An attribute that is a character, one of those allowed.
  char letter(const char* name, const char* allowed) const;
  bool flag(const char* name) const;
  int number(const char* name) const;

  // Calls the function as Fortran does: all by address, and behind that the lengths of characters.
  template <typename... Args>
  void call(Args*... args) const {
    call_with(std::make_index_sequence<(std::is_same_v<Args, char> + ... + 0)>(), args...);
  }

 private:
  template <size_t... I, typename... Args>
  void call_with(std::index_sequence<I...>, Args*... args) const {
    reinterpret_cast<void (*)(Args*..., decltype(I)...)>(function_)(args..., (static_cast<void>(I), size_t{1})...);
  }
  const void* scalar(const char* name, XLA_FFI_DataType type) const;
  void check(size_t buffer, const char* sizes, size_t count, XLA_FFI_DataType type);
  int known(char letter) const;

  const XLA_FFI_CallFrame& frame_;
  Function* function_;
  size_t operands_;
  bool has_info_;
  std::vector<const XLA_FFI_Buffer*> buffers_;
  std::vector<int64_t> steps_;  // elements from one matrix to the next
  int64_t batch_ = 1;
  size_t batch_rank_ = 0;
  int sizes_[128];
};

// Throws std::invalid_argument with the text unless it holds.
void expect(bool holds, const char* text);

// Memory for a routine.
template <typename T>
class Work {
 public:
  explicit Work(int64_t count) : length(static_cast<int>(count)), block_(count * int64_t{sizeof(T)}, Use::kTemporary) {
    if (!block_) out_of_memory(count * int64_t{sizeof(T)}, "linear algebra");
  }
  T* data() const { return reinterpret_cast<T*>(block_.data()); }
  int length;

 private:
  Block block_;
};

// The memory that LAPACK wants, by its answer; numbers in f32 may have been rounded down.
template <typename T>
int64_t wanted(const T& answer) {
  double count;
  if constexpr (std::is_integral_v<T>) {
    count = answer;
  } else {
    Real<T> real = std::real(answer);
    count = real < 1 << 24 ? real : std::nextafter(real, HUGE_VALF);
  }
  expect(count >= 0 && count <= INT_MAX, "a matrix is too large for LAPACK, whose integers have 32 bits");
  return count < 1 ? 1 : static_cast<int64_t>(count);
}

}  // namespace ral
