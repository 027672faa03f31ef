// One call of a program in the standalone context: plan, memory, packing, main. Runs without the interpreter lock.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "gpu/device_tensor.h"
#include "program/packed.h"
#include "program/program.h"

namespace ral {

// Room for n elements without an allocation where n is small, which is nearly always.
template <typename T, int kInline>
class Values {
 public:
  explicit Values(int n) : data_(n <= kInline ? inline_ : new T[n]) {
    for (int i = 0; i < n; i++) data_[i] = T();
  }
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;
  ~Values() {
    if (data_ != inline_) delete[] data_;
  }
  T* data() { return data_; }
  T& operator[](int i) { return data_[i]; }

 private:
  T inline_[kInline];
  T* data_;
};

// An input that may be packed and kept, because its array never changes.
struct PackRequest {
  int pack;
  PackedForm form;  // as the cache has it, or as the call made it
  bool changed = false;  // the cache should know of the new form
};

struct Call {
  explicit Call(const Program& program)
      : program(program),
        dims(program.dims_size),
        env(program.env.words),
        bufs(program.bufs_size),
        workers(program.workers) {}

  // The sizes of output k, valid after run.
  const int64_t* output_sizes(int k);

  // Memory for output k of these sizes, which are its sizes from now on. Throws Error(kOutOfMemory).
  void* allocate_output(int k, const int64_t* sizes);

  // Memory for all outputs whose sizes are known and that have none in bufs. The call is planned.
  void allocate_outputs();

  // Puts constants and their packed forms into bufs.
  void bind_constants();

  // Inputs' sizes and pointers are set. Leaves the results in `outputs`. Throws Error; whatever was allocated is freed.
  void run(int64_t pack_limit);

  // The part of `run` after the plan, for results whose memory is in bufs already.
  void launch(int64_t pack_limit);

  const Program& program;
  Values<int64_t, 64> dims;
  Values<int64_t, 64> env;
  Values<void*, 48> bufs;
  std::vector<PackRequest> packs;
  int workers;  // that it may use
  std::vector<Block> outputs;
  std::optional<OnStream> on_stream;       // where arguments lie on the GPU, and results will
  std::vector<char> resident;              // which inputs lie there, by number; empty for none
  std::vector<DeviceTensor> device_outputs;
};

// The packed form of a constant, of so many bytes, which `fn` makes. Throws Error(kOutOfMemory).
Block pack_constant(ral_main_fn fn, const void* constant, int64_t bytes);

}  // namespace ral
