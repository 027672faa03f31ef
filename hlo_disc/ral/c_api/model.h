// Programs as constant tables, which the C++ source of a library has, and the functions of its C interface for them. The
// source names all fields of the records.
#pragma once

#include <cstdint>

#include "hlo_disc.h"
#include "library/xla_ffi.h"
#include "program/env.h"

// ELF's number of the machine that is compiled for.
#if defined(__x86_64__)
#define HLO_DISC_MACHINE 62
#elif defined(__aarch64__)
#define HLO_DISC_MACHINE 183
#else
#define HLO_DISC_MACHINE 0
#endif

namespace ral {

// A place of bytes in the library's data: its code, and its weights if they are not in a file of their own.
struct Span {
  int64_t start, size;
  uint64_t digest;
};

// A constant array.
template <typename T>
struct Rows {
  const T* first;
  int32_t count;

  const T* begin() const { return first; }
  const T* end() const { return first + count; }
};

struct TypeRow {
  const char *name, *dtype;
  Rows<const char*> dims;  // numbers, or other texts for sizes that calls decide
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
  Rows<AttributeRow> entries;
};

struct BufferRow {
  const char* dtype;
  int32_t rank;
};

struct AliasRow {
  int32_t operand, result;
};

struct CallRow {
  const char* where;
  XLA_FFI_Handler* handler;
  void (*function)();  // of the system's LAPACK, for a handler that needs one; null for others
  Rows<AttributeRow> attributes;
  Rows<BufferRow> operands, results;
  Rows<AliasRow> aliases;
};

struct DriverRow {
  const char* api;
  Rows<const char*> libraries;
};

// A program compiled for CPUs with some features.
struct LevelRow {
  Rows<const char*> features;
  const char* name;
  Span code, wide_code;
  DriverRow driver;  // without an API for the CPU
  EnvLayout env;
  Rows<TypeRow> inputs, outputs;
  Rows<PackRow> packs;
  Rows<GuardRow> guards;
  Rows<const char*> asked;
  Rows<CallRow> calls;
  Rows<Span> constants, forms;  // parts of the weights
};

// levels: the best first. weights: null where they are in a file beside.
struct LibraryTable {
  const char* name;
  Rows<LevelRow> levels;
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
