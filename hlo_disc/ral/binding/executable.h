// The Python object for a compiled program: a program, what it keeps alive, its packed constants and its packed inputs.
#pragma once

#include <Python.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "packs.h"
#include "program/call.h"
#include "program/program.h"

namespace ral {

class Arguments;
class Checked;
struct OnDevice;

// The number of calls that an executable has served; it outlives the executable for those that count.
struct CallCount {
  std::atomic<int64_t> value{0};  // from Python and TensorFlow
  std::atomic<int64_t> in_jit{0};  // from XLA programs
};

class Executable {
 public:
  // `kept` are references (taken over) that the program's addresses depend on. Throws.
  Executable(Program program, std::vector<PyObject*> kept, int64_t pack_limit);
  Executable(const Executable&) = delete;
  ~Executable();

  // The results of a call, a tuple (new reference); null with a Python exception set.
  PyObject* call(PyObject* const* arguments, Py_ssize_t count);

  // Throws Error unless there are as many arguments as inputs.
  void check_count(Py_ssize_t count) const;

  // Which inputs and outputs have a weak type. Before the first call. Throws std::invalid_argument for a wrong number.
  void set_weak(const std::vector<bool>& inputs, const std::vector<bool>& outputs);

  // env after plan. Throws Error.
  std::vector<int64_t> plan(const std::vector<int64_t>& dims) const;

  // Which asked conditions do not hold at these sizes, a bit each; 0 where the program serves them, accepted ones too.
  // Throws Error for sizes that it cannot have.
  uint64_t unmet(const std::vector<int64_t>& dims) const;

  // Lets these asked conditions be broken together from now on. False when there is no room to note it.
  bool accept(uint64_t unmet) { return program_.accepted->add(unmet); }

  // Bytes of packed constants and packed inputs that are kept now.
  int64_t packed_bytes() const;

  // Calls that came back with results: one that is refused is not counted.
  const std::shared_ptr<CallCount>& count() const { return count_; }
  // Whether inputs are packed by now: while kernels for it are made, they are not.
  bool packs_inputs() const { return !program_.packs_inputs || *program_.packs_inputs; }

  // The program's part on the GPU, made when it is first needed. Throws Error.
  OnDevice& on_device() const;

  // References that the program's addresses depend on. `forget_kept` is for one that nobody can call any more.
  const std::vector<PyObject*>& kept() const { return kept_; }
  void forget_kept();

  const Program& program() const { return program_; }

 private:
  // Throws Error unless there are as many sizes as the inputs have, and those compiled in agree.
  void check_dims(const std::vector<int64_t>& dims) const;

  void request_packs(Call& call, const Arguments& arguments) const;

  Program program_;
  std::vector<PyObject*> kept_;
  int64_t pack_limit_;
  std::shared_ptr<PackCache> cache_;
  std::unique_ptr<Checked> checked_;
  mutable std::mutex device_mutex_;
  mutable std::unique_ptr<OnDevice> on_device_;  // gone before the code of its kernels, which `kept_` holds
  std::shared_ptr<CallCount> count_ = std::make_shared<CallCount>();
};

// Sets the Python exception for an Error: its cause, or the class of that name in hlo_disc.errors.
void raise(const Error& error);

}  // namespace ral
