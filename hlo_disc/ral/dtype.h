// The element types that cross the boundary, with their names and codes in numpy, DLPack, the buffer protocol and XLA.
#pragma once

#include <cstdint>
#include <cstring>

namespace ral {

// A Python scalar may become an element of its own kind or of a later one.
enum class Kind : uint8_t { kBool, kInteger, kFloat };

struct DType {
  const char* name;  // numpy's and ml_dtypes' name
  int bytes;
  Kind kind;
  uint8_t dlpack_code;      // DLDataTypeCode; the bits are 8 * bytes
  const char* formats;      // buffer protocol codes; "" where it has none
  int32_t xla;              // XLA_FFI_DataType
};

inline constexpr DType kDTypes[] = {
    {"bool", 1, Kind::kBool, 6, "?", 1},        {"int8", 1, Kind::kInteger, 0, "b", 2},
    {"int16", 2, Kind::kInteger, 0, "h", 3},    {"int32", 4, Kind::kInteger, 0, "i", 4},
    {"int64", 8, Kind::kInteger, 0, "lq", 5},   {"uint8", 1, Kind::kInteger, 1, "B", 6},
    {"uint16", 2, Kind::kInteger, 1, "H", 7},   {"uint32", 4, Kind::kInteger, 1, "I", 8},
    {"uint64", 8, Kind::kInteger, 1, "LQ", 9},  {"float16", 2, Kind::kFloat, 2, "e", 10},
    {"bfloat16", 2, Kind::kFloat, 4, "", 16},   {"float32", 4, Kind::kFloat, 2, "f", 11},
    {"float64", 8, Kind::kFloat, 2, "d", 12},
};

// Null for a name that is not in the table.
inline const DType* find_dtype(const char* name) {
  for (const DType& dtype : kDTypes) {
    if (std::strcmp(dtype.name, name) == 0) return &dtype;
  }
  return nullptr;
}

}  // namespace ral
