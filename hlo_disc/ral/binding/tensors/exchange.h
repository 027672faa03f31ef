// Tensors of frameworks whose types have DLPack's C functions: in and out by pointer, with no Python between.
#pragma once

#include <Python.h>

#include "dlpack.h"
#include "dtype.h"
#include "gpu/device_tensor.h"
#include "memory/memory.h"

namespace ral {

// All of it needs the interpreter lock.
class Exchange {
 public:
  // That of a type, for the life of the process; null for a type that has none we know.
  static const Exchange* of(PyTypeObject* type);

  const DLExchange& functions() const { return *functions_; }

  // Whether the framework has such tensors.
  bool has(const DType& dtype) const { return dtypes_ >> (&dtype - kDTypes) & 1; }

  // The framework's tensor that owns the block (new reference; null with a Python exception set).
  PyObject* tensor(Block block, const DType& dtype, const int64_t* sizes, int rank) const;
  // A tensor of the framework over one on a GPU that it may read now.
  PyObject* tensor(DeviceTensor tensor) const;
  // Whether it may: it is finished, or computed in the framework's current stream. False with no exception set.
  bool may_read(const DeviceTensor& tensor) const;

 private:
  explicit Exchange(const DLExchange* functions);

  const DLExchange* functions_;
  uint64_t dtypes_ = 0;  // a bit for each of kDTypes
};

}  // namespace ral
