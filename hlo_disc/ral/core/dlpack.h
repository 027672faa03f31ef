// DLPack's ABI, the part that is used here: tensors of 0.8, and those with a version and the C functions of 1.2.
#pragma once

#include <cstdint>

namespace ral {

constexpr int kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLROCM = 10, kDLROCMHost = 11;

struct DLTensor {
  void* data;
  struct {
    int32_t type, id;
  } device;
  int32_t rank;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null when C-contiguous
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};

struct DLVersion {
  uint32_t major, minor;
};
struct DLManagedTensorVersioned {
  DLVersion version;
  void* context;
  void (*deleter)(DLManagedTensorVersioned*);
  uint64_t flags;
  DLTensor tensor;
};

// The functions that a type of tensors has as __dlpack_c_exchange_api__. They return 0, or have set a Python exception;
// none of them waits for what a GPU has yet to compute.
constexpr uint32_t kDLExchangeMajor = 1;
struct DLExchange {
  DLVersion version;
  const DLExchange* older;  // the same for an earlier major version; null for none
  // A new tensor like the prototype. Needs no interpreter lock, and tells `fail` what went wrong in place of Python.
  int (*allocate)(DLTensor* prototype, DLManagedTensorVersioned** out, void* context,
                  void (*fail)(void* context, const char* kind, const char* message));
  int (*share)(void* object, DLManagedTensorVersioned** out);
  int (*make)(DLManagedTensorVersioned* tensor, void** object);  // takes the tensor over
  int (*look)(void* object, DLTensor* out);  // what `out` points at is the object's; null where there is no such thing
  int (*current_stream)(int32_t device_type, int32_t device_id, void** out);
};

}  // namespace ral
