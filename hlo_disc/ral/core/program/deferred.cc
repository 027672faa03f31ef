// Launches of kernels that are made when they are first needed.
#include <exception>
#include <new>

#include "library/library.h"
#include "threads/floats.h"

namespace ral {
namespace {

// The kernel's code, or null with the reason in the run. Nothing may be thrown through generated code.
ral_block_fn made(Run& run, const char* name) {
  try {
    auto found = reinterpret_cast<ral_block_fn>(run.program.make_kernel(name));
    if (!floats_are_own()) set_own_floats();  // for what comes next: whoever made it may leave another mode
    return found;
  } catch (const Error& error) {
    run.error = error;
  } catch (const std::bad_alloc&) {
    run.error = Error(Error::kOutOfMemory, "no memory to make a kernel");
  } catch (const std::exception& error) {
    run.error = Error(Error::kCall, error.what(), XLA_FFI_Error_Code_INTERNAL);
  }
  return nullptr;
}

}  // namespace
}  // namespace ral

// Threads that make a kernel at once get the same code, and store the same address.
extern "C" int32_t ral_launch_deferred(ral_call* call, ral_deferred* kernel, const void* args, int64_t n) {
  if (n <= 0) return 0;
  ral_block_fn loaded = __atomic_load_n(&kernel->loaded, __ATOMIC_ACQUIRE);
  if (!loaded) {
    loaded = ral::made(*static_cast<ral::Run*>(call), kernel->name);
    if (!loaded) return RAL_FAILED;
    __atomic_store_n(&kernel->loaded, loaded, __ATOMIC_RELEASE);
  }
  ral_parallel_for(call, loaded, args, n);
  return 0;
}
