#include "link/symbols.h"

#include "link/recording.h"
#include "ral.h"

namespace ral {
namespace {

template <typename F>
uintptr_t address(F* function) {
  return reinterpret_cast<uintptr_t>(function);
}

}  // namespace

std::unordered_map<std::string, uintptr_t> runtime_symbols() {
  return {
      {"ral_parallel_for", address(ral_parallel_for)},
      {"ral_launch_deferred", address(ral_launch_deferred)},
      {"ral_allocate", address(ral_allocate)},
      {"ral_library_call", address(ral_library_call)},
      {"ral_launch", address(ral_launch)},
      {"ral_read", address(ral_read)},
      {"ral_write", address(ral_write)},
      {"ral_product", address(ral_product)},
  };
}

std::unordered_map<std::string, uintptr_t> recorded_symbols() {
  return {
      {"ral_parallel_for", address(ral_recorded_parallel_for)},
      {"ral_library_call", address(ral_recorded_library_call)},
  };
}

}  // namespace ral
