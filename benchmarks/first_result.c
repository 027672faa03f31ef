/* The first result of the library MiniLM, for `make bench-startup`: two sentences of nine tokens. */
#include <stdio.h>

#include "MiniLM.h"

int main(void) {
  static int32_t ones[2 * 9];
  hlo_disc_model* model;
  hlo_disc_tensor inputs[2] = {{HLO_DISC_INT32, 2, {2, 9}, ones, 0}, {HLO_DISC_INT32, 2, {2, 9}, ones, 0}};
  hlo_disc_tensor output = {HLO_DISC_FLOAT32, 0, {0}, NULL, 0};
  for (int i = 0; i < 2 * 9; i++) ones[i] = 1;
  if (MiniLM_open(NULL, HLO_DISC_API_VERSION, &model) || MiniLM_run(model, inputs, &output)) {
    fprintf(stderr, "%s\n", MiniLM_error());
    return 1;
  }
  MiniLM_release(model, &output);
  MiniLM_close(model);
  return 0;
}
