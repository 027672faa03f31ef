// A GPU's driver: the functions of CUDA's that the runtime calls, found when they are first needed. No toolkit is
// needed to build this, and no driver to load it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ral {

// Name here, parameters, name in the driver. All return 0, or the number of what went wrong.
#define RAL_DRIVER_FUNCTIONS(X) \
  X(init, (unsigned flags), "cuInit") \
  X(error_string, (int error, const char** text), "cuGetErrorString") \
  X(get_device, (int* device, int ordinal), "cuDeviceGet") \
  X(retain_context, (void** context, int device), "cuDevicePrimaryCtxRetain") \
  X(push_context, (void* context), "cuCtxPushCurrent_v2") \
  X(pop_context, (void** context), "cuCtxPopCurrent_v2") \
  X(load_module, (void** module, const void* image, unsigned count, int* options, void** values), \
    "cuModuleLoadDataEx") \
  X(unload_module, (void* module), "cuModuleUnload") \
  X(get_function, (void** function, void* module, const char* name), "cuModuleGetFunction") \
  X(set_attribute, (void* function, int attribute, int value), "cuFuncSetAttribute") \
  X(launch, \
    (void* function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x, unsigned threads_y, \
     unsigned threads_z, unsigned shared, void* stream, void** arguments, void** record), \
    "cuLaunchKernel") \
  X(get_pool, (void** pool, int device), "cuDeviceGetDefaultMemPool") \
  X(set_pool, (void* pool, int attribute, void* value), "cuMemPoolSetAttribute") \
  X(allocate, (uintptr_t* address, size_t bytes, void* stream), "cuMemAllocAsync") \
  X(release, (uintptr_t address, void* stream), "cuMemFreeAsync") \
  X(copy_in, (uintptr_t to, const void* from, size_t bytes, void* stream), "cuMemcpyHtoDAsync_v2") \
  X(copy_out, (void* to, uintptr_t from, size_t bytes, void* stream), "cuMemcpyDtoHAsync_v2") \
  X(create_stream, (void** stream, unsigned flags), "cuStreamCreate") \
  X(synchronize, (void* stream), "cuStreamSynchronize")

struct Driver {
#define RAL_DECLARE(name, parameters, symbol) int(*name) parameters = nullptr;
  RAL_DRIVER_FUNCTIONS(RAL_DECLARE)
#undef RAL_DECLARE

  // The driver in this shared library, started. Throws Error(kDevice) where there is none, or one that is too old.
  static const Driver& open(const std::string& library);

  // Throws Error(kDevice) with the driver's words for an error, or Error(kOutOfMemory).
  void check(int error, const std::string& what) const;
};

}  // namespace ral
