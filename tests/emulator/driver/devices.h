// The GPUs of the driver, of which there are two, and which of them is a thread's. A thread of CUDA's has a stack of
// contexts, of which each GPU has one, and begins without any. One of HIP's has a device: what is at the top of the stack.
#pragma once

namespace devices {

constexpr int kCount = 2;

// What the driver calls a GPU's context, and the GPU that has it; -1 for what is none. Null stands for the first GPU.
void* context_of(int device);
int device_of(const void* context);

// The GPU of this thread; -1 where it has none.
int current();
// The same, or the first one where it has none.
int here();

void push(int device);
// False where there is none.
bool pop();
// Takes the place of the top of the stack.
void set(int device);
// How many contexts this thread has pushed, and not popped.
int pushed();

}  // namespace devices
