#include "exchange.h"

#include <utility>
#include <vector>

namespace ral {
namespace {

static_assert(sizeof kDTypes / sizeof kDTypes[0] <= 64, "a bit for each");

struct Shared {
  Shared(Block owned, const DType& dtype, const int64_t* shape, int rank)
      : block(std::move(owned)), lengths(2 * static_cast<size_t>(rank)) {
    int64_t *sizes = lengths.data(), *strides = sizes + rank, dense = 1;
    for (int i = rank - 1; i >= 0; i--) {
      sizes[i] = shape[i];
      strides[i] = std::exchange(dense, dense * shape[i]);
    }
    managed.version = {kDLExchangeMajor, 0};
    managed.context = this;
    managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<Shared*>(self->context); };
    DLTensor& tensor = managed.tensor;
    tensor.data = block.data();
    tensor.device = {kDLCPU, 0};
    tensor.rank = rank;
    tensor.dtype = {dtype.dlpack_code, static_cast<uint8_t>(8 * dtype.bytes), 1};
    tensor.shape = sizes;
    tensor.strides = strides;
  }

  Block block;
  std::vector<int64_t> lengths;
  DLManagedTensorVersioned managed{};
};

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
  auto* shared = new Shared(std::move(block), dtype, sizes, rank);
  void* object = nullptr;
  return functions_->make(&shared->managed, &object) == 0 ? static_cast<PyObject*>(object) : nullptr;
}

}  // namespace ral
