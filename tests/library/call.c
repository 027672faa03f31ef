/* Calls the library `layer` as a C program would: rows of a softmax, whose sizes it asks for first. */
#include <stdio.h>
#include <stdlib.h>

#include "layer.h"

int main(void) {
  static float x[2 * 33];
  hlo_disc_model* model;
  hlo_disc_tensor input = {0}, output = {0};
  if (layer_open(NULL, HLO_DISC_API_VERSION, &model)) {
    fprintf(stderr, "%s\n", layer_error());
    return 1;
  }
  x[0] = 1;
  input.dtype = HLO_DISC_FLOAT32;
  input.rank = 2;
  input.shape[0] = 2;
  input.shape[1] = 33;
  input.data = x;
  if (layer_plan(model, &input, &output, NULL)) return 2;
  output.data = malloc(output.bytes);
  if (layer_run(model, &input, &output)) return 3;
  float changed = ((float*)output.data)[0] - ((float*)output.data)[33];
  printf("%d x %d, %.4f\n", (int)output.shape[0], (int)output.shape[1], changed > 0.5f ? 1.0 : 0.0);
  free(output.data);
  input.shape[1] = 32;
  if (layer_run(model, &input, &output) != HLO_DISC_SHAPE) return 4;
  printf("%.39s\n", layer_error());
  layer_close(model);
  return 0;
}
