// The layout of env, the words that a program's plan fills for its main.
#pragma once

namespace ral {

// Positions of the words of env. See ral.h.
struct EnvLayout {
  int arena, scratch;    // the bytes of the arena, and of a worker's scratch
  int symbols, outputs;  // the first symbol, and the first size of the first output
  int wide;              // whether kernels need indices of 64 bits; -1 for a program where that is no question
  int asked;             // which asked conditions do not hold, a bit each; -1 for a program without any
  int words;             // of all, and of the longest message of a guard
};

}  // namespace ral
