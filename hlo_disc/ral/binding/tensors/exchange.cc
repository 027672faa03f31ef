#include "tensors/exchange.h"

#include <utility>
#include <vector>

namespace ral {
namespace {

static_assert(sizeof kDTypes / sizeof kDTypes[0] <= 64, "a bit for each");

// A tensor, and what owns its memory.
template <typename Owner>
struct Shared {
  Shared(Owner owned, void* data, int32_t device, const DType& dtype, const int64_t* shape, int rank)
      : owner(std::move(owned)), lengths(2 * static_cast<size_t>(rank)) {
    int64_t *sizes = lengths.data(), *strides = sizes + rank, dense = 1;
    for (int i = rank - 1; i >= 0; i--) {
      sizes[i] = shape[i];
      strides[i] = std::exchange(dense, dense * shape[i]);
    }
    managed.version = {kDLExchangeMajor, 0};
    managed.context = this;
    managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<Shared*>(self->context); };
    DLTensor& tensor = managed.tensor;
    tensor.data = data;
    tensor.device = {device, 0};
    tensor.rank = rank;
    tensor.dtype = {dtype.dlpack_code, static_cast<uint8_t>(8 * dtype.bytes), 1};
    tensor.shape = sizes;
    tensor.strides = strides;
  }

  Owner owner;
  std::vector<int64_t> lengths;
  DLManagedTensorVersioned managed{};
};

template <typename Owner>
PyObject* made(const DLExchange& functions, Owner owner, void* data, int32_t device, const DType& dtype,
               const int64_t* sizes, int rank) {
  auto* shared = new Shared<Owner>(std::move(owner), data, device, dtype, sizes, rank);
  void* object = nullptr;
  return functions.make(&shared->managed, &object) == 0 ? static_cast<PyObject*>(object) : nullptr;
}

}  // namespace

const Exchange* Exchange::of(PyTypeObject* type) {
  PyObject* capsule = PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__");
  void* pointer = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : nullptr;
  PyErr_Clear();
  Py_XDECREF(capsule);
  auto* functions = static_cast<const DLExchange*>(pointer);
  while (functions && functions->version.major > kDLExchangeMajor) functions = functions->older;
  if (!functions || functions->version.major < kDLExchangeMajor || !functions->look) return nullptr;
  return new Exchange(functions);
}

Exchange::Exchange(const DLExchange* functions) : functions_(functions) {
  for (const DType& dtype : kDTypes) {
    if (dtype.dlpack_code == kNoDLPack) continue;
    const int64_t none = 0;
    PyObject* made = tensor(Block(0, Use::kResult), dtype, &none, 1);
    if (made) dtypes_ |= uint64_t{1} << (&dtype - kDTypes);
    PyErr_Clear();
    Py_XDECREF(made);
  }
}

PyObject* Exchange::tensor(Block block, const DType& dtype, const int64_t* sizes, int rank) const {
  char* data = block.data();
  return made(*functions_, std::move(block), data, kDLCPU, dtype, sizes, rank);
}

bool Exchange::may_read(const DeviceTensor& tensor) const {
  if (tensor.finished) return true;
  void* stream = nullptr;
  if (functions_->current_stream(tensor.device_type, 0, &stream) == 0) return stream == tensor.stream;
  PyErr_Clear();
  return false;
}

PyObject* Exchange::tensor(DeviceTensor tensor) const {
  void* data = tensor.block->data();
  const DType& dtype = *tensor.dtype;
  std::vector<int64_t> sizes = tensor.sizes;
  int32_t device = tensor.device_type;
  return made(*functions_, std::move(tensor), data, device, dtype, sizes.data(), static_cast<int>(sizes.size()));
}

}  // namespace ral
