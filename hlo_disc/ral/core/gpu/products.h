// Matrix products by the library of a GPU's vendor, cuBLASLt or hipBLASLt: the one that the process has loaded (PyTorch
// and JAX bring theirs), else one that the system has. Without any, there are none. No header of a library is needed to
// build this.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <mutex>

#include "gpu/gpu.h"

namespace ral {

struct ProductLibrary;

constexpr int64_t kProductWorkspace = 32 << 20;  // as much as XLA has for them

// The library on one GPU.
class Products {
 public:
  // Null where there is no library of the driver's API ("cuda", "hip"). Made once, and never destroyed. The GPU's context
  // is current. Throws Error(kDevice).
  static Products* find(const std::string& api, Gpu& gpu);

  // Puts a product behind what the stream has. False, and nothing is done, where the library has no way to compute it.
  // workspace: gives memory for it, of kProductWorkspace bytes at most, that lives until the stream has come that far;
  // empty to choose how to compute it, and no more. Throws Error(kDevice), and what `workspace` throws.
  bool run(const ral_product_args& product, void* stream, const std::function<void*(int64_t)>& workspace);

 private:
  // The question that the library answers: a product, with the alignments of matrices in place of their addresses.
  struct Before {  // an order of them; all fields are words
    bool operator()(const ral_product_args& x, const ral_product_args& y) const { return memcmp(&x, &y, sizeof x) < 0; }
  };
  // workspace: bytes; -1 where the library has no algorithm.
  struct Algorithm {
    alignas(8) char data[64];
    int64_t workspace;
  };
  struct Description;

  Products(const ProductLibrary& library, void* handle) : library_(library), handle_(handle) {}
  Algorithm choose(const Description& made, const ral_product_args& question);

  const ProductLibrary& library_;
  void* handle_;
  std::mutex mutex_;
  std::map<ral_product_args, Algorithm, Before> chosen_;
};

}  // namespace ral
