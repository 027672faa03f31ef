/* The common part of the libraries that `hlo-disc compile --emit library` writes. Plain C; each library M has functions
 * M_open, M_run and so on of its own (see M.h), so that any number of them can be in one program.
 *
 * A library holds machine code and is as trustworthy as whoever made it. It needs the C and C++ runtimes of the system, its
 * LAPACK where M.h says so, and nothing else. All functions may be called by any number of threads at once. None ends
 * the process: they return a status, and M_error the text of what was wrong. */
#ifndef HLO_DISC_H_
#define HLO_DISC_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header, which M_open compares with the library's own. */
#define HLO_DISC_API_VERSION 1
/* No tensor has more dimensions. */
#define HLO_DISC_MAX_RANK 16
/* The size of a dimension that calls decide, or that only the run knows. */
#define HLO_DISC_DYNAMIC (-1)

typedef enum hlo_disc_status {
  HLO_DISC_OK = 0,
  HLO_DISC_ARGUMENT = 1, /* a wrong number, dtype, rank or pointer */
  HLO_DISC_SHAPE = 2, /* sizes that the program cannot have, or that break what it asks of them */
  HLO_DISC_OUT_OF_MEMORY = 3, /* no memory for results or intermediate values */
  HLO_DISC_CALL = 4, /* a library function that the program calls has failed */
  HLO_DISC_DEVICE = 5, /* the GPU or its driver */
  HLO_DISC_OPEN = 6, /* a CPU without the features that the code needs, damaged or missing weights */
  HLO_DISC_INTERNAL = 7, /* what should not happen; please report it */
  HLO_DISC_OVERFLOW = 8 /* a size is computed with as a number of a type that does not hold it */
} hlo_disc_status;

/* Types of elements. A bool is a byte, 0 or 1; integers of 4 and 2 bits and floats of less than 8 take a byte each. */
typedef enum hlo_disc_dtype {
  HLO_DISC_BOOL = 0,
  HLO_DISC_INT8 = 1,
  HLO_DISC_INT16 = 2,
  HLO_DISC_INT32 = 3,
  HLO_DISC_INT64 = 4,
  HLO_DISC_UINT8 = 5,
  HLO_DISC_UINT16 = 6,
  HLO_DISC_UINT32 = 7,
  HLO_DISC_UINT64 = 8,
  HLO_DISC_FLOAT16 = 9,
  HLO_DISC_BFLOAT16 = 10,
  HLO_DISC_FLOAT32 = 11,
  HLO_DISC_FLOAT64 = 12,
  HLO_DISC_COMPLEX64 = 13,
  HLO_DISC_COMPLEX128 = 14,
  HLO_DISC_INT4 = 15,
  HLO_DISC_UINT4 = 16,
  HLO_DISC_INT2 = 17,
  HLO_DISC_UINT2 = 18,
  HLO_DISC_FLOAT4_E2M1FN = 19,
  HLO_DISC_FLOAT6_E2M3FN = 20,
  HLO_DISC_FLOAT6_E3M2FN = 21,
  HLO_DISC_FLOAT8_E3M4 = 22,
  HLO_DISC_FLOAT8_E4M3 = 23,
  HLO_DISC_FLOAT8_E4M3B11FNUZ = 24,
  HLO_DISC_FLOAT8_E4M3FN = 25,
  HLO_DISC_FLOAT8_E4M3FNUZ = 26,
  HLO_DISC_FLOAT8_E5M2 = 27,
  HLO_DISC_FLOAT8_E5M2FNUZ = 28,
  HLO_DISC_FLOAT8_E8M0FNU = 29
} hlo_disc_dtype;

/* An argument or a result: elements one after another, the last dimension's next to each other (row-major, without gaps).
 *
 * bytes: of results, how many there is room for at `data`; of what the library has allocated, how many it has. Not read
 * of arguments. */
typedef struct hlo_disc_tensor {
  hlo_disc_dtype dtype;
  int32_t rank;
  int64_t shape[HLO_DISC_MAX_RANK];
  void* data;
  size_t bytes;
} hlo_disc_tensor;

/* The type of an argument or a result. shape: HLO_DISC_DYNAMIC where a size is not fixed; text says it as the program
 * does: "float32 (b, s, 768)". The text lives as long as the library is loaded. */
typedef struct hlo_disc_type {
  hlo_disc_dtype dtype;
  int32_t rank;
  int64_t shape[HLO_DISC_MAX_RANK];
  const char* name; /* of an argument; "" of a result */
  const char* text;
} hlo_disc_type;

typedef enum hlo_disc_severity { HLO_DISC_INFO = 0, HLO_DISC_WARNING = 1 } hlo_disc_severity;

/* Settings of a model; all zeros is a good default. Copied by M_open.
 *
 * threads: that a call may use, its own among them; 0 for one a core. One call at a time uses them, others that come
 *   meanwhile compute on their own thread.
 * weights: the path of M.weights, if it is not beside the library and the library was written without its weights.
 * allocate, release: memory for results and intermediate values, aligned as asked; both or none. allocate returns NULL
 *   when there is none. They may be called by any thread.
 * log: what happens when a model is opened. The text is valid during the call.
 * context: what these functions are given. */
typedef struct hlo_disc_settings {
  int32_t threads;
  const char* weights;
  void* (*allocate)(void* context, size_t bytes, size_t alignment);
  void (*release)(void* context, void* block, size_t bytes);
  void (*log)(void* context, hlo_disc_severity severity, const char* text);
  void* context;
} hlo_disc_settings;

/* A program that is ready to run. */
typedef struct hlo_disc_model hlo_disc_model;

#ifdef __cplusplus
}
#endif

#endif /* HLO_DISC_H_ */
