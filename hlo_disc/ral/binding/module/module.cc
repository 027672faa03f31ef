// The Python module _ral.
#include "module/module.h"

#include "executable.h"
#include "jit/fast_path.h"
#include "jit/repeated.h"
#include "tensors/tensor.h"

namespace nb = nanobind;

NB_MODULE(_ral, m) {
  nb::set_leak_warnings(false);  // executables in module globals live until the process ends
  if (!ral::initialize_tensors() || !ral::initialize_fast_path() || !ral::initialize_repeated())
    throw nb::python_error();
  nb::register_exception_translator([](const std::exception_ptr& exception, void*) {
    try {
      std::rethrow_exception(exception);
    } catch (const ral::Error& error) {
      ral::raise(error);
    } catch (const ral::Raised&) {
    }
  });

  ral::add_runtime(m);
  ral::add_handlers(m);
  ral::add_jit(m);
  ral::add_device_tensor(m);
  ral::add_executable(m);
}
