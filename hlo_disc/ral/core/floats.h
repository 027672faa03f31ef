// The floating-point mode of a call: that of Python's threads, also on threads that take denormal numbers for zero, as
// XLA's and TensorFlow's do.
#pragma once

#include <cfenv>

namespace ral {

class OwnFloats {
 public:
  OwnFloats() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  OwnFloats(const OwnFloats&) = delete;
  ~OwnFloats() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_;
};

}  // namespace ral
