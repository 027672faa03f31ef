#include "device_tensor.h"

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

DeviceTensor::DeviceTensor(DeviceBlock memory, const DType* dtype, std::vector<int64_t> sizes,
                           const OnStream& on_stream, int type)
    : dtype(dtype),
      sizes(std::move(sizes)),
      gpu(on_stream.gpu),
      stream(on_stream.handle),
      finished(on_stream.own != nullptr),
      device_type(type) {
  block = std::shared_ptr<DeviceBlock>(new DeviceBlock(std::move(memory)), [gpu = gpu](DeviceBlock* last) {
    try {
      Gpu::Current current(*gpu);
      delete last;
    } catch (const Error&) {  // a context that is gone has taken it along
    }
  });
}

int dlpack_device(const std::vector<std::string>& driver) {
  return driver.empty() ? 0 : driver[0] == "hip" ? kDLROCM : kDLCUDA;
}

PyObject* device_capsule(const DeviceTensor& tensor, std::optional<int64_t> stream) {
  if (tensor.dtype->dlpack_code == kNoDLPack) {
    PyErr_Format(PyExc_BufferError, "DLPack has no %s", tensor.dtype->name);
    return nullptr;
  }
  try {
    void* consumer = stream == -1 ? tensor.stream : stream_of(stream.value_or(0));
    if (!tensor.finished && consumer != tensor.stream) {
      Gpu::Current current(*tensor.gpu);
      tensor.gpu->driver.check(tensor.gpu->driver.synchronize(tensor.stream), "a kernel failed");
    }
    // The consumer lets go of the memory when it has launched what reads it.
    tensor.block->free_in(consumer);
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
