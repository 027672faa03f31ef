/* ral.h: all that generated code and the runtime share (the runtime abstraction layer). Plain C, no dependency.
 *
 * Generated code is stateless. A call hands it a ral_call and plain pointers; it returns no resources and keeps none, so
 * any number of threads may run the same code at once, each with its own ral_call.
 *
 * A later version only adds: struct fields at the end, functions beside those below. A runtime accepts code that was
 * compiled for its own RAL_VERSION or an older one. Devices other than the CPU will add a launch on a queue, copies and
 * device memory as fields behind `parallel_for`; library calls (dlopen'ed BLAS and the like) as functions. */
#ifndef HLO_DISC_RAL_H_
#define HLO_DISC_RAL_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RAL_VERSION 1

/* Alignment, in bytes, of every block of memory that the runtime hands out: arenas, scratch, outputs, packed weights.
 * Inputs and constants are only aligned to their element. */
#define RAL_ALIGNMENT 64

/* Runs blocks begin .. end-1 (begin < end) of one kernel. `args` is the record that ral_parallel_for was given, shared
 * by all workers and read-only. `fast` is this worker's scratch of ral_call.scratch_bytes bytes, RAL_ALIGNMENT aligned;
 * no other worker touches it while this function runs, and its contents are undefined at entry. */
typedef void (*ral_block_fn)(const void* args, int64_t begin, int64_t end, void* fast);

typedef struct ral_call ral_call;

/* The state of one call of an executable: made by a context, valid until main returns. Generated code treats it as
 * opaque and passes it on. */
struct ral_call {
  uint32_t version;      /* RAL_VERSION of the runtime that filled it */
  int32_t workers;       /* how many workers parallel_for may use, the caller included; at least 1 */
  char* scratch;         /* workers * scratch_bytes bytes; null when scratch_bytes is 0 */
  int64_t scratch_bytes; /* per worker, a multiple of RAL_ALIGNMENT */
  /* The context's way to share n >= 2 blocks between workers; same contract as ral_parallel_for. */
  void (*parallel_for)(ral_call* call, ral_block_fn fn, const void* args, int64_t n);
};

/* Runs blocks 0 .. n-1 and returns when all are done. Every block runs exactly once, in ranges of any length, in any
 * order and on any worker; the caller is a worker. All memory written before the call is visible to every block, and
 * all that blocks wrote is visible to the caller afterwards. n <= 1 runs on the caller without synchronisation (n <= 0
 * does nothing): code that knows its work is too small to share passes one block. Cannot fail; never waits for a
 * thread that has not begun. `fn` must not call ral_parallel_for. */
void ral_parallel_for(ral_call* call, ral_block_fn fn, const void* args, int64_t n);

/* What generated code exports. All sizes are elements, all offsets bytes.
 *
 * plan: reads the sizes of all inputs, concatenated, and fills env. Returns 0, or k+1 when guard k does not hold; env
 * then starts with the arguments of that guard's message. On success env is
 *   [arena bytes, scratch bytes a worker, symbol values..., sizes of all outputs, concatenated...].
 * Pure: no allocation, no side effect besides env.
 *
 * main: computes. env is what plan left, arena has env[0] bytes (RAL_ALIGNMENT aligned, undefined contents, may be null
 * when env[0] is 0). bufs holds inputs, constants, packed weights (null: this one is not packed), outputs. Cannot fail.
 *
 * pack: main's signature with bufs = {source, destination}; env and arena are null and ral_call.scratch_bytes is 0. */
typedef int32_t (*ral_plan_fn)(const int64_t* dims, int64_t* env);
typedef void (*ral_main_fn)(ral_call* call, const int64_t* env, char* arena, void* const* bufs);

#ifdef __cplusplus
}
#endif

#endif /* HLO_DISC_RAL_H_ */
