// The functions of ral.h that generated code calls, by name: what code is linked with.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace ral {

std::unordered_map<std::string, uintptr_t> runtime_symbols();

// Those of them that are others where launches are to be recorded.
std::unordered_map<std::string, uintptr_t> recorded_symbols();

}  // namespace ral
