// The Python class of results that stay on a GPU.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <utility>

#include "module/module.h"
#include "tensors/capsule.h"
#include "tensors/tensor.h"

namespace nb = nanobind;

namespace ral {
namespace {

nb::tuple sizes_of(const DeviceTensor& tensor) {
  nb::list sizes;
  for (int64_t size : tensor.sizes) sizes.append(size);
  return nb::tuple(sizes);
}

nb::object dlpack_of(const DeviceTensor& tensor, std::optional<int64_t> stream,
                     std::optional<std::pair<int, int>> wanted, std::optional<bool> copy) {
  if (wanted && *wanted != std::pair(tensor.device_type, 0))
    throw nb::buffer_error("the result is on GPU 0, and goes to no other device; take it there first");
  if (copy.value_or(false)) throw nb::buffer_error("the result is handed over without a copy; copy it then");
  return owned(device_capsule(tensor, stream));
}

}  // namespace

PyObject* device_tensor_object(DeviceTensor tensor) { return nb::cast(std::move(tensor)).release().ptr(); }

void add_device_tensor(nb::module_& m) {
  nb::class_<DeviceTensor>(m, "DeviceTensor")
      .def("__dlpack_device__", [](const DeviceTensor& self) { return std::make_tuple(self.device_type, 0); })
      .def("__dlpack__",
           [](const DeviceTensor& self, std::optional<int64_t> stream, nb::handle,
              std::optional<std::pair<int, int>> device,
              std::optional<bool> copy) { return dlpack_of(self, stream, device, copy); },
           nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("max_version") = nb::none(),
           nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none())
      .def_prop_ro("shape", sizes_of)
      .def_prop_ro("dtype", [](const DeviceTensor& self) { return self.dtype->name; });
}

}  // namespace ral
