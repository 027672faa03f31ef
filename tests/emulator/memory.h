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

// 0 when the host has no more.
uintptr_t allocate(size_t bytes, void* stream);
// False for what was not handed out, or was taken back.
bool release(uintptr_t address, void* stream);
// Gives what nobody has back to the host.
void trim();

// Is this range inside one block, now?
bool is_inside(uintptr_t address, size_t bytes);

// Memory of the host that it says is pinned; 0 bytes for no longer.
void declare_pinned(uintptr_t address, size_t bytes);
bool is_pinned(const void* address, size_t bytes);
// Copies memory of the host, which may be gone. False if it is.
bool read_host(void* to, const void* from, size_t bytes);

}  // namespace memory
