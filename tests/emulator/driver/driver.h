// What the parts of the driver's stand-in have in common: `driver.cc`, and `kernels.cc`, which loads and launches them.
#pragma once
#include <cstdint>
#include <functional>

namespace driver {

constexpr int kInvalid = 1, kNoContext = 201, kOtherGpu = 209, kNoHandle = 400;

// What a call returns: mostly 0.
int outcome();
// Of a call that has nothing to do with streams or memory.
int outcome_of_any();
// What is refused of a hostile driver.
int refused();

void check_current();

// Whether a call that puts something into a stream is taken. A hostile driver takes it from threads with a context, and
// for streams that are there; others do not look. A stream of another GPU than the thread's is refused by both.
bool takes(void* stream);

// While a stream is recorded, launches are kept, and everything else is refused.
void record(bool on);
bool is_recording();
int keep(std::function<void()> work);  // records it
void note_launch(void* stream);
// How many modules are loaded.
int modules();

}  // namespace driver

#define SAME(hip, cuda) decltype(cuda) hip __attribute__((alias(#cuda)));
