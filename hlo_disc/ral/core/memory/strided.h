// Tensors whose elements do not lie one after the other, made dense.
#pragma once

#include <cstdint>

namespace ral {

// Whether these strides, in elements, are C-contiguous. Null strides are.
bool is_dense(const int64_t* sizes, const int64_t* strides, int rank);

// Copies a tensor of items of so many bytes, with strides in items, to dense memory.
void copy_dense(void* to, const void* from, const int64_t* sizes, const int64_t* strides, int rank, int64_t item);

}  // namespace ral
