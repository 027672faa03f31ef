// The XLA FFI, by any of jaxlib's headers: which of its versions this runtime hosts, and which its own handlers ask for.
//
// Versions 0.3 to 0.5 have the same binary interface up to what the later ones add at the end of structs, and the code is
// the same whichever header it is built with: so what is built with one jaxlib runs with the others. In C++ they have
// different names, of which the newest are used.
#pragma once

#include "xla/ffi/api/c_api.h"

#if XLA_FFI_API_MINOR < 4
#define XLA_FFI_InvokeContext XLA_FFI_ExecutionContext
#define XLA_FFI_InvokeContext_Get_Args XLA_FFI_ExecutionContext_Get_Args
#define XLA_FFI_Error_GetDetails XLA_FFI_Error_GetMessage
#define XLA_FFI_Error_GetDetails_Args XLA_FFI_Error_GetMessage_Args
#define XLA_FFI_Error_GetDetails_Args_STRUCT_SIZE XLA_FFI_Error_GetMessage_Args_STRUCT_SIZE
#endif

namespace ral {

constexpr int kHostedMinor = 5;  // what host_api() is of: the newest
constexpr int kRequiredMinor = 3;  // what our handlers need of a host: the oldest

static_assert(
    XLA_FFI_API_MAJOR == 0 && XLA_FFI_API_MINOR >= kRequiredMinor,
    "this jaxlib's XLA FFI is of another version than 0.3 and later: pyproject.toml says which jaxlib to use");

}  // namespace ral
