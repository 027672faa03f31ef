// Tensors in a GPU's memory, as frameworks exchange them (DLPack).
#pragma once

#include <memory>
#include <vector>

#include "dtype.h"
#include "gpu/gpu.h"

namespace ral {

// The stream of a call whose arguments lie on the GPU: the framework's, or one of ours. waits: the call does, for its
// results; always of a stream of ours, and where an argument is of somebody who knows nothing of this stream, and may
// use the argument's memory again as soon as the call returns.
struct OnStream {
  Gpu* gpu;
  void* handle;
  std::shared_ptr<Gpu::Stream> own;
  bool waits;
};

// A result that stays on the GPU. Its memory goes with the last that shares it.
struct DeviceTensor {
  DeviceTensor(DeviceBlock memory, const DType* dtype, std::vector<int64_t> sizes, const OnStream& on_stream, int type);

  std::shared_ptr<DeviceBlock> block;
  const DType* dtype;
  std::vector<int64_t> sizes;
  Gpu* gpu;
  void* stream;     // in which it is computed
  bool finished;    // whether it has been
  int device_type;  // DLPack's
};

// DLPack's number for the memory of a driver's GPUs.
int dlpack_device(const DriverName& driver);

}  // namespace ral
