// The element types that cross the boundary, with their names and codes in numpy, DLPack, the buffer protocol, XLA
// and TensorFlow.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

namespace ral {

// A Python scalar may become an element of its own kind or of a later one.
enum class Kind : uint8_t { kBool, kInteger, kFloat, kComplex };

struct DType {
  const char* name;  // numpy's and ml_dtypes' name
  int bytes;         // of an element in memory: narrow types take a byte, as ml_dtypes has them
  Kind kind;
  uint8_t dlpack_code;      // DLDataTypeCode; the bits are 8 * bytes. kNoDLPack where those differ
  const char* formats;      // buffer protocol codes; "" where it has none
  int32_t xla;              // XLA_FFI_DataType; 0 where XLA has none
  int32_t tensorflow;       // TF_DataType; 0 where TensorFlow has none
};

inline constexpr uint8_t kNoDLPack = 255;

inline constexpr DType kDTypes[] = {
    {"bool", 1, Kind::kBool, 6, "?", 1, 10},
    {"int8", 1, Kind::kInteger, 0, "b", 2, 6},
    {"int16", 2, Kind::kInteger, 0, "h", 3, 5},
    {"int32", 4, Kind::kInteger, 0, "i", 4, 3},
    {"int64", 8, Kind::kInteger, 0, "lq", 5, 9},
    {"uint8", 1, Kind::kInteger, 1, "B", 6, 4},
    {"uint16", 2, Kind::kInteger, 1, "H", 7, 17},
    {"uint32", 4, Kind::kInteger, 1, "I", 8, 22},
    {"uint64", 8, Kind::kInteger, 1, "LQ", 9, 23},
    {"float16", 2, Kind::kFloat, 2, "e", 10, 19},
    {"bfloat16", 2, Kind::kFloat, 4, "", 16, 14},
    {"float32", 4, Kind::kFloat, 2, "f", 11, 1},
    {"float64", 8, Kind::kFloat, 2, "d", 12, 2},
    {"complex64", 8, Kind::kComplex, 5, "", 15, 8},
    {"complex128", 16, Kind::kComplex, 5, "", 18, 18},
    {"int4", 1, Kind::kInteger, kNoDLPack, "", 21, 0},
    {"uint4", 1, Kind::kInteger, kNoDLPack, "", 22, 0},
    {"int2", 1, Kind::kInteger, kNoDLPack, "", 26, 0},
    {"uint2", 1, Kind::kInteger, kNoDLPack, "", 27, 0},
    {"float4_e2m1fn", 1, Kind::kFloat, kNoDLPack, "", 32, 0},
    {"float6_e2m3fn", 1, Kind::kFloat, kNoDLPack, "", 0, 0},
    {"float6_e3m2fn", 1, Kind::kFloat, kNoDLPack, "", 0, 0},
    {"float8_e3m4", 1, Kind::kFloat, 7, "", 29, 0},
    {"float8_e4m3", 1, Kind::kFloat, 8, "", 28, 0},
    {"float8_e4m3b11fnuz", 1, Kind::kFloat, 9, "", 23, 0},
    {"float8_e4m3fn", 1, Kind::kFloat, 10, "", 20, 25},
    {"float8_e4m3fnuz", 1, Kind::kFloat, 11, "", 25, 0},
    {"float8_e5m2", 1, Kind::kFloat, 12, "", 19, 24},
    {"float8_e5m2fnuz", 1, Kind::kFloat, 13, "", 24, 0},
    {"float8_e8m0fnu", 1, Kind::kFloat, 14, "", 33, 0},
};

// Null for a name that is not in the table.
inline const DType* find_dtype(const char* name) {
  for (const DType& dtype : kDTypes) {
    if (std::strcmp(dtype.name, name) == 0) return &dtype;
  }
  return nullptr;
}

// Throws std::invalid_argument for such a name.
inline const DType& dtype_named(const std::string& name) {
  const DType* dtype = find_dtype(name.c_str());
  if (!dtype) throw std::invalid_argument("dtype " + name + " is not supported by the runtime");
  return *dtype;
}

}  // namespace ral
