// Linear algebra as library calls: XLA FFI handlers with the names and operands of jaxlib's ("lapack_spotrf_ffi"), over a
// LAPACK that somebody else has: SciPy's in Python, the system's in a library. Its integers have 32 bits. The function that
// a handler calls, LAPACK's of the same name ("spotrf"), is the LibraryCall's. Matrices lie in memory column by column, and
// none may be empty.
#pragma once

#include <string>
#include <unordered_map>

#include "library/xla_ffi.h"

// For each routine its name for real numbers, that for complex ones, and what implements it.
#define RAL_LAPACK_ROUTINES(ROW) \
  ROW(potrf, potrf, Cholesky) \
  ROW(trsm, trsm, TriangularSolve) \
  ROW(getrf, getrf, Lu) \
  ROW(geqrf, geqrf, Qr) \
  ROW(geqp3, geqp3, PivotedQr) \
  ROW(orgqr, ungqr, OrthogonalFactor) \
  ROW(ormqr, unmqr, OrthogonalProduct) \
  ROW(gesdd, gesdd, Svd) \
  ROW(gesvd, gesvd, SvdByQr) \
  ROW(syevd, heevd, Eigh) \
  ROW(geev, geev, Eig) \
  ROW(gees, gees, Schur) \
  ROW(gehrd, gehrd, Hessenberg) \
  ROW(sytrd, hetrd, Tridiagonal) \
  ROW(gtsv, gtsv, TridiagonalSolve)

namespace ral {

#define RAL_LAPACK_DECLARE(of_reals, of_complex, Routine) \
  XLA_FFI_Error* lapack_s##of_reals##_ffi(XLA_FFI_CallFrame* frame); \
  XLA_FFI_Error* lapack_d##of_reals##_ffi(XLA_FFI_CallFrame* frame); \
  XLA_FFI_Error* lapack_c##of_complex##_ffi(XLA_FFI_CallFrame* frame); \
  XLA_FFI_Error* lapack_z##of_complex##_ffi(XLA_FFI_CallFrame* frame);
RAL_LAPACK_ROUTINES(RAL_LAPACK_DECLARE)
#undef RAL_LAPACK_DECLARE

// All of them by name.
std::unordered_map<std::string, XLA_FFI_Handler*> lapack_handlers();

}  // namespace ral
