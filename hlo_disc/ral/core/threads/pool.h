// The standalone context's thread pool: one a process, threads made when first needed, spinning between the launches of
// a call and parked after. Whoever finds it busy computes alone instead of waiting.
#pragma once

#include "ral.h"

namespace ral {

// Cores that this process may use: its CPU affinity, less where a control group grants less CPU time.
int usable_cores();

// A ral_call of the standalone context for up to `workers` workers; scratch must have room for all of them.
ral_call standalone_call(int workers, char* scratch, int64_t scratch_bytes);

// Ends and joins all threads; calls after that run on their caller. For the interpreter's exit.
void stop_pool();

// Threads that the pool has started in this process and not ended.
int pool_threads();

}  // namespace ral
