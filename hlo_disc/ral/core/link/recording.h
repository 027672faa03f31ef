// Times of the launches of one thread's calls. Code is linked a second time to be recorded, with the functions below in
// place of those of ral.h: calls of the program as it is linked first know nothing of it.
#pragma once

#include <cstdint>
#include <vector>

#include "ral.h"

namespace ral {

// Times in nanoseconds of a clock that only goes forward.
struct Launch {
  uintptr_t function;  // of a kernel, its ral_block_fn; 0 for a library call
  int64_t number;  // how many blocks; of a library call, which
  int64_t start, end;
};

// While one lives, the launches of its thread are noted in the last one.
class Recording {
 public:
  Recording();
  Recording(const Recording&) = delete;
  ~Recording();

  std::vector<Launch> launches;
  int64_t start, end = 0;  // of the thread's main work: `stop` says when it ended

  void stop();

 private:
  Recording* outer_;
};

}  // namespace ral

// ral_parallel_for and ral_library_call, noted where there is a Recording.
extern "C" void ral_recorded_parallel_for(ral_call* call, ral_block_fn fn, const void* args, int64_t n);
extern "C" int32_t ral_recorded_library_call(ral_call* call, int32_t index, const int64_t* record);
