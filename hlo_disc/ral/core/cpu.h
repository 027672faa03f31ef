// What this machine's CPU can, and its system lets programs use, by LLVM's names.
#pragma once

#include <string>
#include <vector>

namespace ral {

// Of x86-64 and AArch64, those features that generated code may need; of another machine none.
std::vector<std::string> cpu_features();

}  // namespace ral
