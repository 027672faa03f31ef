#include "tensors/capsule.h"

#include "dlpack.h"
#include "executable.h"

namespace ral {
namespace {

struct Shared {
  DeviceTensor tensor;
  DLManagedTensor managed;
};

// DLPack's numbers for default streams, of CUDA's and of HIP's.
void* stream_of(int64_t number) { return number >= 0 && number <= 2 ? nullptr : reinterpret_cast<void*>(number); }

void destroy(DLManagedTensor* managed) { delete static_cast<Shared*>(managed->context); }

}  // namespace

PyObject* device_capsule(const DeviceTensor& tensor, std::optional<int64_t> stream) {
  if (tensor.dtype->dlpack_code == kNoDLPack) {
    PyErr_Format(PyExc_BufferError, "DLPack has no %s", tensor.dtype->name);
    return nullptr;
  }
  try {
    const bool waits_itself = stream == -1;  // and reads in a stream that it does not name
    void* consumer = waits_itself ? tensor.stream : stream_of(stream.value_or(0));
    if (waits_itself || consumer != tensor.stream) {
      // The consumer lets go of the memory when it has launched what reads it, perhaps in yet another stream: JAX names
      // one, and computes in others.
      tensor.block->free_behind_all();
      if (!waits_itself && !tensor.finished) {
        Gpu::Current current(*tensor.gpu);
        const Driver& driver = tensor.gpu->driver;
        driver.check(lasts(tensor.stream) ? driver.synchronize(tensor.stream) : driver.synchronize_all(),
                     "a kernel failed");
      }
    }
  } catch (const Error& error) {
    raise(error);
    return nullptr;
  }
  auto* shared = new Shared{tensor, {}};
  DLTensor& out = shared->managed.tensor;
  out.data = shared->tensor.block->data();
  out.device = {tensor.device_type, 0};
  out.rank = static_cast<int32_t>(tensor.sizes.size());
  out.dtype = {static_cast<uint8_t>(tensor.dtype->dlpack_code), static_cast<uint8_t>(8 * tensor.dtype->bytes), 1};
  out.shape = shared->tensor.sizes.data();
  shared->managed.context = shared;
  shared->managed.deleter = destroy;
  PyObject* capsule = PyCapsule_New(&shared->managed, "dltensor", [](PyObject* self) {
    if (!PyCapsule_IsValid(self, "dltensor")) return;  // a consumer has it
    auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(self, "dltensor"));
    managed->deleter(managed);
  });
  if (!capsule) delete shared;
  return capsule;
}

}  // namespace ral
