// Programs as constant tables, which the C++ source of a library has, and the functions of its C interface for them.
#pragma once

#include <cstdint>

#include "hlo_disc.h"
#include "library/xla_ffi.h"

// ELF's number of the machine that is compiled for.
#if defined(__x86_64__)
#define HLO_DISC_MACHINE 62
#elif defined(__aarch64__)
#define HLO_DISC_MACHINE 183
#else
#define HLO_DISC_MACHINE 0
#endif

namespace ral {

// Where bytes lie in the library's data: its code, and its weights if they are not in a file of their own.
struct Span {
  int64_t start, size;
  uint64_t digest;
};

struct TypeRow {
  const char *name, *dtype;
  int32_t rank;
  const char* const* dims;  // numbers, or other texts for sizes that calls decide
  bool read;
};

struct PackRow {
  bool of_constant;
  int32_t index;
  int64_t bytes;
  const char* function;
  int32_t form;  // of a constant: its number among the forms; -1 where it is to be made
};

struct GuardRow {
  const char* message;
  int32_t args;
  bool overflow;
};

struct AttributeRow {
  const char *name, *kind, *dtype, *content;
  int64_t size;  // of the content
  const AttributeRow* entries;
  int32_t count;
};

struct BufferRow {
  const char* dtype;
  int32_t rank;
};

struct CallRow {
  const char* where;
  XLA_FFI_Handler* handler;
  void (*function)();  // of the system's LAPACK, for a handler that needs one; null for others
  const AttributeRow* attributes;
  int32_t attribute_count;
  const BufferRow* buffers;  // operands, then results
  int32_t operands, results;
  const int32_t* aliases;  // an operand and a result, and so on
  int32_t alias_count;
};

// A program compiled for CPUs with some features.
struct LevelRow {
  const char* const* features;
  int32_t feature_count;
  const char* name;
  Span code, wide_code;
  const char* const* driver;
  int32_t driver_count;
  int32_t env[7];
  const TypeRow* inputs;
  int32_t input_count;
  const TypeRow* outputs;
  int32_t output_count;
  const PackRow* packs;
  int32_t pack_count;
  const GuardRow* guards;
  int32_t guard_count;
  const char* const* asked;
  int32_t asked_count;
  const CallRow* calls;
  int32_t call_count;
  const Span* constants;  // these and the next: parts of the weights
  int32_t constant_count;
  const Span* forms;
  int32_t form_count;
};

// levels: the best first. weights: null where they are in a file beside.
struct LibraryTable {
  const char* name;
  const LevelRow* levels;
  int32_t level_count;
  const char *code, *weights;
  int64_t weights_size;
};

const hlo_disc_type* type_at(const LibraryTable& table, bool input, int32_t index) noexcept;
int32_t open_model(const LibraryTable& table, const hlo_disc_settings* settings, int32_t api_version,
                   hlo_disc_model** model) noexcept;
void close_model(hlo_disc_model* model) noexcept;
int32_t plan_model(const hlo_disc_model* model, const hlo_disc_tensor* inputs, hlo_disc_tensor* outputs,
                   size_t* temporary) noexcept;
int32_t run_model(const hlo_disc_model* model, const hlo_disc_tensor* inputs, hlo_disc_tensor* outputs) noexcept;
void release_result(const hlo_disc_model* model, hlo_disc_tensor* output) noexcept;
const char* last_error() noexcept;

}  // namespace ral

#define HLO_DISC_PUBLIC extern "C" __attribute__((visibility("default")))

// The functions that M.h declares.
#define HLO_DISC_LIBRARY(M, table) \
  HLO_DISC_PUBLIC const hlo_disc_type* M##_input(int32_t index) { return ral::type_at(table, true, index); } \
  HLO_DISC_PUBLIC const hlo_disc_type* M##_output(int32_t index) { return ral::type_at(table, false, index); } \
  HLO_DISC_PUBLIC int32_t M##_open(const hlo_disc_settings* settings, int32_t version, hlo_disc_model** model) { \
    return ral::open_model(table, settings, version, model); \
  } \
  HLO_DISC_PUBLIC void M##_close(hlo_disc_model* model) { ral::close_model(model); } \
  HLO_DISC_PUBLIC int32_t M##_plan(const hlo_disc_model* model, const hlo_disc_tensor* inputs, \
                                   hlo_disc_tensor* outputs, size_t* temporary) { \
    return ral::plan_model(model, inputs, outputs, temporary); \
  } \
  HLO_DISC_PUBLIC int32_t M##_run(const hlo_disc_model* model, const hlo_disc_tensor* inputs, \
                                  hlo_disc_tensor* outputs) { \
    return ral::run_model(model, inputs, outputs); \
  } \
  HLO_DISC_PUBLIC void M##_release(const hlo_disc_model* model, hlo_disc_tensor* output) { \
    ral::release_result(model, output); \
  } \
  HLO_DISC_PUBLIC const char* M##_error(void) { return ral::last_error(); }
