// One call of a program for a GPU. In the standalone context arguments and results travel between its memory and the
// host's; a framework has them there.
#pragma once

#include <functional>
#include <vector>

#include "gpu/gpu.h"
#include "program/call.h"

namespace ral {

// The part of a program that stays on a GPU.
struct OnDevice {
  // Copies the constants there. Throws Error(kDevice, kOutOfMemory).
  OnDevice(Gpu& gpu, const Program& program);
  ~OnDevice();

  Gpu& gpu;
  Kernels kernels;
  Gpu::Stream stream;  // in whose order the constants live
  std::vector<DeviceBlock> constants;
};

// Puts all that the program computes behind what `stream` has, and waits for nothing but what main reads. The call is
// planned, and its inputs and results, and `arena`, are memory of the GPU; so is `workspace`, of kProductWorkspace bytes
// for products of the GPU's library, or null. allocate: gives memory of a size that only the run knows, valid until it is
// over; it may throw Error.
void enqueue(Call& call, OnDevice& device, void* stream, void* arena, void* workspace,
             const std::function<void*(int64_t)>& allocate);

// Loads the kernels that the call will launch, and nothing else: `enqueue` with arguments of these sizes then does only
// what a stream that is being recorded allows, of a program that is `recordable`. The call is planned.
void prepare(Call& call, OnDevice& device);

// As Call::run: inputs' sizes and pointers are set. Results are left in `outputs`, on the host; of a call whose arguments
// are on the GPU, some at least, in `device_outputs`, where they may be computed later in its stream.
void run_on_device(Call& call, OnDevice& device);

}  // namespace ral
