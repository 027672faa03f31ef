// A checksum of large arrays at the speed of memory, against damage and not against malice.
#pragma once

#include <cstdint>

namespace ral {

// 64 bits that almost surely differ where one of the bytes does.
uint64_t digest(const void* data, int64_t bytes) noexcept;

}  // namespace ral
