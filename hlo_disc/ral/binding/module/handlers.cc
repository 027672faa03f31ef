// Handlers of the XLA FFI: those that programs call, and those by which XLA and TensorFlow call programs.
#include <nanobind/stl/string.h>

#include "callback.h"
#include "contexts/ffi.h"
#include "contexts/tensorflow.h"
#include "library/fft/fft.h"
#include "library/lapack/lapack.h"
#include "library/library.h"
#include "module/module.h"

namespace nb = nanobind;

namespace ral {

void add_handlers(nb::module_& m) {
  m.def("own_handlers", [] {
    nb::dict handlers;
    handlers["hlo_disc.callback"] = reinterpret_cast<uintptr_t>(&callback_handler);
    handlers["hlo_disc.fft"] = reinterpret_cast<uintptr_t>(&fft_handler);
    return handlers;
  }, "Addresses of the runtime's own XLA FFI handlers.");
  m.def("lapack_handlers", [] {
    nb::dict handlers;
    for (auto [name, handler] : lapack_handlers()) handlers[name.c_str()] = reinterpret_cast<uintptr_t>(handler);
    return handlers;
  }, "Addresses of those over a function of LAPACK's.");
  m.def("register_state_type", [](int64_t type_id, uintptr_t deleter) {
    register_state_type(type_id, reinterpret_cast<void (*)(void*)>(deleter));
  }, nb::arg("type_id"), nb::arg("deleter"), "Tells how states of an XLA FFI handler's type are destroyed.");
  m.def("register_tensorflow_op",
        [](const std::string& path, nb::callable load) { return register_tensorflow_op(path, load.ptr()); },
        nb::arg("path"), nb::arg("load"),
        "Registers the op HloDiscCall with the TensorFlow in this library, which is loaded. Empty, or what is wrong.");
  m.def(
      "register_tensorflow_ffi", &register_tensorflow_ffi, nb::arg("path"),
      "Registers the handler hlo_disc_alone with the XLA of the TensorFlow in this library. Empty, or what is wrong.");
  m.def("ffi_handler", [] { return nb::capsule(ffi_handler()); }, "The XLA FFI handler.");
  m.def("device_ffi_handler", [] { return nb::capsule(device_ffi_handler()); },
        "The XLA FFI handler for executables of GPUs.");
  m.def("recordable_ffi_handler", [] { return nb::capsule(recordable_ffi_handler()); },
        "The XLA FFI handler for those that are recordable, for the stages initialize and execute.");
  m.def("held_handler", [] { return nb::capsule(held_handler()); },
        "The XLA FFI handler of programs that keep their executables.");
  m.def("held_type_id", [] { return nb::capsule(held_type_id()); }, "The type id of that handler's state.");
  m.def("held_type_info", [] { return nb::capsule(held_type_info()); }, "Its type info.");
}

}  // namespace ral
