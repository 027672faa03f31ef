// An executable as the contexts see it: addresses of generated code and a signature. Needs no interpreter and no lock:
// immutable after construction, so any number of threads may use one.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dtype.h"
#include "memory/memory.h"
#include "program/env.h"
#include "ral.h"

namespace ral {

// A failure of a call; the binding turns it into the class of hlo_disc.errors with that name.
class Error : public std::runtime_error {
 public:
  enum Class { kArgument, kShape, kOutOfMemory, kCall, kDevice, kOverflow };
  Error(Class which, const std::string& message, int code = 0, std::shared_ptr<void> cause = nullptr)
      : std::runtime_error(message), which(which), code(code), cause(std::move(cause)) {}
  Class which;
  int code;                     // of kCall: the XLA_FFI_Error_Code that a library function failed with
  std::shared_ptr<void> cause;  // of kCall: the Python exception that a callback raised, to be raised itself
};

// The name of the class in hlo_disc.errors.
const char* name_of(Error::Class which);

struct TensorType {
  std::string name;
  const DType* dtype;
  std::vector<int64_t> dims;       // -1 where the size is known at run time only
  std::vector<std::string> texts;  // the dims as the user wrote them
  // A rule for arrays whose framework has weak types; they may be either unless it is said.
  enum Weak : uint8_t { kEither, kStrong, kWeak } weak = kEither;
  bool read = true;  // of inputs: is their memory, or are only their sizes

  // A dim is its text: a number when the size is fixed, anything else when it is known at run time only. Throws
  // std::invalid_argument for a dtype that there is not.
  static TensorType of(const std::string& name, const std::string& dtype, std::vector<std::string> dims);

  int rank() const { return static_cast<int>(dims.size()); }
  std::string str() const;  // "float32 (b, s, 768)"
};

struct Pack {
  bool of_constant;
  int index;  // of the input or the constant
  int64_t bytes;
  ral_main_fn fn;
  const void* form = nullptr;  // of a constant: the packed form
};

struct Guard {
  std::string message;  // {0}, {1} ... stand for the arguments, {{ and }} for braces
  int args;
  bool overflow;  // it says that a type holds a number
};

// A driver that launches kernels. api: its functions' names, "cuda" or "hip". libraries: shared libraries that may have it.
struct DriverName {
  std::string api;
  std::vector<std::string> libraries;
};

class LateModules;
class LibraryCall;

// Which asked conditions may be broken together: the program serves such sizes as well. Only added to, by any thread.
class Accepted {
 public:
  bool has(uint64_t unmet) const;
  bool add(uint64_t unmet);  // false when there is no room

 private:
  std::array<std::atomic<uint64_t>, 32> sets_{};
};

struct Program {
  Program();
  Program(Program&&);
  ~Program();

  ral_plan_fn plan_fn;
  ral_main_fn main_fn;
  EnvLayout env;
  std::vector<TensorType> inputs;
  std::vector<TensorType> outputs;
  std::vector<const void*> constants;
  std::vector<int64_t> constant_bytes;
  std::vector<Pack> packs;
  std::vector<Guard> guards;
  std::vector<std::string> asked;  // the messages of the conditions that pick this program
  std::unique_ptr<Accepted> accepted = std::make_unique<Accepted>();
  std::vector<std::unique_ptr<LibraryCall>> calls;
  int workers;
  bool workers_chosen = false;  // by the user: else a framework's own number of threads is a bound, too
  std::function<const ral_module*()> wide_modules;  // of all kernels, with indices of 64 bits; throws Error
  // Makes a deferred kernel, throws Error. Returns its ral_block_fn, see ral_launch_deferred; for a GPU, modules that
  // have it.
  std::function<void*(const char* name)> make_kernel;
  std::shared_ptr<LateModules> late_modules;  // of a GPU's deferred kernels that are made; null if there are none
  std::shared_ptr<const std::atomic<bool>> packs_inputs;  // whether inputs are packed, as they are if it is null
  std::optional<DriverName> driver;  // of the GPU that its kernels are for; none for the CPU
  bool recordable = false;  // main only launches kernels: what it puts into a stream follows from the sizes
  bool multiplies = false;  // main asks for products of the GPU's library

  // Derived by finish().
  int dims_size = 0;  // sizes of all inputs
  int first_constant = 0;  // indices into bufs
  int first_pack = 0;
  int first_result = 0;
  int bufs_size = 0;

  // Completes a program whose other fields are set. Throws std::invalid_argument where they do not fit together.
  void finish();

  // Fills env (env.words values). Throws Error(kShape, kOverflow) when a guard does not hold, or an asked condition, and
  // Error(kOutOfMemory) where 64 bits do not count what there would be to compute.
  void plan(const int64_t* dims, int64_t* env) const;

  // The asked conditions that do not hold at these sizes, a bit each.
  uint64_t unmet(const int64_t* dims) const;

  // Throws Error(kShape, kOverflow) with the message of guard k and these arguments of it.
  [[noreturn]] void broken_guard(size_t k, const int64_t* args) const;

  // Bytes of a tensor with these sizes. Throws Error(kOutOfMemory) when an int64 cannot hold them.
  static int64_t tensor_bytes(const TensorType& type, const int64_t* sizes);

  // Throws Error unless the sizes fit the type: rank, then sizes that were compiled in.
  void check_shape(int input, const int64_t* sizes, int rank) const;

  // Throws Error(kArgument) unless the input has this dtype.
  void check_dtype(int input, const std::string& dtype) const;

  std::string argument(int input) const;  // "argument 'x'", for messages

 private:
  // Throws Error(kOutOfMemory): what is computed for these sizes of the inputs has more than 64 bits count.
  [[noreturn]] void beyond_memory(const int64_t* dims, const int64_t* env) const;

  // Calls plan_fn in our floating-point mode.
  int32_t enter_plan(const int64_t* dims, int64_t* env) const;
};

// Whether a call says all of these sizes, before it runs.
bool is_known(const int64_t* sizes, int rank);

// "(2, 3)"
std::string shape_text(const int64_t* sizes, int rank);

[[noreturn]] void out_of_memory(int64_t bytes, const std::string& what);

}  // namespace ral
