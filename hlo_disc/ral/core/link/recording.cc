#include "link/recording.h"

#include <chrono>
#include <new>

namespace ral {
namespace {

thread_local Recording* recording = nullptr;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Nothing may be thrown through generated code: what there is no memory for is left out.
void note(Recording* noted, uintptr_t function, int64_t number, int64_t start) {
  int64_t end = now_ns();
  try {
    noted->launches.push_back({function, number, start, end});
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

Recording::Recording() : start(now_ns()), outer_(recording) { recording = this; }

Recording::~Recording() { recording = outer_; }

void Recording::stop() { end = now_ns(); }

}  // namespace ral

extern "C" void ral_recorded_parallel_for(ral_call* call, ral_block_fn fn, const void* args, int64_t n) {
  ral::Recording* noted = ral::recording;
  int64_t start = ral::now_ns();
  ral_parallel_for(call, fn, args, n);
  if (noted && n > 0) ral::note(noted, reinterpret_cast<uintptr_t>(fn), n, start);
}

extern "C" int32_t ral_recorded_library_call(ral_call* call, int32_t index, const int64_t* record) {
  ral::Recording* noted = ral::recording;
  int64_t start = ral::now_ns();
  int32_t status = ral_library_call(call, index, record);
  if (noted) ral::note(noted, 0, index, start);
  return status;
}
