// A GPU's driver, NVIDIA's (CUDA) or AMD's (HIP): the functions that the runtime calls, found when they are first
// needed. No toolkit is needed to build this, and no driver to load it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ral {

struct DriverName;

// Properties of a pool's memory (CUmemPoolProps, hipMemPoolProps).
struct PoolProperties {
  int allocation = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
  int handles = 0;
  int location = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int device = 0;
  void* security = nullptr;
  unsigned char rest[64] = {};
};

// Name here, parameters, name in CUDA and in HIP, "" where one has none. All return 0, or the number of what went wrong.
// A thread of CUDA's has a stack of contexts, one of HIP's has a device.
#define RAL_DRIVER_FUNCTIONS(X) \
  X(init, (unsigned flags), "cuInit", "hipInit") \
  X(error_string, (int error, const char** text), "cuGetErrorString", "hipDrvGetErrorString") \
  X(get_device, (int* device, int ordinal), "cuDeviceGet", "hipDeviceGet") \
  X(retain_context, (void** context, int device), "cuDevicePrimaryCtxRetain", "") \
  X(push_context, (void* context), "cuCtxPushCurrent_v2", "") \
  X(pop_context, (void** context), "cuCtxPopCurrent_v2", "") \
  X(get_current, (int* device), "", "hipGetDevice") \
  X(set_current, (int device), "", "hipSetDevice") \
  X(load_module, (void** module, const void* image, unsigned count, int* options, void** values), \
    "cuModuleLoadDataEx", "hipModuleLoadDataEx") \
  X(unload_module, (void* module), "cuModuleUnload", "hipModuleUnload") \
  X(get_function, (void** function, void* module, const char* name), "cuModuleGetFunction", "hipModuleGetFunction") \
  X(set_attribute, (void* function, int attribute, int value), "cuFuncSetAttribute", "") \
  X(launch, \
    (void* function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x, unsigned threads_y, \
     unsigned threads_z, unsigned shared, void* stream, void** arguments, void** record), \
    "cuLaunchKernel", "hipModuleLaunchKernel") \
  X(memory_info, (size_t* free, size_t* total), "cuMemGetInfo_v2", "hipMemGetInfo") \
  X(create_pool, (void** pool, const PoolProperties* properties), "cuMemPoolCreate", "hipMemPoolCreate") \
  X(set_pool, (void* pool, int attribute, void* value), "cuMemPoolSetAttribute", "hipMemPoolSetAttribute") \
  X(trim_pool, (void* pool, size_t kept), "cuMemPoolTrimTo", "hipMemPoolTrimTo") \
  X(allocate, (uintptr_t* address, size_t bytes, void* pool, void* stream), "cuMemAllocFromPoolAsync", \
    "hipMallocFromPoolAsync") \
  X(release, (uintptr_t address, void* stream), "cuMemFreeAsync", "hipFreeAsync") \
  X(copy_in, (uintptr_t to, const void* from, size_t bytes, void* stream), "cuMemcpyHtoDAsync_v2", \
    "hipMemcpyHtoDAsync") \
  X(copy_out, (void* to, uintptr_t from, size_t bytes, void* stream), "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync") \
  X(copy_within, (uintptr_t to, uintptr_t from, size_t bytes, void* stream), "cuMemcpyDtoDAsync_v2", \
    "hipMemcpyDtoDAsync") \
  X(create_stream, (void** stream, unsigned flags), "cuStreamCreate", "hipStreamCreateWithFlags") \
  X(synchronize, (void* stream), "cuStreamSynchronize", "hipStreamSynchronize") \
  X(synchronize_all, (), "cuCtxSynchronize", "hipDeviceSynchronize") \
  X(create_event, (void** event, unsigned flags), "cuEventCreate", "hipEventCreateWithFlags") \
  X(record_event, (void* event, void* stream), "cuEventRecord", "hipEventRecord") \
  X(query_event, (void* event), "cuEventQuery", "hipEventQuery") \
  X(synchronize_event, (void* event), "cuEventSynchronize", "hipEventSynchronize")

// Functions that older drivers lack, where they are null: an event behind all that a context's streams have.
#define RAL_NEWER_DRIVER_FUNCTIONS(X) X(record_all, (void* context, void* event), "cuCtxRecordEvent", "")

struct Driver {
#define RAL_DECLARE(name, parameters, cuda, hip) int(*name) parameters = nullptr;
  RAL_DRIVER_FUNCTIONS(RAL_DECLARE)
  RAL_NEWER_DRIVER_FUNCTIONS(RAL_DECLARE)
#undef RAL_DECLARE
  void* end_of_record = nullptr;  // what ends the description of a launch's arguments

  // Starts the driver of the first library that the process has loaded already, else of the first that there is. Throws
  // Error(kDevice) where there is none, or one that is too old.
  static const Driver& open(const DriverName& name);

  // Throws Error(kDevice) with the driver's words for an error, or Error(kOutOfMemory).
  void check(int error, const std::string& what) const;
};

}  // namespace ral
