/* ral.h: all that generated code and the runtime share (the runtime abstraction layer). Plain C, no dependency.
 *
 * Generated code is stateless. A call hands it a ral_call and plain pointers; it returns no resources and keeps none, so
 * any number of threads may run the same code at once, each with its own ral_call.
 *
 * A later version adds struct fields at the end and functions beside those below; when it has to change one of them, a
 * saved executable's format version changes with it, so that no code meets a runtime that takes it for something else.
 * Version 2: `main` returns a status, and there are library calls. Version 3: memory can be had while it runs.
 * Version 4: kernels that a driver launches, on memory that the host does not see. Version 5: products by libraries. */
#ifndef HLO_DISC_RAL_H_
#define HLO_DISC_RAL_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RAL_VERSION 6

/* Alignment, in bytes, of every block of memory that the runtime hands out: arenas, scratch, outputs, packed weights.
 * Inputs and constants are only aligned to their element. */
#define RAL_ALIGNMENT 64

/* Alignment of all that kernels of a GPU get, inputs and constants too. */
#define RAL_GPU_ALIGNMENT 16

/* Runs blocks begin .. end-1 (begin < end) of one kernel. `args` is the record that ral_parallel_for was given, shared
 * by all workers and read-only. `fast` is this worker's scratch of ral_call.scratch_bytes bytes, RAL_ALIGNMENT aligned;
 * no other worker touches it while this function runs, and its contents are undefined at entry. */
typedef void (*ral_block_fn)(const void* args, int64_t begin, int64_t end, void* fast);

typedef struct ral_call ral_call;

/* A module that a driver loads at once, of a program whose modules are an array. kernels: their names, each ended by a
 * zero, and the list by one more. forms: the same module for different GPUs, or for any, ended by null: the first that
 * the driver takes is loaded. Both are null in what ends the array. */
typedef struct ral_module {
  const char* kernels;
  const char* const* forms;
} ral_module;

/* A kernel that a driver launches: the program's modules, and the kernel's name in one of them. Generated code defines
 * it, the runtime keeps in it what it has loaded (null at first). */
typedef struct ral_kernel {
  const ral_module* modules;
  const char* name;
  void* loaded;
} ral_kernel;

/* A matrix on a device, or a batch of them. Strides are elements, from one row, column or matrix to the next. */
typedef struct ral_matrix {
  int64_t address, row_stride, column_stride, batch_stride;
} ral_matrix;

/* `batch` products: result (rows x columns) = left (rows x depth) * right (depth x columns), none of them empty. `type`
 * is that of left and right; types have the numbers that CUDA and HIP give them (CUDA_R_32F, HIP_R_32F). `tf32`: 1 where
 * left and right may be rounded to TF32, else 0. */
typedef struct ral_product_args {
  int64_t type, result_type, tf32, batch, rows, columns, depth;
  ral_matrix left, right, result;
} ral_product_args;

/* The state of one call of an executable: made by a context, valid until main returns. Generated code treats it as
 * opaque and passes it on. */
struct ral_call {
  uint32_t version;      /* RAL_VERSION of the runtime that filled it */
  int32_t workers;       /* how many workers parallel_for may use, the caller included; at least 1 */
  char* scratch;         /* workers * scratch_bytes bytes; null when scratch_bytes is 0 */
  int64_t scratch_bytes; /* per worker, a multiple of RAL_ALIGNMENT */
  /* The context's way to share n >= 2 blocks between workers; same contract as ral_parallel_for. */
  void (*parallel_for)(ral_call* call, ral_block_fn fn, const void* args, int64_t n);
  /* The context's way to call a library function; same contract as ral_library_call. */
  int32_t (*library_call)(ral_call* call, int32_t index, const int64_t* record);
  /* The context's way to allocate while main runs; same contract as ral_allocate. */
  void* (*allocate)(ral_call* call, int32_t what, const int64_t* sizes);
  /* Null unless the program is for a device: see ral_launch, ral_read, ral_write and ral_product. */
  void (*launch)(ral_call* call, ral_kernel* kernel, int64_t blocks, int64_t threads, int32_t shared,
                 const void* record, int64_t bytes);
  int32_t (*read)(ral_call* call, void* to, const void* from, int64_t bytes);
  int32_t (*write)(ral_call* call, void* to, const void* from, int64_t bytes);
  int32_t (*product)(ral_call* call, const char* kernel, const ral_product_args* args);
};

/* Runs blocks 0 .. n-1 and returns when all are done. Every block runs exactly once, in ranges of any length, in any
 * order and on any worker; the caller is a worker. All memory written before the call is visible to every block, and
 * all that blocks wrote is visible to the caller afterwards. n <= 1 runs on the caller without synchronisation (n <= 0
 * does nothing): code that knows its work is too small to share passes one block. Cannot fail; never waits for a
 * thread that has not begun. `fn` must not call ral_parallel_for. */
void ral_parallel_for(ral_call* call, ral_block_fn fn, const void* args, int64_t n);

