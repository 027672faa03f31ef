// Features that this machine's CPU has, and its system lets programs use, by LLVM's names.
#pragma once

#include <string>
#include <vector>

namespace ral {

// Those that generated code may need on x86-64 and AArch64; none on another machine.
std::vector<std::string> cpu_features();

}  // namespace ral
