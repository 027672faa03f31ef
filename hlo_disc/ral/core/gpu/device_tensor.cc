#include "gpu/device_tensor.h"

#include "dlpack.h"
#include "program/program.h"

namespace ral {
DeviceTensor::DeviceTensor(DeviceBlock memory, const DType* dtype, std::vector<int64_t> sizes,
                           const OnStream& on_stream, int type)
    : dtype(dtype),
      sizes(std::move(sizes)),
      gpu(on_stream.gpu),
      stream(on_stream.handle),
      finished(on_stream.waits),
      device_type(type) {
  if (!lasts(stream)) memory.free_behind_all();
  block = std::shared_ptr<DeviceBlock>(new DeviceBlock(std::move(memory)), [gpu = gpu](DeviceBlock* last) {
    try {
      Gpu::Current current(*gpu);
      delete last;
    } catch (const Error&) {  // a context that is gone has taken it along
    }
  });
}

int dlpack_device(const DriverName& driver) { return driver.api == "hip" ? kDLROCM : kDLCUDA; }

}  // namespace ral