/* A kernel whose code is made when it is first launched. Generated code defines it, with a null `loaded`: the runtime
 * keeps there what it got for the name. Only code that its process has compiled has such kernels. */
typedef struct ral_deferred {
  ral_block_fn loaded;
  const char* name;
} ral_deferred;

/* Does what ral_parallel_for does, for such a kernel. Returns 0 or, with the reason kept in the call, RAL_FAILED where
 * the kernel cannot be made: nothing was run then, and the kernel is asked for again the next time. */
int32_t ral_launch_deferred(ral_call* call, ral_deferred* kernel, const void* args, int64_t n);

/* Calls function `index` of the executable's library calls, a custom call's handler, on the caller's thread. `record`
 * holds the addresses of the operands and of the results, then the sizes of all of them in the same order, as the
 * function is to see them. Returns 0 when it succeeded. Anything else is a status that `main` returns at once: the
 * runtime has kept what went wrong in the call. */
int32_t ral_library_call(ral_call* call, int32_t index, const int64_t* record);

/* Memory whose size only the run knows, RAL_ALIGNMENT aligned, valid until main has returned. `what` is the number of an
 * output, whose sizes are given; or RAL_TEMPORARY, for sizes[0] bytes; or RAL_SCRATCH, which makes ral_call.scratch_bytes
 * at least sizes[0], between launches. Never null for no bytes. Returns null when it fails: main then returns RAL_FAILED,
 * and the runtime has kept what went wrong. */
#define RAL_TEMPORARY (-1)
#define RAL_SCRATCH (-2)
void* ral_allocate(ral_call* call, int32_t what, const int64_t* sizes);

/* Puts a kernel of `blocks` blocks, each of so many threads and bytes of shared memory, behind what was launched before.
 * `record` holds its arguments in `bytes` bytes, and may change afterwards. When it fails, nothing more is launched, and
 * the call fails with the reason once main has returned. */
void ral_launch(ral_call* call, ral_kernel* kernel, int64_t blocks, int64_t threads, int32_t shared, const void* record,
                int64_t bytes);

/* Copies from the device's memory to the host's, once all is computed that was launched before; or from the host's to the
 * device's, before all that is launched afterwards. Returns 0 or, with the reason kept, RAL_FAILED. */
int32_t ral_read(ral_call* call, void* to, const void* from, int64_t bytes);
int32_t ral_write(ral_call* call, void* to, const void* from, int64_t bytes);

/* Puts a product behind what was launched before, by a library of the device's vendor. Returns 0, and has done nothing,
 * where there is none or it has no way to compute this product. When it fails, it is as with ral_launch: `kernel` is how
 * the reason calls it. */
int32_t ral_product(ral_call* call, const char* kernel, const ral_product_args* args);

/* The functions that generated code exports. All sizes are elements, all offsets bytes.
 *
 * plan: reads the sizes of all inputs, concatenated, and fills env. Returns 0, or RAL_PLAN_BROKEN + k when guard k does
 * not hold; env then starts with the arguments of that guard's message. On success env holds the arena's bytes, a
 * worker's scratch bytes, the symbols' values and the sizes of all outputs, concatenated. Where it does, and how many
 * words it has, the executable's EnvLayout says, which nobody works out anew. A size that only the run knows is -1:
 * main allocates such an output. The arena has RAL_BEYOND_MEMORY bytes where 64 bits do not hold how many elements or
 * bytes something has that the program computes, also where that is never in memory: such a call cannot run. One word
 * may say, not being 0, that kernels need indices of 64 bits, and main may set it, before it launches those. One word
 * says which of the conditions do not hold that calls of this program meet and others do not: bit k for number k, bit
 * RAL_ASKED_BITS for all from there on.
 * Pure: no allocation, no side effect besides env.
 *
 * main: computes. env is what plan left, arena has as many bytes as that says (RAL_ALIGNMENT aligned, undefined
 * contents, may be null when they are 0). bufs holds inputs, constants, packed weights (null: this one is not packed),
 * outputs (null: main allocates it). Returns 0, or RAL_FAILED when a library call or an allocation failed, or
 * RAL_MAIN_BROKEN + k when guard k does not hold, which only the run could check; env then starts with the arguments of
 * its message. The outputs' contents are undefined unless it is 0.
 *
 * pack: main's signature with bufs = {source, destination}; env and arena are null and ral_call.scratch_bytes is 0. */
#define RAL_FAILED 1
#define RAL_PLAN_BROKEN 1
#define RAL_MAIN_BROKEN 2
#define RAL_ASKED_BITS 62
#define RAL_BEYOND_MEMORY (INT64_C(1) << 62)
typedef int32_t (*ral_plan_fn)(const int64_t* dims, int64_t* env);
typedef int32_t (*ral_main_fn)(ral_call* call, int64_t* env, char* arena, void* const* bufs);

#ifdef __cplusplus
}
#endif

#endif /* HLO_DISC_RAL_H_ */
