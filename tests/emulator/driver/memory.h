// The GPU's memory, which is the host's. Blocks begin and end with words that nobody may change; their contents are NaN at
// first, and again when they are freed.
//
// A call hands out an address, or takes it back, and the block is there from when its stream comes to that until it comes
// to the other. Of a hostile driver a block that is freed is handed out again as soon as may be: behind the call for the
// stream that frees it, for others when that is done.
#pragma once
#include <cstddef>
#include <cstdint>

namespace memory {

// 0 when the GPU, or the host, has no more.
uintptr_t allocate(size_t bytes, void* stream, int device);
// False for what was not handed out, or was taken back, or is not of this thread's GPU.
bool release(uintptr_t address, void* stream);
// Gives what nobody has back to the host.
void trim();

// How much each GPU has (0: what it has at first), and has left for more than what was handed out, and what rests.
void set_most(size_t bytes);
void look(int device, size_t* free, size_t* total);
// How many blocks are handed out.
size_t count();

// Is this range inside one block, now, of the GPU that does the work?
bool is_inside(uintptr_t address, size_t bytes);

// Memory of the host that it says is pinned; 0 bytes for no longer.
void declare_pinned(uintptr_t address, size_t bytes);
bool is_pinned(const void* address, size_t bytes);
// Copies memory of the host, which may be gone. False if it is.
bool read_host(void* to, const void* from, size_t bytes);

}  // namespace memory
