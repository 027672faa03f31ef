// Fourier transforms as a library call: the XLA FFI handler behind the name "hlo_disc.fft".
#pragma once

#include "library/xla_ffi.h"

namespace ral {

// One operand and one result, f32, f64, c64 or c128, row-major. Attributes: `axes`, i64, how many of the last axes are
// transformed; `transform`, one of FFT, IFFT, RFFT, IRFFT. The work is shared among the workers of the call.
XLA_FFI_Error* fft_handler(XLA_FFI_CallFrame* frame);

}  // namespace ral
