// Library calls: an XLA FFI handler with the attributes of one call site, hosted without XLA.
//
// A handler sees what XLA would show it: buffers, attributes sorted by name, an execution context and the functions of
// XLA_FFI_Api, which api.cc implements on this runtime. Everything that belongs to a call lives on its caller's stack,
// so any number of threads may be in one LibraryCall at once, and no lock is held while a handler runs.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dtype.h"
#include "library/attributes.h"
#include "library/xla_ffi.h"
#include "memory/memory.h"
#include "program/program.h"
#include "threads/tasks.h"

namespace ral {

struct Call;

// One whose type its caller knows.
using Function = void();

// The state of one run of a program, which ral.h's functions reach through the ral_call that it is.
struct Run : ral_call {
  Run(const ral_call& base, const Program& program, Tasks& tasks);

  // Calls a function of the program in our floating-point mode: the only way into main and into packs.
  int32_t enter(ral_main_fn fn, int64_t* env, char* arena, void* const* bufs);

  const Program& program;
  Tasks& tasks;                // where the handlers' own tasks run
  int64_t id;                  // no other run of the process has it
  std::optional<Error> error;  // what went wrong when main returns a status
  Call* call = nullptr;        // whose outputs main may allocate
  std::vector<Block> blocks;   // what main allocated for itself
};

// The state that a handler of an earlier stage keeps for the later ones.
class State {
 public:
  State() = default;
  State(const State&) = delete;
  ~State();

  XLA_FFI_TypeId type{};
  void* object = nullptr;
};

// Tells how objects of a state's type are destroyed. Types are told apart by their number alone, as XLA does.
void register_state_type(int64_t type_id, void (*deleter)(void* object));

constexpr int kStages = 4;  // XLA_FFI_ExecutionStage: instantiate, prepare, initialize, execute

class LibraryCall {
 public:
  struct Buffer {
    const DType* dtype;
    int rank;
  };

  // `where` is the op with the user's line, for messages. handlers: by stage, null where there is none.
  // aliases: (operand, result) pairs that share memory; the operand's contents are there when the handler starts.
  // skip_empty: when the first operand or result has no elements the handler is not called, and what shares no memory
  // with an operand is zero (LAPACK refuses leading dimensions of 0).
  // function: what a handler of ours finds in its context; null for others.
  LibraryCall(std::string where, const std::vector<XLA_FFI_Handler*>& handlers, Attributes attributes,
              std::vector<Buffer> operands, std::vector<Buffer> results, std::vector<std::pair<int, int>> aliases,
              bool skip_empty, Function* function);

  // Checks the handlers' versions and makes the state of the instance. Throws Error(kCall).
  void instantiate();

  // One call; see ral_library_call. Throws Error(kCall, kOutOfMemory).
  void run(Run& run, const int64_t* record) const;

 private:
  struct Frame;
  void check(int stage) const;
  void call(Frame& frame, int stage) const;
  bool skip(Frame& frame) const;
  [[noreturn]] void fail(const XLA_FFI_Error& error) const;

  std::string where_;
  std::vector<XLA_FFI_Handler*> handlers_;
  Attributes attributes_;
  std::vector<Buffer> operands_, results_;
  std::vector<std::pair<int, int>> aliases_;
  bool skip_empty_;
  Function* function_;
  State state_;
};

// ral_call.library_call of every context.
int32_t run_library_call(ral_call* call, int32_t index, const int64_t* record);

// ral_call.allocate of every context.
void* run_allocate(ral_call* call, int32_t what, const int64_t* sizes);

// Throws what a run of main left when its status says that something failed.
void check_status(const Run& run, int32_t status, const int64_t* env);

}  // namespace ral

// The context that XLA_FFI_Api's functions are given, and find the call by.
struct XLA_FFI_InvokeContext {
  ral::Run* run = nullptr;                // null while a handler is instantiated
  ral::Function* function = nullptr;      // that of the LibraryCall
  ral::State* states[ral::kStages] = {};  // by the stage that makes them; null where there is none
  std::mutex mutex;                       // a handler's tasks may allocate
  std::vector<ral::Block> scratch;        // what is not freed before is freed with the call
};

struct XLA_FFI_Error {
  XLA_FFI_Error_Code code;
  std::string message;
  std::shared_ptr<void> cause;  // of ral::Error
};

namespace ral {

// Whether a handler of ours is only asked for its version, which this says then.
bool tells_version(XLA_FFI_CallFrame* frame);

// The table that handlers get. Its functions may be called by any thread.
const XLA_FFI_Api* host_api();

// Waits for the result of a handler that goes on after it has returned, and takes its error. Frees the future.
std::unique_ptr<XLA_FFI_Error> wait_for(XLA_FFI_Future* future);

}  // namespace ral
