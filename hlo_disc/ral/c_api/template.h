/* @NAME@: a program that hlo_disc @VERSION@ has compiled to a library. See hlo_disc.h for types and statuses.
 *
@SIGNATURE@
 */
#ifndef HLO_DISC_LIBRARY_ @NAME @_H_
#define HLO_DISC_LIBRARY_ @NAME @_H_

#include "hlo_disc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define @NAME @_INPUTS @INPUTS @
#define @NAME @_OUTPUTS @OUTPUTS @

/* The type of an argument, or of a result, by number; NULL for a number that there is not. */
const hlo_disc_type* @NAME @_input(int32_t index);
const hlo_disc_type* @NAME @_output(int32_t index);

/* Makes the program ready: chooses the code for this CPU, and maps and checks the weights. settings: NULL for defaults.
 * api_version: HLO_DISC_API_VERSION. *model is NULL when it fails. */
int32_t @NAME @_open(const hlo_disc_settings* settings, int32_t api_version, hlo_disc_model** model);

/* Gives back what @NAME@_open took. No call of the model may run any more, and no tensor of it be left. NULL is no model. */
void @NAME @_close(hlo_disc_model* model);

/* What a call with these arguments would return, without running it; their data is not read. Fills in dtype, rank, shape
 * and bytes of the results, and leaves data as it is; a size that only the run knows is HLO_DISC_DYNAMIC, and then bytes
 * is 0. temporary: bytes for intermediate values; may be NULL. */
int32_t @NAME
    @_plan(const hlo_disc_model* model, const hlo_disc_tensor* inputs, hlo_disc_tensor* outputs, size_t* temporary);

/* Runs the program on @NAME@_INPUTS arguments. Results go to outputs[i].data, where there is room for outputs[i].bytes,
 * or, where data is NULL, to memory that the library allocates and @NAME@_release gives back. Only dtype, rank, shape and,
 * where it is allocated, bytes are written of a result. What is computed is in no part of the arguments' memory. After an
 * error no result is allocated. */
int32_t @NAME @_run(const hlo_disc_model* model, const hlo_disc_tensor* inputs, hlo_disc_tensor* outputs);

/* Gives back a result that @NAME@_run has allocated; its data is NULL afterwards. */
void @NAME @_release(const hlo_disc_model* model, hlo_disc_tensor* output);

/* What was wrong with this thread's last call that failed, "" before there was one. Valid until its next call. */
const char* @NAME @_error(void);

#ifdef __cplusplus
}
#endif

#endif /* HLO_DISC_LIBRARY_@NAME@_H_ */
