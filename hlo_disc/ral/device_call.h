// One call of a program for a GPU in the standalone context: arguments and results travel between its memory and the
// host's.
#pragma once

#include <vector>

#include "call.h"
#include "gpu.h"

namespace ral {

// What a program keeps on a GPU.
struct OnDevice {
  // Copies the constants there. Throws Error(kDevice, kOutOfMemory).
  OnDevice(Gpu& gpu, const Program& program);
  ~OnDevice();

  Gpu& gpu;
  Kernels kernels;
  Gpu::Stream stream;  // in whose order the constants live
  std::vector<DeviceBlock> constants;
};

// As Call::run: inputs' sizes and pointers are set, results are left in `outputs`, on the host.
void run_on_device(Call& call, OnDevice& device);

}  // namespace ral
