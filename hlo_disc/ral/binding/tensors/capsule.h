// Tensors in a GPU's memory as DLPack capsules.
#pragma once

#include <Python.h>

#include <optional>

#include "gpu/device_tensor.h"

namespace ral {

// A DLPack capsule (new reference; null with a Python exception set) whose contents are there for what `stream` has later:
// DLPack's number of the consumer's, -1 for one that waits itself, or none for the default one.
PyObject* device_capsule(const DeviceTensor& tensor, std::optional<int64_t> stream);

}  // namespace ral
